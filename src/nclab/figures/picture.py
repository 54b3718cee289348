"""A picture as plain data: panels of series, drawn by matplotlib for paper and plotly for pages.

Every figure is described once, here; `figures/draw.py` and `figures/interactive.py` render it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Numbers = Sequence[float | None]
Scale = Literal["linear", "log", "loglog"]
"""loglog: the logarithm of the logarithm, the time axis of ji2022."""
Style = Literal["solid", "dashed", "dotted", "none"]
Marker = Literal["none", "filled", "hollow", "cross"]


class Series(NamedTuple):
    """One line, cloud of points or band."""

    label: str
    """Shown in the legend; empty for none."""
    x: Numbers
    y: Numbers
    """None where there is nothing to draw."""
    low: Numbers | None = None
    """Lower edge of a band or error bar around y, such as the spread over seeds."""
    high: Numbers | None = None
    colour: int = 0
    """Place in the palette; the same number is the same colour in every panel and renderer."""
    style: Style = "solid"
    marker: Marker = "none"


class Reference(NamedTuple):
    """A straight line that theory draws: horizontal at y or vertical at x."""

    label: str
    y: float | None = None
    x: float | None = None


class Panel(NamedTuple):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    references: tuple[Reference, ...] = ()
    y_range: tuple[float, float] | None = None


class HeatMap(NamedTuple):
    """A matrix as colours, such as the cosines between classes."""

    title: str
    x_label: str
    y_label: str
    values: Sequence[Numbers]
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    value_range: tuple[float, float] | None = None


class Picture(NamedTuple):
    """A figure: panels in rows of `columns`, a title and what a reader should see in it."""

    name: str
    """File name without suffix."""
    title: str
    panels: tuple[Panel | HeatMap, ...]
    columns: int = 2
    caption: str = ""
    panel_size: tuple[float, float] = (3.2, 2.6)
    """Inches of one panel on paper."""
