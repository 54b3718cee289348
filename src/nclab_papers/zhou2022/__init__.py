"""The paper that finds that all losses lead to the same collapse and generalisation."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "zhou2022",
    "Are All Losses Created Equal: A Neural Collapse Perspective",
    "J. Zhou, C. You, X. Li, K. Liu, S. Liu, Q. Qu, Z. Zhu",
    2022,
)
