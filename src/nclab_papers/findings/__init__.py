"""Findings of this project that no paper states."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "findings",
    "Findings beyond the papers",
    "The nclab developers",
    2026,
    parts=("tour", "terminal_phase"),
)
