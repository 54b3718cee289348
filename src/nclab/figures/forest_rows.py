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


class Row(NamedTuple):
    """Words at both ends and, below them, an interval; a heading has none."""

    at: float
    words: str
    numbers: str = ""
    effect: EffectRow | None = None
    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0


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
        depth += 1.9
        rows.append(Row(depth, group.title, f"margin {number(group.margin)}"))
        top, scale = depth, _scale(group)
        last = ""
        for one in group.rows:
            beside = one.hollow and one.name == last  # its neighbour above has said what it is
            depth += 0.5 if beside else 1.9
            rows.append(_row(one, depth, scale, words="" if beside else one.name))
            last = one.name
        bottom = depth + 0.35
        reach = max(LEAST, group.margin / scale) if group.margin else 0.0
        bands.append(Band((top + bottom) / 2, bottom - top, reach))
    return rows, bands, depth


def _scale(group: Effects) -> float:
    """The size that fills half the width."""
    ends = [abs(end) for one in group.rows for end in (one.low, one.estimate, one.high) if end]
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
        low / scale,
        one.estimate / scale,
        high / scale,
    )
