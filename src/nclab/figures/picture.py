"""Figures as plain data, without a plotting library, and the colours of all figures.

A figure is described once, as a `Picture`. `matplotlib_renderer` draws it for print,
`plotly_renderer` for web pages, and `to_json` stores it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Numbers = Sequence[float | None]
Scale = Literal["linear", "log", "loglog"]
"""Scale of an axis; "loglog" is a logarithmic axis of log t, as in the figures of ji2022."""
Style = Literal["solid", "dashed", "dotted", "none"]
Marker = Literal["none", "filled", "hollow", "cross"]


class Series(NamedTuple):
    """One line, cloud of points or band of a panel."""

    label: str
    """Text in the legend; an empty label has no entry."""
    x: Numbers
    y: Numbers
    """Values; None leaves a gap."""
    low: Numbers | None = None
    """Lower edge of a band or error bar around y, for example the smallest value of all seeds."""
    high: Numbers | None = None
    colour: int = 0
    """Index into the palette; an index has the same colour in every panel and renderer."""
    style: Style = "solid"
    marker: Marker = "none"


class Reference(NamedTuple):
    """A straight line that theory predicts: horizontal at y or vertical at x."""

    label: str
    y: float | None = None
    x: float | None = None


class Panel(NamedTuple):
    """One pair of axes with its series."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    references: tuple[Reference, ...] = ()
    y_range: tuple[float, float] | None = None
    x_ticks: tuple[float, ...] = ()
    """Positions of the ticks on x; if empty, the renderer chooses."""
    x_names: tuple[str, ...] = ()
    """Tick labels that replace the numbers, one for each of `x_ticks`."""
    bare: bool = False
    """Whether to draw a sketch: equal units on both axes, thin lines, no frame, grid or numbers."""


class HeatMap(NamedTuple):
    """A matrix as colours, such as the cosines between classes."""

    title: str
    x_label: str
    y_label: str
    values: Sequence[Numbers]
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    value_range: tuple[float, float] | None = None
    x: Numbers = ()
    """Positions of the columns on a continuous axis; empty if columns have names or numbers."""
    y: Numbers = ()
    centre: float | None = None
    """Value between the two colours of a diverging scale; None for a scale from light to dark."""
    value_label: str = ""


class EffectRow(NamedTuple):
    """One row of a forest plot: an estimate with its interval."""

    name: str
    estimate: float
    low: float | None
    """Lower end of the interval; None if there is no interval."""
    high: float | None
    colour: int = 0
    hollow: bool = False
    """Whether the row shows the user's own runs, and its point is drawn as an empty circle."""


class Effects(NamedTuple):
    """Rows that share a unit, a scale and a margin."""

    title: str
    margin: float
    rows: tuple[EffectRow, ...]


class Forest(NamedTuple):
    """A forest plot: effects with their intervals around zero, with one scale per group."""

    title: str
    groups: tuple[Effects, ...]
    left: str = ""
    """Meaning of an effect below zero."""
    right: str = ""
    """Meaning of an effect above zero."""


AnyPanel = Panel | HeatMap | Forest


class Picture(NamedTuple):
    """A figure: a title, panels in a grid, and a caption."""

    name: str
    """File name without suffix."""
    title: str
    panels: tuple[AnyPanel, ...]
    columns: int = 2
    caption: str = ""
    panel_size: tuple[float, float] = (3.2, 2.6)
    """Width and height of one panel in print, in inches."""


_TUPLES = {"x_names", "y_names", "x_ticks", "y_range", "value_range"}
"""Fields that are tuples in Python and lists in JSON."""


def to_json(picture: Picture) -> dict[str, Any]:
    """Return a picture as plain JSON values."""
    return picture._asdict() | {"panels": [_panel_to_json(panel) for panel in picture.panels]}


def from_json(content: Mapping[str, Any]) -> Picture:
    """Return the picture that `to_json` wrote."""
    panels = tuple(_panel_from_json(panel) for panel in content["panels"])
    size = tuple(content["panel_size"])
    return Picture(**{**content, "panels": panels, "panel_size": size})


def _panel_to_json(panel: AnyPanel) -> dict[str, Any]:
    if isinstance(panel, Forest):
        groups = [
            group._asdict() | {"rows": [row._asdict() for row in group.rows]}
            for group in panel.groups
        ]
        return {"kind": "forest", **panel._asdict(), "groups": groups}
    if isinstance(panel, HeatMap):
        values = [finite(row) for row in panel.values]
        positions = {"x": finite(panel.x), "y": finite(panel.y)}
        return {"kind": "heat map", **panel._asdict(), "values": values, **positions}
    series = []
    for line in panel.series:
        columns = {"x": line.x, "y": line.y, "low": line.low, "high": line.high}
        given = {name: finite(column) for name, column in columns.items() if column is not None}
        series.append(line._asdict() | given)
    references = [reference._asdict() for reference in panel.references]
    return {"kind": "panel", **panel._asdict(), "series": series, "references": references}


