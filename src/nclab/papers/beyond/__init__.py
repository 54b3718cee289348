"""What nclab finds beyond the papers, under its own name."""

from nclab.papers.paper import Paper

PAPER = Paper(
    "beyond",
    "Beyond the papers",
    "The nclab developers",
    2026,
    parts=("tour", "terminal_phase"),
)
