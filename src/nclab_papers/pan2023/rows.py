"""Rows of trained networks, as the judges and tables of chapter 3 read them.

Runs that did not converge are left out of every comparison, as the thesis leaves them out.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nclab.claims.claim import Finding
from nclab.claims.tables import Row

BySeed = dict[int, float]

COSINE = 0.01
"""Differences of cosines smaller than this are none: a hundredth of the thesis's axes."""


def degree(row: Row) -> float:
    """The degree of collapse that the thesis plots: min intra - max inter.

    >>> round(degree({"min_intra": 0.95, "max_inter": -0.3}), 12)
    1.25
    """
    return float(row["min_intra"]) - float(row["max_inter"])


def gap(row: Row) -> float | None:
    """The degree of collapse; None for a network whose cosines are undefined."""
    return None if row["min_intra"] is None or row["max_inter"] is None else degree(row)


def seeds(rows: Iterable[Row]) -> list[int]:
    """The seeds that occur, in order."""
    return sorted({int(row["seed"]) for row in rows})


def series(rows: Iterable[Row], key: str = "weight_decay", **match: Any) -> list[Row]:
    """Converged rows with these values, in the order of `key`."""
    found = [
        row
        for row in rows
        if row["converged"] and all(row[name] == value for name, value in match.items())
    ]
    return sorted(found, key=lambda row: float(row[key]))


def by_seed(rows: Iterable[Row], value: Callable[[Row], float], **match: Any) -> BySeed:
    """A value of the converged rows with these values of their columns, by seed.

    >>> rows = [{"seed": 0, "norm": "none", "v": 1.0, "weight_decay": 0.1, "converged": True}]
    >>> by_seed(rows, lambda row: row["v"], norm="none"), by_seed(rows, degree, norm="affine")
    ({0: 1.0}, {})
    """
    return {int(row["seed"]): value(row) for row in series(rows, **match)}


def paired(larger: Mapping[int, float], smaller: Mapping[int, float]) -> BySeed:
    """Differences in the seeds that have both.

    >>> paired({0: 3.0, 1: 4.0}, {1: 1.0})
    {1: 3.0}
    """
    return {seed: larger[seed] - smaller[seed] for seed in larger if seed in smaller}


def decade_slopes(
    rows: Sequence[Row], value: Callable[[Row], float], *, sign: int = 1, **match: Any
) -> BySeed:
    """By seed, the least-squares slope of a value per decade of weight decay.

    >>> rows = [{"seed": 0, "weight_decay": decay, "v": v, "converged": True}
    ...         for decay, v in ((1e-4, 0.2), (1e-2, 0.6))]
    >>> {seed: round(slope, 6) for seed, slope in decade_slopes(rows, lambda row: row["v"]).items()}
    {0: 0.2}
    """
    found = {}
    for seed in seeds(rows):
        own = series(rows, seed=seed, **match)
        if len(own) > 1:
            decades = [math.log10(row["weight_decay"]) for row in own]
            slope = np.polyfit(decades, [value(row) for row in own], 1)[0]
            found[seed] = sign * float(slope)
    return found


def noting(finding: Finding, skipped: int) -> Finding:
    """The finding, with a word on converged networks that could not be judged."""
    if not skipped:
        return finding
    note = f"left out, undefined in some layer: {skipped} converged network{'s' * (skipped > 1)}"
    return Finding(
        finding.verdict, f"{finding.evidence}; {note}", {**finding.numbers, "skipped": skipped}
    )
