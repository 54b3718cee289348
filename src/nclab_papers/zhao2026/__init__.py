"""The paper on optimisers and collapse, which introduces the metric NC0."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "zhao2026",
    "Optimizer Choice Matters for the Emergence of Neural Collapse",
    "J. Zhao, T. S. Cheng, W. Masarczyk, A. Lucchi",
    2026,
)
