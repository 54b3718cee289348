"""The paper on the effective rank of class means, a metric here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "thilak2024",
    "LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures",
    "V. Thilak, C. Huang, O. Saremi, L. Dinh, H. Goh, P. Nakkiran, J. M. Susskind, E. Littwin",
    2024,
)
