"""What nclab finds beyond the papers, under its own name."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "findings",
    "Beyond the papers",
    "The nclab developers",
    2026,
    parts=("tour", "terminal_phase"),
)
