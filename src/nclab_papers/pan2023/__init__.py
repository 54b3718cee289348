"""The thesis that proves that near-optimal cross-entropy forces neural collapse."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "pan2023",
    "Mathematical Guarantees of Near-Optimal Cross-Entropy Loss through Neural Collapse",
    "L. Pan",
    2023,
    symbols={"tilde and bar over h": "mean of unit features", "gamma": "batch norm scale"},
    parts=(
        "setting",
        "measures",
        "theorem",
        "guarantees",
        "remarks",
        "jensen",
        "unit_means",
        "loss_steps",
        "near_optimum",
        "alignment",
        "definitions",
        "fig31",
        "norms",
        "complexity",
        "fig33",
        "conjectures",
        "author_data",
        "author_conjectures",
        "author_results",
    ),
)
