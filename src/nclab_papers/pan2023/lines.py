"""What the pictures of chapter 3 have in common: axes, colours, the simplex, runs that failed."""

from collections.abc import Iterable, Sequence

from nclab.claims.tables import Row
from nclab.figures.picture import Series
from nclab.figures.seeds import LineStyle, column, converged, failure_crosses, mean_over_seeds

INTRA, INTER, ACCURACY, BLACK = 0, 4, 2, 6
"""Blue, yellow and green as in the thesis's pictures of layers."""
NORMS = {"affine": "BN with affine", "plain": "BN without affine", "none": "no BN"}
COSINES = (-0.45, 1.05)
DECAY = "weight decay"
TICKS = (1e-4, 1e-3, 1e-2)


def cosines(rows: Sequence[Row], key: str, etf: Series) -> tuple[Series, ...]:
    """Min intra and max inter of converged networks, the simplex, crosses for those that failed."""
    looks = {"min_intra": LineStyle("min intra", INTRA), "max_inter": LineStyle("max inter", INTER)}
    lines = [
        mean_over_seeds(converged(rows), key, column(name), look) for name, look in looks.items()
    ]
    return (*lines, etf, *failure_crosses(rows, key, [column(name) for name in looks]))


def simplex(num_classes: int, places: Iterable[float]) -> Series:
    """The inter-class cosine of a simplex ETF, across the given places."""
    known = list(places)
    ends = [min(known), max(known)]
    height = -1 / (num_classes - 1)
    return Series("simplex ETF, −1/(C−1)", ends, [height] * 2, colour=BLACK, style="dotted")


def failed_note(rows: Iterable[Row]) -> str:
    """One sentence on the runs that are left out of the lines; empty if there are none.

    >>> failed_note([{"norm": "none", "weight_decay": 0.01, "seed": 0, "converged": False}])
    ' Not converged and left out of the lines: no BN at 0.01 (1 seed).'
    """
    counts: dict[tuple[str, float], int] = {}
    for row in rows:
        if not row["converged"]:
            place = (NORMS[row["norm"]], float(row["weight_decay"]))
            counts[place] = counts.get(place, 0) + 1
    parts = [
        f"{norm} at {decay:g} ({count} seed{'s' if count > 1 else ''})"
        for (norm, decay), count in sorted(counts.items())
    ]
    return f" Not converged and left out of the lines: {', '.join(parts)}." if parts else ""
