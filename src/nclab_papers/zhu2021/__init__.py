"""The paper on unconstrained features; the NC2 and NC3 of its code are metrics here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "zhu2021",
    "A Geometric Analysis of Neural Collapse with Unconstrained Features",
    "Z. Zhu, T. Ding, J. Zhou, X. Li, C. You, J. Sulam, Q. Qu",
    2021,
)
