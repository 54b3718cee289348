"""Pictures on pages: a Picture as a plotly figure, which shows its numbers under the pointer.

`spec` needs nothing but Python; pages draw it with plotly's script. Nothing is sent anywhere.
"""

import math
from collections.abc import Sequence
from typing import Any

from nclab.errors import MissingExtra
from nclab.figures.forest_rows import HEIGHT, HERE, ZERO, Row, laid_out
from nclab.figures.legend import shares_legend
from nclab.figures.palette import DARK, LIGHT, Colours
from nclab.figures.picture import (
    AnyPanel,
    Forest,
    HeatMap,
    Numbers,
    Panel,
    Picture,
    Reference,
    Scale,
    Series,
    finite,
    turned,
)

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "none": "solid"}
FOREST_PIXELS = 560
"""Below this width words and numbers of a forest plot would touch."""
SYMBOLS = {"filled": "circle", "hollow": "circle-open", "cross": "x-thin", "none": "circle"}
PIXELS = 110
"""Pixels of an inch of paper."""
UNDER, FRAME = 52, 155
"""Pixels from an axis to the legend below it, and of the margins above and below."""
ENTRY = 20
"""Pixels of a line of a legend."""
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}
"""For `plotly.newPlot` and `Figure.show(config=CONFIG)`: no button leads to a server."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def figure(picture: Picture, dark: bool = False) -> Any:
    """A plotly Figure of a picture."""
    try:
        import plotly.graph_objects as plotly
    except ImportError as error:
        raise MissingExtra("This figure", package="plotly", extra="plot") from error
    return plotly.Figure(spec(picture, dark))


def spec(picture: Picture, dark: bool = False) -> dict[str, Any]:
    """The same figure as plain JSON values, `data` and `layout`.

    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, 1.0]),))
    >>> drawn = spec(Picture("loss", "Loss", (panel,)))
    >>> drawn["data"][0]["y"], drawn["layout"]["yaxis"]["title"]["text"]
    ([2.0, 1.0], 'nats')
    """
    colours = DARK if dark else LIGHT
    shared = shares_legend(picture)
    lines = 0 if shared else max(_entries(panel) for panel in picture.panels)
    boxes, height = _boxes(picture, lines)
    layout: dict[str, Any] = _frame(picture, colours, height, _foot(lines))
    inside = height - 60 - _foot(lines)
    data: list[dict[str, Any]] = []
    shown: set[str] = set()
    for place, (panel, box) in enumerate(zip(picture.panels, boxes, strict=True)):
        suffix = "" if place == 0 else str(place + 1)
        if isinstance(panel, Forest):
            data += _forest(layout, panel, box, suffix, colours)
            continue
        x_axis, y_axis = _axes(panel, box, suffix, colours)
        layout[f"xaxis{suffix}"], layout[f"yaxis{suffix}"] = x_axis, y_axis
        layout["annotations"].append(_panel_title(panel.title, box))
        home = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        if isinstance(panel, HeatMap):
            data += [trace | home for trace in _heat_map(panel, colours, box)]
            continue
        legend = "legend" if shared else f"legend{suffix}"
        # Beside each other, entries of one panel would run into the legend of the next.
        way, left, low = ("h", 0, 0.0) if shared else ("v", box[0], box[2])
        at = {"x": left, "y": low - UNDER / inside, "xanchor": "left", "yanchor": "top"}
        # Every entry is a group of its own, and groups would be half a line apart.
        layout[legend] = {"orientation": way, "tracegroupgap": 0, **at}
        for one in panel.series:
            key = _plain(one.label if shared else f"{place}/{one.label}")
            first = bool(one.label) and key not in shown
            shown.add(key)
            extra = home | {"legendgroup": key, "legend": legend}
            thin = 1.0 if panel.bare else 2.0
            data += [trace | extra for trace in _traces(one, colours, show=first, width=thin)]
        for reference in panel.references:
            _add_reference(layout, reference, panel, suffix, colours)
    layout["showlegend"] = any(trace.get("showlegend") for trace in data)
    return {"data": data, "layout": layout}


def _entries(panel: AnyPanel) -> int:
    """Lines of the panel's own legend."""
    labels = {one.label for one in panel.series} if isinstance(panel, Panel) else set()
    return len(labels - {""})


def _foot(lines: int) -> int:
    """Pixels below the last axes, with room for legends of so many lines."""
    return max(FRAME - 60, UNDER + 5 + ENTRY * lines)


