"""The paper that shows how gradient descent on the layer-peeled model reaches collapse."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "ji2022",
    "How Gradient Descent Separates Data with Neural Collapse: A Layer-Peeled Perspective",
    "W. Ji, Y. Lu, Y. Zhang, Z. Deng, W. J. Su",
    2022,
    symbols={"K": "C", "n": "N", "H (columns are features)": "H (rows are features)"},
    parts=(
        "setting",
        "margin",
        "flow",
        "saddle",
        "noise",
        "landscape",
        "fig2",
        "fig3",
        "remarks",
        "ladder",
        "fig1",
    ),
)
