"""The paper that discovered neural collapse; its measures are in `nclab.metrics`."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "papyan2020",
    "Prevalence of Neural Collapse during the Terminal Phase of Deep Learning Training",
    "V. Papyan, X. Y. Han, D. L. Donoho",
    2020,
    symbols={"mu_G (mean over samples)": "mean of the class means"},
)