def _frame(picture: Picture, colours: Colours, height: float, foot: int) -> dict[str, Any]:
    return {
        "title": {"text": _plain(picture.title), "x": 0, "xref": "paper", "font": {"size": 15}},
        "height": height,
        "font": {"family": FONT, "size": 12, "color": colours.ink},
        "paper_bgcolor": colours.background,
        "plot_bgcolor": colours.background,
        "margin": {"l": 60, "r": 20, "t": 60, "b": foot},
        "hovermode": "closest",
        "annotations": [],
        "shapes": [],
    }


def _boxes(picture: Picture, lines: int) -> tuple[list[tuple[float, float, float, float]], float]:
    """Left, right, bottom and top of every panel in the figure, and the figure's pixels."""
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    tall = picture.panel_size[1] * PIXELS - 70
    gap = UNDER + 45 + ENTRY * lines
    inside = rows * tall + (rows - 1) * gap
    wide = 0.84 if columns > 1 else 1.0
    boxes = []
    for place in range(len(picture.panels)):
        row, column = divmod(place, columns)
        left = column / columns + (1 - wide) / columns * column / max(1, columns - 1)
        top = 1 - row * (tall + gap) / inside
        boxes.append((left, left + wide / columns, max(0.0, top - tall / inside), top))
    return boxes, inside + 60 + _foot(lines)


def _axes(
    panel: Panel | HeatMap, box: Sequence[float], suffix: str, colours: Colours
) -> tuple[dict[str, Any], dict[str, Any]]:
    common: dict[str, Any] = {
        "gridcolor": colours.grid,
        "linecolor": colours.muted,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": colours.grid,
        "automargin": True,
    }
    x = common | {"domain": list(box[:2]), "anchor": f"y{suffix}"}
    y = common | {"domain": list(box[2:]), "anchor": f"x{suffix}"}
    x["title"] = {"text": _plain(panel.x_label), "standoff": 6}
    y["title"] = {"text": _plain(panel.y_label), "standoff": 6}
    if isinstance(panel, HeatMap):
        bare = {"showgrid": False, "showline": False, "ticks": ""}
        x |= bare | ({} if len(panel.x) else {"type": "category"})
        y |= bare | ({} if len(panel.y) else {"type": "category", "autorange": "reversed"})
        y |= {"scaleanchor": f"x{suffix}", "constrain": "domain"}
        x |= {"constrain": "domain"}
        return x, y
    x |= _scale(panel.x_scale, [value for one in panel.series for value in one.x])
    y |= _scale(panel.y_scale, [value for one in panel.series for value in one.y])
    if panel.x_scale == "loglog" and not panel.x_label:
        x["title"]["text"] = "log t"
    if panel.x_ticks:
        words = [_plain(name).replace("\n", "<br>") for name in panel.x_names]
        words = words or _words_apart(panel.x_ticks, logged=panel.x_scale != "linear")
        x |= {"tickvals": list(panel.x_ticks), "ticktext": words, "tickangle": 0}
        if turned(panel.x_names):  # then the axis's own name would be pushed into the legend
            x |= {"tickangle": -45, "title": {"text": ""}}
    if panel.bare:
        nothing = {"showgrid": False, "showline": False, "ticks": "", "showticklabels": False}
        x |= nothing | {"showticklabels": bool(panel.x_names)}
        y |= nothing | {"scaleanchor": f"x{suffix}", "constrain": "range"}
    if panel.y_range is not None:
        logged = panel.y_scale != "linear"
        y["range"] = [math.log10(end) if logged else end for end in panel.y_range]
    return x, y


def _words_apart(ticks: Sequence[float], *, logged: bool) -> list[str]:
    """The numbers of ticks, short; of two that would touch only the first.

    >>> _words_apart((5e-4, 1e-3, 3e-3, 5e-3), logged=True)
    ['5e-4', '1e-3', '3e-3', '']
    """
    places = [math.log(tick) if logged else tick for tick in ticks]
    near = 0.25 * (max(places) - min(places)) - 1e-9
    words: list[str] = []
    last = -math.inf
    for tick, place in zip(ticks, places, strict=True):
        mantissa, power = f"{tick:e}".split("e")
        text = f"{float(mantissa):g}e{int(power)}" if 0 < tick < 0.01 else f"{tick:g}"
        words.append(text if place - last >= near else "")
        last = place if words[-1] else last
    return words


def _scale(scale: Scale, values: Numbers) -> dict[str, Any]:
    if scale == "linear":
        return {"type": "linear"}
    known = [value for value in finite(values) if value is not None and value > 0]
    decades = math.log10(max(known)) - math.log10(min(known)) if known else 0.0
    ticks = {"dtick": max(1, round(decades / 5))} if decades >= 1.5 else {"nticks": 6}
    return {"type": "log", "exponentformat": "power", **ticks}


