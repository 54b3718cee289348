"""Rows of trained networks, as the judges and tables of chapter 3 read them.

Runs that did not converge are left out of every comparison, as the thesis leaves them out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nclab.papers.comparisons import Line
from nclab.papers.tables import Row
from nclab.papers.verdict import Finding

VISIBLE = 0.01
"""Differences smaller than this are none: a hundredth of the axis of the thesis's pictures. What
should rise may fall by this much, and what should be above must be so by more."""


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


def line(
    what: str,
    rows: Sequence[Row],
    value: Callable[[Row], float],
    *,
    key: str = "weight_decay",
    sign: int = 1,
) -> Line:
    """Values of rows along weight decay or another key, said to rise, or to fall with sign -1."""
    return Line(what, [float(row[key]) for row in rows], [value(row) for row in rows], sign)


def failing(run: Row) -> float:
    """By how much a run fails, as one that should: its missing accuracy, or -1 if it does not."""
    return -1.0 if run["converged"] else 1 - float(run["accuracy"] or 0.0)


def place(row: Row) -> str:
    """Which network it is, in words."""
    return f"seed {row['seed']}, {row['norm']}, weight decay {row['weight_decay']:g}"


def noting(finding: Finding, skipped: int) -> Finding:
    """The finding, with a word on converged networks that could not be judged."""
    if not skipped:
        return finding
    note = f"left out, undefined in some layer: {skipped} converged network{'s' * (skipped > 1)}"
    return Finding(
        finding.verdict, f"{finding.evidence}; {note}", {**finding.numbers, "skipped": skipped}
    )
