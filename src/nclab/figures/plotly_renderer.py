"""Pictures drawn by plotly on web pages, which show the numbers under the mouse pointer.

`plotly_spec` needs only Python; a page draws the result with plotly's script, without any server.
"""

import math
from collections.abc import Mapping
from typing import Any

from nclab.errors import MissingExtra
from nclab.figures.forest_layout import (
    HOLLOW_LABEL,
    TEXT_ABOVE,
    ZERO_LINE,
    ForestRow,
    lay_out_forest,
)
from nclab.figures.picture import (
    DARK,
    LIGHT,
    Colours,
    Forest,
    HeatMap,
    Numbers,
    Panel,
    Picture,
    Reference,
    Scale,
    Series,
    finite,
    names_overlap,
    shares_legend,
)

PLOTLY_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}
"""Options for `plotly.newPlot` and `Figure.show`; no button sends data to a server."""
_DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "none": "solid"}
_SYMBOLS = {"filled": "circle", "hollow": "circle-open", "cross": "x-thin", "none": "circle"}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_FOREST_WIDTH = 560
"""Smallest width of a forest plot in pixels; if it is narrower, text and numbers overlap."""
_PIXELS_PER_INCH = 110
_TOP, _LEGEND_GAP, _LEGEND_LINE = 60, 52, 20
"""Pixels: space above the panels, space between axis and legend, height of a legend line."""

Box = tuple[float, float, float, float]
"""Left, right, bottom and top of a panel, as fractions of the figure."""


def plotly_figure(picture: Picture, dark: bool = False) -> Any:
    """Return a picture as a plotly `Figure`."""
    try:
        import plotly.graph_objects as plotly
    except ImportError as error:
        raise MissingExtra("This figure", package="plotly", extra="plot") from error
    return plotly.Figure(plotly_spec(picture, dark))


def plotly_spec(picture: Picture, dark: bool = False) -> dict[str, Any]:
    """Return a plotly figure as plain JSON values, `data` and `layout`."""
    colours = DARK if dark else LIGHT
    shared = shares_legend(picture)
    panels = [panel for panel in picture.panels if isinstance(panel, Panel)]
    entries = [len({series.label for series in panel.series} - {""}) for panel in panels]
    legend_lines = 0 if shared else max(entries, default=0)
    below = max(95, _LEGEND_GAP + 5 + _LEGEND_LINE * legend_lines)
    boxes, inside = _boxes(picture, legend_lines)
    layout: dict[str, Any] = {
        "title": {"text": _escape(picture.title), "x": 0, "xref": "paper", "font": {"size": 15}},
        "height": inside + _TOP + below,
        "font": {"family": _FONT, "size": 12, "color": colours.ink},
        "paper_bgcolor": colours.background,
        "plot_bgcolor": colours.background,
        "margin": {"l": 60, "r": 20, "t": _TOP, "b": below},
        "hovermode": "closest",
        "annotations": [],
        "shapes": [],
    }
    data: list[dict[str, Any]] = []
    shown: set[str] = set()
    for index, (panel, box) in enumerate(zip(picture.panels, boxes, strict=True)):
        suffix = "" if index == 0 else str(index + 1)
        corner = {"x": box[0], "y": box[3], "xref": "paper", "yref": "paper", "yshift": 4}
        corner |= {"xanchor": "left", "yanchor": "bottom"}
        layout["annotations"].append(_text(panel.title, 13, colours.ink, corner))
        if isinstance(panel, Forest):
            data += _forest(layout, panel, box, suffix, colours)
            continue
        x_axis, y_axis = _axes(panel, box, suffix, colours)
        layout[f"xaxis{suffix}"], layout[f"yaxis{suffix}"] = x_axis, y_axis
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        if isinstance(panel, HeatMap):
            data += [trace | axes for trace in _heat_map(panel, colours, box)]
            continue
        legend = "legend" if shared else f"legend{suffix}"
        # Entries side by side would overlap the legend of the next panel.
        orientation, left, bottom = ("h", 0, 0.0) if shared else ("v", box[0], box[2])
        layout[legend] = {
            "orientation": orientation,
            "tracegroupgap": 0,  # each entry is a group, and groups have a gap by default
            "x": left,
            "y": bottom - _LEGEND_GAP / inside,
            "xanchor": "left",
            "yanchor": "top",
        }
        for series in panel.series:
            key = _escape(series.label if shared else f"{index}/{series.label}")
            first = bool(series.label) and key not in shown
            shown.add(key)
            group = axes | {"legendgroup": key, "legend": legend}
            width = 1.0 if panel.bare else 2.0
            data += [trace | group for trace in _traces(series, colours, show=first, width=width)]
        for reference in panel.references:
            _add_reference(layout, reference, panel, suffix, colours)
    layout["showlegend"] = any(trace.get("showlegend") for trace in data)
    return {"data": data, "layout": layout}


