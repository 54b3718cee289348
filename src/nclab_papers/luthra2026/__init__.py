"""The paper on collapse along the directions between classes; its variance is a metric here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "luthra2026",
    "Directional Neural Collapse Explains Few-Shot Transfer in Self-Supervised Learning",
    "A. Luthra, Y. Salunkhe, T. Galanti",
    2026,
)
