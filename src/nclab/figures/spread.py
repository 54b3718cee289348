"""Lines with the spread over seeds, and marks for runs that failed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nclab.figures.picture import Marker, Series, Style

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]

FAILED = 6
"""Failed runs are black."""
SPREAD = "Lines are means over the seeds, bands reach from the smallest to the largest."


class Look(NamedTuple):
    """How a line is drawn."""

    label: str
    colour: int
    style: Style = "solid"
    marker: Marker = "filled"


def column(name: str) -> Value:
    """A row's value of this name."""
    return lambda row: None if row[name] is None else float(row[name])


def spread(rows: Iterable[Row], key: str, value: Value, look: Look) -> Series:
    """Mean over seeds against `key`, with a band from the smallest to the largest.

    >>> rows = [{"layer": 1, "v": 0.25}, {"layer": 1, "v": 0.75}, {"layer": 2, "v": 1.0}]
    >>> line = spread(rows, "layer", column("v"), Look("v", 0))
    >>> line.x, line.y, line.low, line.high
    ([1.0, 2.0], [0.5, 1.0], [0.25, 1.0], [0.75, 1.0])
    """
    groups: dict[float, list[float]] = {}
    for row in rows:
        known = value(row)
        if known is not None:
            groups.setdefault(float(row[key]), []).append(known)
    places = sorted(groups)
    several = any(len(group) > 1 for group in groups.values())
    return Series(
        look.label,
        places,
        [sum(groups[place]) / len(groups[place]) for place in places],
        [min(groups[place]) for place in places] if several else None,
        [max(groups[place]) for place in places] if several else None,
        look.colour,
        look.style,
        look.marker,
    )


def failures(
    rows: Iterable[Row], key: str, values: Sequence[Value], label: str = "not converged"
) -> list[Series]:
    """Crosses where runs that did not converge ended; no series if there are none."""
    failed = [(row, value(row)) for row in rows if not row["converged"] for value in values]
    known = [(float(row[key]), y) for row, y in failed if y is not None]
    if not known:
        return []
    places, heights = [x for x, _ in known], [y for _, y in known]
    return [Series(label, places, heights, colour=FAILED, style="none", marker="cross")]


def converged(rows: Iterable[Row]) -> list[Row]:
    """The rows of runs that converged."""
    return [row for row in rows if row["converged"]]
