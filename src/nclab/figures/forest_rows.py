"""Where the rows of a forest plot lie, for both renderers: one unit down a row, -1 to 1 across."""

from typing import NamedTuple

from nclab.figures.picture import EffectRow, Effects, Forest
from nclab.text import number

HEIGHT = 1.1
"""From the middle of a row up to its words."""
ZERO = (0.2, 0.6)
"""How far the line of zero reaches up and down from an interval: not into the words of a row."""
LEAST = 0.004
"""Half the width of a margin that can be seen."""
APART, BESIDE = 1.9, 1.5
"""From a row to the next, and to that of the same quantity from other data."""
HERE = "here"
"""What a hollow row is called."""


class Row(NamedTuple):
    """Words at both ends and, below them, an interval; a heading has none.

    Places lie from -1 to 1; what lies further out is cut off there, and the numbers say it.
    """

    at: float
    words: str
    numbers: str = ""
    effect: EffectRow | None = None
    low: float = 0.0
    middle: float | None = 0.0
    """None where it is cut off."""
    high: float = 0.0
    cut: tuple[bool, bool] = (False, False)
    """Whether the interval goes on to the left and to the right."""


class Band(NamedTuple):
    """The margin of a group."""

    middle: float
    tall: float
    reach: float


def laid_out(panel: Forest) -> tuple[list[Row], list[Band], float]:
    """Rows, margins and the depth of the whole.

    >>> effects = Effects("grows", 0.01, (EffectRow("1e-4 to 3e-4", 0.2, 0.1, 0.3),))
    >>> rows, bands, depth = laid_out(Forest("", (effects,)))
    >>> rows[0].words, rows[1].numbers, rows[1].high
    ('grows', '0.2 [0.1, 0.3]', 1.0)
    """
    rows: list[Row] = []
    bands: list[Band] = []
    depth = 0.0
    for group in panel.groups:
        depth += APART
        rows.append(Row(depth, group.title, f"margin {number(group.margin)}"))
        top, scale = depth, _scale(group)
        last = ""
        for one in group.rows:
            beside = one.hollow and one.name == last  # its neighbour above has said what it is
            depth += BESIDE if beside else APART
            words = HERE if beside else f"{HERE}, {one.name}" if one.hollow else one.name
            rows.append(_row(one, depth, scale, words=words))
            last = one.name
        bottom = depth + 0.35
        reach = max(LEAST, group.margin / scale) if group.margin else 0.0
        bands.append(Band((top + bottom) / 2, bottom - top, reach))
    return rows, bands, depth


def _scale(group: Effects) -> float:
    """The size that fills half the width: of the filled rows, if there are any, and the margin.

    Hollow ones, of few seeds, may be so wide that nothing else could be seen beside them.
    """
    filled = [one for one in group.rows if not one.hollow]
    ends = [
        abs(end) for one in filled or group.rows for end in (one.low, one.estimate, one.high) if end
    ]
    return max([group.margin, *ends]) or 1.0


def _row(one: EffectRow, at: float, scale: float, *, words: str) -> Row:
    known = one.low is not None and one.high is not None
    low, high = (one.low, one.high) if known else (one.estimate, one.estimate)
    assert low is not None
    assert high is not None
    interval = f" [{number(low)}, {number(high)}]" if known else ", no interval"
    return Row(
        at,
        words,
        number(one.estimate) + interval,
        one,
        _inside(low / scale),
        one.estimate / scale if abs(one.estimate) <= scale else None,
        _inside(high / scale),
        (low < -scale, high > scale),
    )


def _inside(place: float) -> float:
    return min(max(place, -1.0), 1.0)
