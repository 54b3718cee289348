"""The paper on deep unconstrained models, where low rank beats collapse."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "sukenik2024",
    "Neural Collapse versus Low-rank Bias: Is Deep Neural Collapse Really Optimal?",
    "P. Súkeník, C. Lampert, M. Mondelli",
    2024,
)
