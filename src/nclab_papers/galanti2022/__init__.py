"""The paper on collapse and transfer; its class-distance normalised variance is a metric here."""

from nclab.claims.paper import Paper

PAPER = Paper(
    "galanti2022",
    "On the Role of Neural Collapse in Transfer Learning",
    "T. Galanti, A. Gyorgy, M. Hutter",
    2022,
    symbols={"V_f(Q_1, Q_2)": "cdnv of a pair"},
)
