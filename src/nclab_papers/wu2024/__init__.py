"""The paper on collapse in language models; its forms of NC2 and NC3 are metrics here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "wu2024",
    "Linguistic Collapse: Neural Collapse in (Large) Language Models",
    "R. Wu, V. Papyan",
    2024,
)