def _traces(
    one: Series, colours: Colours, *, show: bool, width: float = 2.0
) -> list[dict[str, Any]]:
    colour = colours.line(one.colour)
    lines, marked = one.style != "none", one.marker != "none"
    mode = "+".join(["lines"] * lines + ["markers"] * marked) or "markers"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": _plain(one.label),
        "showlegend": show,
        "x": finite(one.x),
        "y": finite(one.y),
        "line": {"color": colour, "width": width, "dash": DASHES[one.style]},
        "marker": {
            "color": colour,
            "size": 7,
            "symbol": SYMBOLS[one.marker],
            "line": {"color": colour, "width": 1.6 if one.marker in ("hollow", "cross") else 0},
        },
        "connectgaps": False,
    }
    if one.low is None or one.high is None:
        return [trace]
    if not lines:
        low, y, high = finite(one.low), finite(one.y), finite(one.high)
        above = [_gap(top, middle) for top, middle in zip(high, y, strict=True)]
        below = [_gap(middle, foot) for middle, foot in zip(y, low, strict=True)]
        trace["error_y"] = {
            "type": "data",
            "array": above,
            "arrayminus": below,
            "thickness": 1.2,
            "width": 3,
            "color": colour,
        }
        return [trace]
    edges = _band(one, colour)
    if all(value is None for value in one.y):  # an area alone
        edges[1] |= {"name": trace["name"], "showlegend": show}
        return edges
    return [*edges, trace]


def _band(one: Series, colour: str) -> list[dict[str, Any]]:
    """Edges without ink; the upper one fills down to the lower."""
    edge: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0, "color": colour},
        "showlegend": False,
        "hoverinfo": "skip",
        "x": finite(one.x),
    }
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    fill = f"rgba({red},{green},{blue},0.18)"
    return [
        edge | {"y": finite(one.low or ())},
        edge | {"y": finite(one.high or ()), "fill": "tonexty", "fillcolor": fill},
    ]


def _heat_map(panel: HeatMap, colours: Colours, box: Sequence[float]) -> list[dict[str, Any]]:
    """The colours and, on continuous axes, the line where the values are those of the centre."""
    values = [finite(row) for row in panel.values]
    known = [value for row in values for value in row if value is not None]
    low, high = panel.value_range or (min(known, default=0.0), max(known, default=1.0))
    stops = [list(stop) for stop in (colours.ramp if panel.centre is None else colours.diverging)]
    if panel.centre is not None and low < panel.centre < high:
        middle = (panel.centre - low) / (high - low)
        stops = [[_bend(place, middle), colour] for place, colour in stops]  # type: ignore[arg-type]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": values,
        "zmin": low,
        "zmax": high,
        "colorscale": stops,
        "showlegend": False,
        "xgap": 0 if len(panel.x) else 1,
        "ygap": 0 if len(panel.x) else 1,
        "colorbar": {
            "len": box[3] - box[2],
            "y": (box[2] + box[3]) / 2,
            "x": box[1],
            "thickness": 10,
            "outlinewidth": 0,
            "title": {"text": _plain(panel.value_label), "side": "right"},
        },
    }
    trace["x"] = finite(panel.x) if len(panel.x) else _names(panel.x_names, values[0])
    trace["y"] = finite(panel.y) if len(panel.y) else _names(panel.y_names, values)
    if not len(panel.x):
        return [trace]
    trace["zsmooth"] = "best"
    if panel.centre is None:
        return [trace]
    level = {
        "type": "contour",
        **{name: trace[name] for name in ("x", "y", "z")},
        "autocontour": False,
        "contours": {"start": panel.centre, "end": panel.centre, "coloring": "lines"},
        "colorscale": [[0, colours.ink], [1, colours.ink]],
        "line": {"width": 1.5},
        "showscale": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return [trace, level]


def _forest(
    layout: dict[str, Any], panel: Forest, box: Sequence[float], suffix: str, colours: Colours
) -> list[dict[str, Any]]:
    """Axes, margins and words into the layout; the intervals themselves."""
    rows, bands, depth = laid_out(panel)
    layout["meta"] = {"least": FOREST_PIXELS}
    bare = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "fixedrange": True,
    }
    layout[f"xaxis{suffix}"] = bare | {
        "domain": list(box[:2]),
        "anchor": f"y{suffix}",
        "range": [-1.04, 1.04],
        "tickvals": [],
    }
    layout[f"yaxis{suffix}"] = bare | {
        "domain": list(box[2:]),
        "anchor": f"x{suffix}",
        "range": [depth + 0.6, -0.2],
        "tickvals": [],
    }
    layout["annotations"].append(_panel_title(panel.title, box))
    home = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    for band in bands:
        across = {"x0": -band.reach, "x1": band.reach}
        down = {"y0": band.middle - band.tall / 2, "y1": band.middle + band.tall / 2}
        fill = {"fillcolor": colours.grid, "line": {"width": 0}, "layer": "below"}
        layout["shapes"].append({"type": "rect", **home, **across, **down, **fill})
    words: dict[str, Any] = {**home, "showarrow": False, "yanchor": "middle"}
    for x, end, text in ((-1.02, "left", panel.left), (1.02, "right", panel.right)):
        foot: dict[str, Any] = {"x": x, "xanchor": end, "y": depth + 0.6, "yanchor": "top"}
        font = {"size": 11, "color": colours.muted}
        layout["annotations"].append(words | foot | {"font": font, "text": _plain(text)})
    for row in rows:
        text = _plain(row.words) if row.effect is not None else f"<b>{_plain(row.words)}</b>"
        size, ink = (12, colours.ink) if row.effect is None else (11, colours.muted)
        look = {"font": {"size": size, "color": ink}, "y": row.at - HEIGHT / 2}
        if row.words:
            layout["annotations"] += [
                words | look | {"x": -1.02, "xanchor": "left", "text": text},
                words | look | {"x": 1.02, "xanchor": "right", "text": _plain(row.numbers)},
            ]
        if row.effect is not None:
            down = {"x0": 0, "x1": 0, "y0": row.at - ZERO[0], "y1": row.at + ZERO[1]}
            thin = {"type": "line", "layer": "below", "line": {"color": colours.muted, "width": 1}}
            layout["shapes"].append({**thin, **home, **down})
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    return [_interval(row, colours) | axes for row in rows if row.effect is not None]