def _boxes(picture: Picture, legend_lines: int) -> tuple[list[Box], float]:
    """Return the box of every panel, and the height of all panels with their gaps in pixels."""
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    height = picture.panel_size[1] * _PIXELS_PER_INCH - 70
    gap = _LEGEND_GAP + 45 + _LEGEND_LINE * legend_lines
    inside = rows * height + (rows - 1) * gap
    width = 0.84 if columns > 1 else 1.0
    boxes = []
    for index in range(len(picture.panels)):
        row, column = divmod(index, columns)
        left = column / columns + (1 - width) / columns * column / max(1, columns - 1)
        top = 1 - row * (height + gap) / inside
        boxes.append((left, left + width / columns, max(0.0, top - height / inside), top))
    return boxes, inside


def _axes(
    panel: Panel | HeatMap, box: Box, suffix: str, colours: Colours
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
    x["title"] = {"text": _escape(panel.x_label), "standoff": 6}
    y["title"] = {"text": _escape(panel.y_label), "standoff": 6}
    if isinstance(panel, Panel):
        _set_scales(x, y, panel, suffix)
        return x, y
    frameless = {"showgrid": False, "showline": False, "ticks": "", "constrain": "domain"}
    x |= frameless | ({} if len(panel.x) else {"type": "category"})
    y |= frameless | ({} if len(panel.y) else {"type": "category", "autorange": "reversed"})
    y |= {"scaleanchor": f"x{suffix}"}
    return x, y


def _set_scales(x: dict[str, Any], y: dict[str, Any], panel: Panel, suffix: str) -> None:
    """Set the scales, ticks and ranges of both axes of a panel."""
    x |= _scale(panel.x_scale, [value for series in panel.series for value in series.x])
    y |= _scale(panel.y_scale, [value for series in panel.series for value in series.y])
    if panel.x_scale == "loglog" and not panel.x_label:
        x["title"]["text"] = "log t"
    if panel.x_ticks:
        names = [_escape(name).replace("\n", "<br>") for name in panel.x_names]
        names = names or [f"{tick:g}" for tick in panel.x_ticks]
        x |= {"tickvals": list(panel.x_ticks), "ticktext": names}
        if names_overlap(panel.x_names):  # slanted names would push the axis title into the legend
            x |= {"tickangle": -45, "title": {"text": ""}}
    if panel.bare:
        hidden = {"showgrid": False, "showline": False, "ticks": "", "showticklabels": False}
        x |= hidden | {"showticklabels": bool(panel.x_names)}
        y |= hidden | {"scaleanchor": f"x{suffix}", "constrain": "range"}
    if panel.y_range is not None:
        logarithmic = panel.y_scale != "linear"
        y["range"] = [math.log10(end) if logarithmic else end for end in panel.y_range]


def _scale(scale: Scale, values: Numbers) -> dict[str, Any]:
    """Return type and tick settings of an axis; a logarithmic axis gets about six ticks."""
    if scale == "linear":
        return {"type": "linear"}
    positive = [value for value in finite(values) if value is not None and value > 0]
    decades = math.log10(max(positive)) - math.log10(min(positive)) if positive else 0.0
    ticks = {"dtick": max(1, round(decades / 5))} if decades >= 1.5 else {"nticks": 6}
    return {"type": "log", "exponentformat": "power", **ticks}


def _traces(
    series: Series, colours: Colours, *, show: bool, width: float = 2.0
) -> list[dict[str, Any]]:
    """Return the plotly traces of a series: line or points, with error bars or a band.

    `show` adds the series to the legend.
    """
    colour = colours.line(series.colour)
    lines, markers = series.style != "none", series.marker != "none"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "+".join(["lines"] * lines + ["markers"] * markers) or "markers",
        "name": _escape(series.label),
        "showlegend": show,
        "x": finite(series.x),
        "y": finite(series.y),
        "line": {"color": colour, "width": width, "dash": _DASHES[series.style]},
        "marker": {
            "color": colour,
            "size": 7,
            "symbol": _SYMBOLS[series.marker],
            "line": {"color": colour, "width": 1.6 if series.marker in ("hollow", "cross") else 0},
        },
        "connectgaps": False,
    }
    if series.low is None or series.high is None:
        return [trace]
    low, high = finite(series.low), finite(series.high)
    if not lines:
        trace["error_y"] = {
            "type": "data",
            "array": _differences(high, trace["y"]),
            "arrayminus": _differences(trace["y"], low),
            "thickness": 1.2,
            "width": 3,
            "color": colour,
        }
        return [trace]
    edge: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0, "color": colour},
        "showlegend": False,
        "hoverinfo": "skip",
        "x": trace["x"],
    }
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.18)"}
    lower, upper = edge | {"y": low}, edge | {"y": high} | fill
    if all(value is None for value in series.y):  # a band without a line
        return [lower, upper | {"name": trace["name"], "showlegend": show}]
    return [lower, upper, trace]


