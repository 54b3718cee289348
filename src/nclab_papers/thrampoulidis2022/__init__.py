"""The paper on SELI, the geometry of imbalanced classes without weight decay."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "thrampoulidis2022",
    "Imbalance Trouble: Revisiting Neural-Collapse Geometry",
    "C. Thrampoulidis, G. R. Kini, V. Vakilian, T. Behnia",
    2022,
)
