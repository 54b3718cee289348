"""The papers nclab cites, by key, with the symbols in which they differ from ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Paper:
    """One source: how to find it and how to read its notation."""

    key: str
    title: str
    authors: str
    year: int
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Their symbol -> ours, only where the two differ."""


PAPERS: Mapping[str, Paper] = MappingProxyType(
    {
        paper.key: paper
        for paper in (
            Paper(
                "pan2023",
                "Mathematical Guarantees of Near-Optimal Cross-Entropy Loss "
                "through Neural Collapse",
                "L. Pan",
                2023,
                {"tilde and bar over h": "mean of unit features", "gamma": "batch norm scale"},
            ),
            Paper(
                "ji2022",
                "How Gradient Descent Separates Data with Neural Collapse: "
                "A Layer-Peeled Perspective",
                "W. Ji, Y. Lu, Y. Zhang, Z. Deng, W. J. Su",
                2022,
                {"K": "C", "n": "N", "H (columns are features)": "H (rows are features)"},
            ),
            Paper(
                "papyan2020",
                "Prevalence of Neural Collapse during the Terminal Phase of Deep Learning Training",
                "V. Papyan, X. Y. Han, D. L. Donoho",
                2020,
                {"mu_G (mean over samples)": "mean of the class means"},
            ),
            Paper(
                "galanti2022",
                "On the Role of Neural Collapse in Transfer Learning",
                "T. Galanti, A. Gyorgy, M. Hutter",
                2022,
                {"V_f(Q_1, Q_2)": "cdnv of a pair"},
            ),
        )
    }
)