def _differences(larger: Numbers, smaller: Numbers) -> list[float | None]:
    pairs = zip(larger, smaller, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def _heat_map(panel: HeatMap, colours: Colours, box: Box) -> list[dict[str, Any]]:
    """Return the plotly traces of a heat map: the colours and the contour line at `centre`.

    Only heat maps with continuous axes and a `centre` have the line.
    """
    values = [finite(row) for row in panel.values]
    known = [value for row in values for value in row if value is not None]
    low, high = panel.value_range or (min(known, default=0.0), max(known, default=1.0))
    stops = [list(stop) for stop in (colours.ramp if panel.centre is None else colours.diverging)]
    if panel.centre is not None and low < panel.centre < high:
        middle = (panel.centre - low) / (high - low)
        stops = [[_move_stop(stop, middle), colour] for stop, colour in stops]  # type: ignore[arg-type]
    continuous = bool(len(panel.x))
    column_names = [_escape(name) for name in panel.x_names] or [*map(str, range(len(values[0])))]
    row_names = [_escape(name) for name in panel.y_names] or [*map(str, range(len(values)))]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": finite(panel.x) if continuous else column_names,
        "y": finite(panel.y) if len(panel.y) else row_names,
        "z": values,
        "zmin": low,
        "zmax": high,
        "colorscale": stops,
        "showlegend": False,
        "xgap": 0 if continuous else 1,
        "ygap": 0 if continuous else 1,
        "colorbar": {
            "len": box[3] - box[2],
            "y": (box[2] + box[3]) / 2,
            "x": box[1],
            "thickness": 10,
            "outlinewidth": 0,
            "title": {"text": _escape(panel.value_label), "side": "right"},
        },
    }
    if not continuous:
        return [trace]
    trace["zsmooth"] = "best"
    if panel.centre is None:
        return [trace]
    contour = {
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
    return [trace, contour]


def _move_stop(stop: float, middle: float) -> float:
    """Return the new position of a colour, so that the middle colour moves from 0.5 to `middle`."""
    return stop * 2 * middle if stop <= 0.5 else middle + (stop - 0.5) * 2 * (1 - middle)


def _forest(
    layout: dict[str, Any], panel: Forest, box: Box, suffix: str, colours: Colours
) -> list[dict[str, Any]]:
    """Add axes, margins and text of a forest plot to the layout; return traces of its intervals."""
    rows, bands, height = lay_out_forest(panel)
    layout["meta"] = {"least": _FOREST_WIDTH}
    hidden = {"showgrid": False, "zeroline": False, "showline": False, "ticks": ""}
    hidden |= {"fixedrange": True, "tickvals": []}
    x_axis = {"domain": list(box[:2]), "anchor": f"y{suffix}", "range": [-1.04, 1.04]}
    y_axis = {"domain": list(box[2:]), "anchor": f"x{suffix}", "range": [height + 0.6, -0.2]}
    layout[f"xaxis{suffix}"], layout[f"yaxis{suffix}"] = hidden | x_axis, hidden | y_axis
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    for band in bands:
        x = {"x0": -band.half_width, "x1": band.half_width}
        y = {"y0": band.centre - band.height / 2, "y1": band.centre + band.height / 2}
        fill = {"fillcolor": colours.grid, "line": {"width": 0}, "layer": "below"}
        layout["shapes"].append({"type": "rect", **axes, **x, **y, **fill})

    texts = layout["annotations"]
    sides = (("left", -1.02), ("right", 1.02))
    for (side, x_text), words in zip(sides, (panel.left, panel.right), strict=True):
        corner = axes | {"x": x_text, "xanchor": side, "y": height + 0.6, "yanchor": "top"}
        texts.append(_text(words, 11, colours.muted, corner))
    for row in rows:
        heading = row.effect is None
        size, ink = (12, colours.ink) if heading else (11, colours.muted)
        for (side, x_text), words in zip(sides, (row.label, row.numbers), strict=True):
            if row.label:
                corner = axes | {"x": x_text, "xanchor": side}
                corner |= {"y": row.y - TEXT_ABOVE, "yanchor": "middle"}
                texts.append(_text(words, size, ink, corner, bold=heading and side == "left"))
        if not heading:
            zero = {"x0": 0, "x1": 0, "y0": row.y - ZERO_LINE[0], "y1": row.y + ZERO_LINE[1]}
            line = {"type": "line", "layer": "below", "line": {"color": colours.muted, "width": 1}}
            layout["shapes"].append({**line, **axes, **zero})
    traces = [_interval(row, colours) for row in rows if row.effect is not None]
    return [trace | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"} for trace in traces]


def _interval(row: ForestRow, colours: Colours) -> dict[str, Any]:
    """Return the trace of one interval; an arrow marks an end beyond the edge of the plot."""
    assert row.effect is not None
    colour = colours.line(row.effect.colour)
    symbol = _SYMBOLS["hollow" if row.effect.hollow else "filled"]
    name = f"{HOLLOW_LABEL}, {row.effect.name}" if row.effect.hollow else row.effect.name
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.low, row.low if row.estimate is None else row.estimate, row.high],
        "y": [row.y] * 3,
        "line": {"color": colour, "width": 2},
        "marker": {
            "color": colour,
            "size": [9 * row.cut[0], 0 if row.estimate is None else 8, 9 * row.cut[1]],
            "symbol": ["triangle-left", symbol, "triangle-right"],
            "opacity": 1,
        },
        "hovertemplate": f"{_escape(name)}<br>{_escape(row.numbers)}<extra></extra>",
        "showlegend": False,
    }


