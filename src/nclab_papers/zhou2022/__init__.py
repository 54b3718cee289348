"""The paper that finds all losses equal; label smoothing and focal loss against their targets."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "zhou2022",
    "Are All Losses Created Equal: A Neural Collapse Perspective",
    "J. Zhou, C. You, X. Li, K. Liu, S. Liu, Q. Qu, Z. Zhu",
    2022,
)