def _interval(row: Row, colours: Colours) -> dict[str, Any]:
    assert row.effect is not None
    colour = colours.line(row.effect.colour)
    symbol = SYMBOLS["hollow" if row.effect.hollow else "filled"]
    name = f"{HERE}, {row.effect.name}" if row.effect.hollow else row.effect.name
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.low, row.low if row.middle is None else row.middle, row.high],
        "y": [row.at] * 3,
        "line": {"color": colour, "width": 2},
        "marker": {
            "color": colour,
            "size": [9 * row.cut[0], 0 if row.middle is None else 8, 9 * row.cut[1]],
            "symbol": ["triangle-left", symbol, "triangle-right"],
            "opacity": 1,
        },
        "hovertemplate": f"{_plain(name)}<br>{_plain(row.numbers)}<extra></extra>",
        "showlegend": False,
    }


def _bend(place: float, middle: float) -> float:
    """A stop of a scale centred on a half, moved so that the half lies at `middle`."""
    return place * 2 * middle if place <= 0.5 else middle + (place - 0.5) * 2 * (1 - middle)


def _names(names: Sequence[str], along: Sequence[Any]) -> list[str]:
    return [_plain(name) for name in names] or [str(place) for place in range(len(along))]


def _panel_title(title: str, box: Sequence[float]) -> dict[str, Any]:
    return {
        "text": _plain(title),
        "x": box[0],
        "y": box[3],
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 4,
        "showarrow": False,
        "font": {"size": 13},
    }


def _add_reference(
    layout: dict[str, Any], reference: Reference, panel: Panel, suffix: str, colours: Colours
) -> None:
    """A dashed line across the panel with its name at the end."""
    line = {"color": colours.muted, "width": 1.2, "dash": "dash"}
    words: dict[str, Any] = {
        "text": _plain(reference.label),
        "showarrow": False,
        "font": {"size": 10, "color": colours.muted},
    }
    for along, across, at, scale, corner in (
        ("x", "y", reference.y, panel.y_scale, ("right", "bottom")),
        ("y", "x", reference.x, panel.x_scale, ("left", "top")),
    ):
        if at is None:
            continue
        here = {f"{along}ref": f"{along}{suffix} domain", f"{across}ref": f"{across}{suffix}"}
        edge = {f"{along}0": 0, f"{along}1": 1, f"{across}0": at, f"{across}1": at}
        end = {along: 1, across: math.log10(at) if scale != "linear" else at}
        anchors = dict(zip(("xanchor", "yanchor"), corner, strict=True))
        layout["shapes"].append({"type": "line", **edge, **here, "line": line})
        layout["annotations"].append(words | here | end | anchors)


def _plain(text: str) -> str:
    """Text as itself: plotly reads a little HTML, and user text must not become any."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _gap(larger: float | None, smaller: float | None) -> float | None:
    return None if larger is None or smaller is None else larger - smaller
