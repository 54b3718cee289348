"""The paper on minority collapse in imbalanced training."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "fang2021",
    "Exploring Deep Neural Networks via Layer-Peeled Model: "
    "Minority Collapse in Imbalanced Training",
    "C. Fang, H. He, Q. Long, W. J. Su",
    2021,
)
