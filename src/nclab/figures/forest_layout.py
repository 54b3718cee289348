"""Positions of rows, intervals and texts in a forest plot, for both renderers.

The vertical axis points down. On the horizontal axis, -1 and 1 are the edges of the plot.
"""

from typing import NamedTuple

from nclab.figures.picture import EffectRow, Effects, Forest
from nclab.text import number

TEXT_ABOVE = 0.55
"""Distance from an interval up to the middle of its text, in units of the vertical axis."""
ZERO_LINE = (0.2, 0.6)
"""Length of the zero line above and below an interval; it does not reach the text of a row."""
_THINNEST_MARGIN = 0.004
"""Smallest half width of a drawn margin; a narrower margin would be invisible."""
_ROW_DISTANCE, _HOLLOW_DISTANCE = 1.9, 1.5
"""Vertical distances: to the next filled row, and to the hollow row of the same effect."""
HOLLOW_LABEL = "here"
"""Label of a hollow row, which shows the result of the user's own runs."""


class ForestRow(NamedTuple):
    """A line of text with an interval below it, or a heading, which has no interval.

    Values beyond -1 and 1 are drawn at the edge with an arrow; the text shows the real numbers.
    """

    y: float
    label: str
    numbers: str = ""
    effect: EffectRow | None = None
    low: float = 0.0
    estimate: float | None = 0.0
    """Position of the estimate; None if it lies beyond the edge."""
    high: float = 0.0
    cut: tuple[bool, bool] = (False, False)
    """Two booleans: whether the interval continues beyond the left edge, and beyond the right."""


class MarginBand(NamedTuple):
    """Rectangle behind the rows of one group that shows the margin of the group."""

    centre: float
    height: float
    half_width: float


def lay_out_forest(panel: Forest) -> tuple[list[ForestRow], list[MarginBand], float]:
    """Return the rows, the margins and the total height of a forest plot."""
    rows: list[ForestRow] = []
    bands: list[MarginBand] = []
    y = 0.0
    for group in panel.groups:
        y += _ROW_DISTANCE
        rows.append(ForestRow(y, group.title, f"margin {number(group.margin)}"))
        top, scale = y, _scale(group)
        name_above = ""
        for effect in group.rows:
            repeats = effect.hollow and effect.name == name_above
            y += _HOLLOW_DISTANCE if repeats else _ROW_DISTANCE
            label = f"{HOLLOW_LABEL}, {effect.name}" if effect.hollow else effect.name
            rows.append(_row(effect, y, scale, label=HOLLOW_LABEL if repeats else label))
            name_above = effect.name
        bottom = y + 0.35
        half_width = max(_THINNEST_MARGIN, group.margin / scale) if group.margin else 0.0
        bands.append(MarginBand((top + bottom) / 2, bottom - top, half_width))
    return rows, bands, y


def _scale(group: Effects) -> float:
    """Return the size of an effect that reaches the edge of the plot, for a group of rows.

    The edge is the largest absolute value in the group, or its margin if that is larger.

    Hollow rows, the user's runs, count only if there are no filled rows. They often have few
    seeds, and their wide intervals would make all other intervals too small to see.
    """
    rows = [row for row in group.rows if not row.hollow] or group.rows
    ends = [abs(end) for row in rows for end in (row.low, row.estimate, row.high) if end]
    return max([group.margin, *ends]) or 1.0


def _row(effect: EffectRow, y: float, scale: float, *, label: str) -> ForestRow:
    if effect.low is None or effect.high is None:
        low = high = effect.estimate
        interval = ", no interval"
    else:
        low, high = effect.low, effect.high
        interval = f" [{number(low)}, {number(high)}]"
    return ForestRow(
        y,
        label,
        number(effect.estimate) + interval,
        effect,
        min(max(low / scale, -1.0), 1.0),
        effect.estimate / scale if abs(effect.estimate) <= scale else None,
        min(max(high / scale, -1.0), 1.0),
        (low < -scale, high > scale),
    )
