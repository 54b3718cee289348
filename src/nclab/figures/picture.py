"""Figures as plain data, without a plotting library.

A figure is described once, as a `Picture`. `matplotlib_renderer` draws it for print,
`plotly_renderer` for web pages, and `to_json` stores it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from nclab.errors import NclabError

Numbers = Sequence[float | None]
Scale = Literal["linear", "log", "loglog"]
"""Scale of an axis; "loglog" shows values log t on a logarithmic axis, as ji2022 does."""
Style = Literal["solid", "dashed", "dotted", "none"]
Marker = Literal["none", "filled", "hollow", "cross"]


class Series(NamedTuple):
    """One line, cloud of points or band."""

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
    """Value where the colours change sides, with one scale for each side; None for one scale."""
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
    """Whether the row repeats the quantity of the row above with other data."""


class Effects(NamedTuple):
    """Rows that share a unit, a scale and a margin."""

    title: str
    margin: float
    rows: tuple[EffectRow, ...]


class Forest(NamedTuple):
    """A forest plot: effects with their intervals around zero, one scale for each group."""

    title: str
    groups: tuple[Effects, ...]
    left: str = ""
    """Meaning of an effect below zero."""
    right: str = ""
    """Meaning of an effect above zero."""


AnyPanel = Panel | HeatMap | Forest


class Picture(NamedTuple):
    """A figure: a title, panels in rows of `columns`, and a caption."""

    name: str
    """File name without suffix."""
    title: str
    panels: tuple[AnyPanel, ...]
    columns: int = 2
    caption: str = ""
    panel_size: tuple[float, float] = (3.2, 2.6)
    """Width and height of one panel in print, in inches."""


_TUPLES = {"x_names", "y_names", "x_ticks", "y_range", "value_range"}
"""Fields that JSON turns into lists."""
_LARGEST = 1e300
"""Largest absolute value of a number in a picture."""


def to_json(picture: Picture) -> dict[str, Any]:
    """Return a picture as plain JSON values.

    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, None]),))
    >>> from_json(to_json(Picture("loss", "Loss", (panel,)))).panels[0].series[0].y
    [2.0, None]
    """
    return picture._asdict() | {"panels": [_panel_to_json(panel) for panel in picture.panels]}


def from_json(content: Mapping[str, Any]) -> Picture:
    """Return the picture that `to_json` wrote; raise NclabError if it cannot be drawn.

    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0]),))
    >>> from_json(to_json(Picture("p", "", (panel,))))
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected a picture that nclab wrote, got a damaged one:
    panels[0].series[0] has columns of different lengths. Draw the figures again.
    """
    try:
        panels = tuple(_panel_from_json(panel) for panel in content["panels"])
        size = tuple(content["panel_size"])
        picture = Picture(**{**content, "panels": panels, "panel_size": size})
        _check_fields(picture, "the picture")
        _check_panels(picture)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else error
        raise NclabError(
            f"Expected a picture that nclab wrote, got a damaged one: {reason}. "
            "Draw the figures again."
        ) from error
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


def _check_fields(part: Any, where: str) -> None:
    """Raise ValueError if a field of a picture, or of a part of it, has a value of a wrong type."""
    for name, annotation in get_type_hints(type(part)).items():
        value = getattr(part, name)
        if not _has_type(value, annotation):
            raise ValueError(f"{where} has a wrong value for {name!r}")
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if hasattr(item, "_fields"):
                path = f"{name}[{index}]"
                _check_fields(item, path if isinstance(part, Picture) else f"{where}.{path}")


def _has_type(value: Any, annotation: Any) -> bool:
    """Return whether a value read from JSON matches a type annotation of a picture's field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return any(_has_type(value, argument) for argument in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple and Ellipsis not in arguments:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(_has_type, value, arguments))
        )
    if origin is not None:
        return isinstance(value, list | tuple) and all(_has_type(v, arguments[0]) for v in value)
    if annotation is float:
        return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST
    if annotation in (int, str, bool, NoneType):
        return type(value) is annotation
    return isinstance(value, annotation)


def _check_panels(picture: Picture) -> None:
    """Raise ValueError if the panels hold numbers that no renderer can draw."""
    if not picture.panels or picture.columns < 1:
        raise ValueError("the picture has no panels or no columns")
    for index, panel in enumerate(picture.panels):
        where = f"panels[{index}]"
        if isinstance(panel, Panel):
            _check_axes(panel, where)
        elif isinstance(panel, Forest):
            if not any(group.rows for group in panel.groups):
                raise ValueError(f"{where} has no effects")
        else:
            rows, lengths = len(panel.values), {len(row) for row in panel.values}
            fits = {len(panel.x_names), len(panel.x)} <= lengths | {0}
            fits &= {len(panel.y_names), len(panel.y)} <= {rows, 0}
            if len(lengths) != 1 or lengths == {0} or not fits:
                raise ValueError(f"{where} has an uneven matrix")


def _check_axes(panel: Panel, where: str) -> None:
    """Raise ValueError if columns differ in length or a logarithmic axis has a value <= 0."""
    for index, series in enumerate(panel.series):
        columns = (series.x, series.y, series.low, series.high)
        if len({len(column) for column in columns if column is not None}) > 1:
            raise ValueError(f"{where}.series[{index}] has columns of different lengths")
    x = [*panel.x_ticks, *(line.x for line in panel.references if line.x is not None)]
    y = [*(panel.y_range or ()), *(line.y for line in panel.references if line.y is not None)]
    for axis, scale, values in (("x", panel.x_scale, x), ("y", panel.y_scale, y)):
        if scale != "linear" and any(value <= 0 for value in values):
            raise ValueError(f"{where} has a logarithmic {axis} axis and a value <= 0 on it")
    if panel.x_names and len(panel.x_names) != len(panel.x_ticks):
        raise ValueError(f"{where} has {len(panel.x_ticks)} ticks and {len(panel.x_names)} names")


def finite(values: Iterable[Any]) -> list[float | None]:
    """Return values as plain floats; None replaces infinities and nan, which JSON cannot hold."""
    plain = [None if value is None else float(value) for value in values]
    return [value if value is not None and math.isfinite(value) else None for value in plain]


def positive(values: Iterable[Any]) -> list[float | None]:
    """Return values for a logarithmic axis: None replaces every value that is not positive.

    >>> positive([2.0, 0.0, None])
    [2.0, None, None]
    """
    return [value if value is not None and value > 0 else None for value in finite(values)]


def names_overlap(names: Sequence[str]) -> bool:
    """Return whether tick labels would overlap if they were written horizontally.

    >>> names_overlap(["T-shirt", "trouser", "pullover", "sneaker", "sandal", "boot"])
    True
    """
    return sum(len(line) + 1 for name in names for line in name.split("\n")[:1]) > 40


def shares_legend(picture: Picture) -> bool:
    """Return whether all panels can share one legend.

    They can if every label has one colour, style and marker in all panels, and no two labels
    have the same ones.

    >>> panels = [Panel("", "", "", (Series(label, [1], [1]),)) for label in ("loss", "margin")]
    >>> shares_legend(Picture("p", "", (panels[0],) * 2)), shares_legend(Picture("p", "", panels))
    (True, False)
    """
    labels: dict[Any, str] = {}
    appearances: dict[str, Any] = {}
    for panel in picture.panels:
        for series in panel.series if isinstance(panel, Panel) else ():
            appearance = (series.colour, series.style, series.marker)
            if not series.label:
                continue
            if labels.setdefault(appearance, series.label) != series.label:
                return False
            if appearances.setdefault(series.label, appearance) != appearance:
                return False
    return True
