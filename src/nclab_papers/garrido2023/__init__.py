"""The paper on the effective rank of features, a metric here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "garrido2023",
    "RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised "
    "Representations by Their Rank",
    "Q. Garrido, R. Balestriero, L. Najman, Y. LeCun",
    2023,
)
