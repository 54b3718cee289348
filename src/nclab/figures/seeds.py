"""Lines of means over seeds with their spread, and crosses for runs that failed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nclab.figures.palette import BLACK
from nclab.figures.picture import Marker, Series, Style

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]

SEED_CAPTION = "Lines: mean over the seeds. Bands: from the smallest to the largest seed."


def column(name: str) -> Value:
    """Return a function that reads the number of a column from a row; None if it is missing."""
    return lambda row: None if row[name] is None else float(row[name])


def mean_over_seeds(
    rows: Iterable[Row],
    key: str,
    value: Value,
    label: str,
    colour: int = 0,
    style: Style = "solid",
    marker: Marker = "filled",
) -> Series:
    """Return the mean over seeds against `key`, with a band from the smallest to the largest.

    >>> rows = [{"layer": 1, "v": 0.25}, {"layer": 1, "v": 0.75}, {"layer": 2, "v": 1.0}]
    >>> series = mean_over_seeds(rows, "layer", column("v"), "v")
    >>> series.x, series.y, series.low, series.high
    ([1.0, 2.0], [0.5, 1.0], [0.25, 1.0], [0.75, 1.0])
    """
    groups: dict[float, list[float]] = {}
    for row in rows:
        measured = value(row)
        if measured is not None:
            groups.setdefault(float(row[key]), []).append(measured)
    x = sorted(groups)
    several = any(len(group) > 1 for group in groups.values())
    y = [sum(groups[at]) / len(groups[at]) for at in x]
    low = [min(groups[at]) for at in x] if several else None
    high = [max(groups[at]) for at in x] if several else None
    return Series(label, x, y, low, high, colour, style, marker)


def failure_crosses(
    rows: Iterable[Row], key: str, values: Sequence[Value], label: str = "not converged"
) -> list[Series]:
    """Return a series of crosses at the runs that did not converge, or no series."""
    failed = [(row, value(row)) for row in rows if not row["converged"] for value in values]
    points = [(float(row[key]), y) for row, y in failed if y is not None]
    if not points:
        return []
    x, y = [point[0] for point in points], [point[1] for point in points]
    return [Series(label, x, y, colour=BLACK, style="none", marker="cross")]


def converged(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of runs that converged."""
    return [row for row in rows if row["converged"]]