def _panel_from_json(content: Mapping[str, Any]) -> AnyPanel:
    fields = dict(content)
    kind = fields.pop("kind")
    for name in _TUPLES & fields.keys():
        fields[name] = None if fields[name] is None else tuple(fields[name])
    if kind == "heat map":
        return HeatMap(**fields)
    if kind == "forest":
        fields["groups"] = tuple(
            Effects(**{**group, "rows": tuple(EffectRow(**row) for row in group["rows"])})
            for group in fields["groups"]
        )
        return Forest(**fields)
    fields["series"] = tuple(Series(**series) for series in fields["series"])
    fields["references"] = tuple(Reference(**reference) for reference in fields["references"])
    return Panel(**fields)


def finite(values: Iterable[Any]) -> list[float | None]:
    """Return values as plain floats; None replaces infinities and nan, which JSON cannot hold."""
    plain = [None if value is None else float(value) for value in values]
    return [value if value is not None and math.isfinite(value) else None for value in plain]


def positive(values: Iterable[Any]) -> list[float | None]:
    """Return values for a logarithmic axis: None replaces every value that is not positive."""
    return [value if value is not None and value > 0 else None for value in finite(values)]


def names_overlap(names: Sequence[str]) -> bool:
    """Whether tick labels would overlap if they were written horizontally."""
    return sum(len(line) + 1 for name in names for line in name.split("\n")[:1]) > 40


def shares_legend(picture: Picture) -> bool:
    """Whether all panels can share one legend.

    This requires that a label has the same colour, style and marker in all panels, and that no
    two labels look the same.
    """
    labels: dict[Any, str] = {}
    appearances: dict[str, Any] = {}
    for panel in picture.panels:
        for series in panel.series if isinstance(panel, Panel) else ():
            appearance = (series.colour, series.style, series.marker)
            if series.label and (
                labels.setdefault(appearance, series.label) != series.label
                or appearances.setdefault(series.label, appearance) != appearance
            ):
                return False
    return True


BLACK = 6
"""Index of the line colour of theory and failed runs: black, or white on a dark background."""


class Colours(NamedTuple):
    """The colours of one background, distinct for colour-blind readers."""

    lines: tuple[str, ...]
    """Colours of lines and markers; `Series.colour` is an index into them."""
    ink: str
    muted: str
    grid: str
    background: str
    ramp: tuple[tuple[float, str], ...]
    """Colours of a heat map, from low to high."""
    diverging: tuple[tuple[float, str], ...]
    """Colours of a heat map with `centre`, from the lowest to the highest value."""

    def line(self, index: int) -> str:
        """Return the line colour of an index; the palette repeats after its last colour."""
        return self.lines[index % len(self.lines)]


def _evenly_spaced(*colours: str) -> tuple[tuple[float, str], ...]:
    return tuple((index / (len(colours) - 1), colour) for index, colour in enumerate(colours))


LIGHT = Colours(
    lines=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    ink="#1F2328",
    muted="#656D76",
    grid="#E4E7EB",
    background="#FFFFFF",
    ramp=((0.0, "#F7FBFF"), (0.35, "#9ECAE1"), (0.7, "#2F7FBC"), (1.0, "#08306B")),
    diverging=_evenly_spaced("#2166AC", "#92C5DE", "#F7F7F7", "#F4A582", "#B2182B"),
)
"""Colours on a light background; the lines have the colours of Okabe and Ito."""
DARK = Colours(
    lines=("#4AA8E0", "#F28141", "#2BC99B", "#E39AC6", "#F5BD41", "#9AD4F7", "#F0F3F6"),
    ink="#E6EDF3",
    muted="#9BA4AE",
    grid="#2D333B",
    background="#14181D",
    ramp=((0.0, "#12202E"), (0.35, "#1F5B8C"), (0.7, "#5FAEDD"), (1.0, "#E3F3FF")),
    diverging=_evenly_spaced("#6CB6F0", "#2B6EA6", "#20262D", "#A8523A", "#FF9B7A"),
)
"""Colours on a dark background; the lines have lighter versions of the colours in `LIGHT`."""
