"""A picture as plain data: panels of series, drawn by matplotlib for paper and plotly for pages.

Every figure is described once, here; `figures/draw.py` and `figures/interactive.py` render it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from nclab.errors import NclabError

Numbers = Sequence[float | None]
Scale = Literal["linear", "log", "loglog"]
"""loglog: the values are log t and are drawn on a log axis, the time axis of ji2022."""
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
    x_ticks: tuple[float, ...] = ()
    """Where x is labelled; empty lets the renderer choose."""
    x_names: tuple[str, ...] = ()
    """What stands there instead of the numbers, one for each of `x_ticks`."""
    bare: bool = False
    """A drawing: both axes in the same units, thin lines, no frame, no grid, no numbers."""


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
    """Places of the columns on a continuous axis; empty for named or numbered columns."""
    y: Numbers = ()
    centre: float | None = None
    """Colours part here, and each side has its own scale; None for one scale."""
    value_label: str = ""


class EffectRow(NamedTuple):
    """One row of a forest plot."""

    name: str
    estimate: float
    low: float | None
    """None where there is no interval."""
    high: float | None
    colour: int = 0
    hollow: bool = False
    """Beside its neighbour above: the same quantity, from other data."""


class Effects(NamedTuple):
    """Rows of one unit, drawn on one scale, beside their margin."""

    title: str
    margin: float
    rows: tuple[EffectRow, ...]


class Forest(NamedTuple):
    """Effects with their intervals on both sides of zero, every group on its own scale."""

    title: str
    groups: tuple[Effects, ...]
    left: str = ""
    """What an effect below zero means."""
    right: str = ""


AnyPanel = Panel | HeatMap | Forest


class Picture(NamedTuple):
    """A figure: panels in rows of `columns`, a title and what a reader should see in it."""

    name: str
    """File name without suffix."""
    title: str
    panels: tuple[AnyPanel, ...]
    columns: int = 2
    caption: str = ""
    panel_size: tuple[float, float] = (3.2, 2.6)
    """Inches of one panel on paper."""


TUPLES = {"x_names", "y_names", "x_ticks", "y_range", "value_range"}
"""Fields that JSON turns into lists."""
HUGE = 1e300
"""No number of a picture is larger."""


def to_json(picture: Picture) -> dict[str, Any]:
    """A picture as plain JSON values.

    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, None]),))
    >>> from_json(to_json(Picture("loss", "Loss", (panel,)))).panels[0].series[0].y
    [2.0, None]
    """
    return picture._asdict() | {"panels": [_panel_to_json(panel) for panel in picture.panels]}


def from_json(content: Mapping[str, Any]) -> Picture:
    """The picture that `to_json` wrote; raises NclabError where it is none or cannot be drawn.

    >>> short = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0]),))
    >>> from_json(to_json(Picture("p", "", (short,))))
    Traceback (most recent call last):
    nclab.errors.NclabError: it cannot be drawn: in panel 1 the series 'run' has uneven columns
    """
    try:
        panels = tuple(_panel_from_json(panel) for panel in content["panels"])
        size = tuple(content["panel_size"])
        picture = Picture(**{**content, "panels": panels, "panel_size": size})
    except (KeyError, TypeError, ValueError) as error:
        raise NclabError(
            f"Expected a picture as nclab writes it, got one that does not fit: {error}. "
            "Make the figures anew."
        ) from error
    if wrong := _misfit(picture):
        raise NclabError(f"it cannot be drawn: {wrong}")
    return picture


def _panel_to_json(panel: AnyPanel) -> dict[str, Any]:
    if isinstance(panel, Forest):
        groups = [
            group._asdict() | {"rows": [row._asdict() for row in group.rows]}
            for group in panel.groups
        ]
        return {"kind": "forest", **panel._asdict(), "groups": groups}
    if isinstance(panel, HeatMap):
        values = [finite(row) for row in panel.values]
        places = {"x": finite(panel.x), "y": finite(panel.y)}
        return {"kind": "heat map", **panel._asdict(), "values": values, **places}
    series = [
        one._asdict()
        | {n: finite(v) for n in ("x", "y", "low", "high") if (v := getattr(one, n)) is not None}
        for one in panel.series
    ]
    references = [one._asdict() for one in panel.references]
    return {"kind": "panel", **panel._asdict(), "series": series, "references": references}


def _panel_from_json(content: Mapping[str, Any]) -> AnyPanel:
    rest = dict(content)
    kind = rest.pop("kind")
    for name in TUPLES & rest.keys():
        rest[name] = None if rest[name] is None else tuple(rest[name])
    if kind == "heat map":
        return HeatMap(**rest)
    if kind == "forest":
        rest["groups"] = tuple(
            Effects(**{**group, "rows": tuple(EffectRow(**row) for row in group["rows"])})
            for group in rest["groups"]
        )
        return Forest(**rest)
    rest["series"] = tuple(Series(**one) for one in rest["series"])
    rest["references"] = tuple(Reference(**one) for one in rest["references"])
    return Panel(**rest)


def _misfit(picture: Picture) -> str:
    """What no renderer could draw, empty if there is nothing."""
    if wrong := _wrong_field(picture, "the picture"):
        return wrong
    if not picture.panels or picture.columns < 1:
        return "it has no panels or no columns"
    for place, panel in enumerate(picture.panels, start=1):
        wrong = _wrong_field(panel, "it")
        if not wrong and isinstance(panel, Panel):
            wrong = _wrong_panel(panel)
        elif not wrong and isinstance(panel, HeatMap):
            across, down = {len(row) for row in panel.values}, len(panel.values)
            fits = {len(names) for names in (panel.x_names, panel.x)} <= across | {0}
            fits &= {len(names) for names in (panel.y_names, panel.y)} <= {down, 0}
            wrong = "" if len(across) == 1 and across != {0} and fits else "the matrix is uneven"
        elif not wrong and isinstance(panel, Forest):
            wrong = _wrong_forest(panel)
        if wrong:
            return f"in panel {place} {wrong}"
    return ""


def _wrong_panel(panel: Panel) -> str:
    for one in panel.series:
        if wrong := _wrong_field(one, f"the series {one.label!r}"):
            return wrong
        columns = (one.x, one.y, one.low, one.high)
        if len({len(column) for column in columns if column is not None}) > 1:
            return f"the series {one.label!r} has uneven columns"
    for reference in panel.references:
        if wrong := _wrong_field(reference, f"the reference {reference.label!r}"):
            return wrong
    x = [*panel.x_ticks, *(one.x for one in panel.references if one.x is not None)]
    y = [*(panel.y_range or ()), *(one.y for one in panel.references if one.y is not None)]
    for name, scale, places in (("x", panel.x_scale, x), ("y", panel.y_scale, y)):
        if scale != "linear" and any(place <= 0 for place in places):
            return f"{name} is logarithmic and has places that are not positive"
    if panel.x_names and len(panel.x_names) != len(panel.x_ticks):
        return "there are not as many names of ticks as ticks"
    return ""


def _wrong_forest(panel: Forest) -> str:
    for group in panel.groups:
        for one in (group, *group.rows):
            if wrong := _wrong_field(one, f"{getattr(one, 'name', group.title)!r}"):
                return wrong
    return "" if any(group.rows for group in panel.groups) else "there are no effects"


def _wrong_field(one: Any, what: str) -> str:
    """The first field of a part of a picture whose value is not of the field's type."""
    for name, kind in get_type_hints(type(one)).items():
        if not _fits(getattr(one, name), kind):
            return f"{what} has a wrong {name}"
    return ""


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that was JSON is of an annotated type; parts are looked into on their own."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple and Ellipsis not in inner:
        return isinstance(value, tuple) and [*map(_fits, value, inner)] == [True] * len(inner)
    if origin is not None:
        return isinstance(value, list | tuple) and all(_fits(one, inner[0]) for one in value)
    if kind is float:
        return type(value) in (int, float) and -HUGE <= value <= HUGE
    return type(value) is kind if kind in (int, str, bool, NoneType) else isinstance(value, kind)


def turned(names: Sequence[str]) -> bool:
    """Whether names below an axis would touch each other if they were not turned.

    >>> turned(["T-shirt", "trouser", "pullover", "sneaker", "sandal", "boot"])
    True
    """
    return sum(len(line) + 1 for name in names for line in name.split("\n")[:1]) > 40


def finite(values: Iterable[Any]) -> list[float | None]:
    """Plain floats; what is not finite has no place in JSON and is nothing to draw."""
    plain = [None if value is None else float(value) for value in values]
    return [value if value is not None and math.isfinite(value) else None for value in plain]