def _text(
    text: str, size: int, colour: str, corner: Mapping[str, Any], *, bold: bool = False
) -> dict[str, Any]:
    """Return a text in a figure as a plotly annotation."""
    escaped = f"<b>{_escape(text)}</b>" if bold else _escape(text)
    return {"text": escaped, "showarrow": False, "font": {"size": size, "color": colour}, **corner}


def _add_reference(
    layout: dict[str, Any], reference: Reference, panel: Panel, suffix: str, colours: Colours
) -> None:
    """Add a reference to the layout: a dashed line across the panel with a label at its end."""
    line = {"color": colours.muted, "width": 1.2, "dash": "dash"}
    label = _text(reference.label, 10, colours.muted, {})
    for along, across, value, scale, corner in (
        ("x", "y", reference.y, panel.y_scale, ("right", "bottom")),
        ("y", "x", reference.x, panel.x_scale, ("left", "top")),
    ):
        if value is None:
            continue
        axes = {f"{along}ref": f"{along}{suffix} domain", f"{across}ref": f"{across}{suffix}"}
        ends = {f"{along}0": 0, f"{along}1": 1, f"{across}0": value, f"{across}1": value}
        position = {along: 1, across: math.log10(value) if scale != "linear" else value}
        anchors = dict(zip(("xanchor", "yanchor"), corner, strict=True))
        layout["shapes"].append({"type": "line", **ends, **axes, "line": line})
        layout["annotations"].append(label | axes | position | anchors)


def _escape(text: str) -> str:
    """Return text with HTML escaped: plotly renders some HTML, and labels must not contain any."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
