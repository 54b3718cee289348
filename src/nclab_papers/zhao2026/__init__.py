"""The paper on collapse and optimisers; its NC0 is a metric here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "zhao2026",
    "Optimizer Choice Matters for the Emergence of Neural Collapse",
    "J. Zhao, T. S. Cheng, W. Masarczyk, A. Lucchi",
    2026,
)
