"""Pictures on paper: a Picture drawn by matplotlib, in one style, and saved."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nclab.figures import axes, canvas
from nclab.figures.forest_rows import HEIGHT, ZERO, Row, laid_out
from nclab.figures.legend import shares_legend
from nclab.figures.palette import DARK, LIGHT, Colours
from nclab.figures.picture import (
    Forest,
    HeatMap,
    Numbers,
    Panel,
    Picture,
    Reference,
    Series,
    turned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {"solid": "-", "dashed": "--", "dotted": ":", "none": "none"}
THIN = 0.8
"""Points, of the lines of a drawing."""
TITLE_HEIGHT, LEGEND_ROW = 0.32, 0.22
"""Inches."""
HANDLE = 3.4
"""Letters that a line is long in a legend: shorter ones hide their dashes behind the marker."""


def draw(picture: Picture, dark: bool = False) -> "Figure":
    """Draw a picture with matplotlib; no window is opened and nothing global is changed.

    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1, 2], [2.0, None, 1.0]),))
    >>> len(draw(Picture("loss", "Loss", (panel,))).axes)
    1
    """
    colours = DARK if dark else LIGHT
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    shared = shares_legend(picture)
    width, height = picture.panel_size
    height += 0 if shared else LEGEND_ROW * _longest_legend(picture)
    below = 2 * LEGEND_ROW if shared and _longest_legend(picture) else 0.0
    size = (columns * width, rows * height + TITLE_HEIGHT + below)
    with canvas.drawing(paper=colours, figsize=size) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axis in enumerate(grid.flat):
            if place >= len(picture.panels):
                axis.set_axis_off()
                continue
            panel = picture.panels[place]
            if isinstance(panel, HeatMap):
                _draw_heat_map(figure, axis, panel, colours)
            elif isinstance(panel, Forest):
                _draw_forest(axis, panel, colours)
            else:
                _draw_panel(axis, panel, colours)
                if not shared:
                    _legend_below(axis, beside=turned(panel.x_names))
        if shared:
            _legend_of_all(figure, size[0])
        if picture.title:
            figure.suptitle(picture.title, fontsize=10, fontweight="bold", color=colours.ink)
        return figure


def save(picture: Picture, folder: Path, dark: bool = False) -> list[Path]:
    """Draw a picture and write it under its name as .png, .pdf and .svg."""
    return canvas.save(draw(picture, dark), folder / picture.name)


def _draw_panel(axis: "Axes", panel: Panel, colours: Colours) -> None:
    for one in panel.series:
        _draw_series(axis, one, colours, bare=panel.bare)
    axes.scale(axis, panel, colours)
    for reference in panel.references:
        _draw_reference(axis, reference, colours)
    axis.set_title(panel.title, loc="left")
    if panel.x_label:
        axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)


def _draw_series(axis: "Axes", one: Series, colours: Colours, *, bare: bool = False) -> None:
    colour = colours.line(one.colour)
    x, y = array(one.x), array(one.y)
    hollow = one.marker == "hollow"
    marker = {"none": "", "filled": "o", "hollow": "o", "cross": "x"}[one.marker]
    look: dict[str, Any] = {
        "color": colour,
        "linestyle": LINES[one.style],
        "marker": marker,
        "markersize": 4.5,
        "linewidth": THIN if bare else None,
        "markerfacecolor": colours.background if hollow else colour,
        "markeredgewidth": 1.2 if one.marker in ("hollow", "cross") else 0.0,
        "label": one.label or "_",
        "zorder": 3 if one.style == "none" else 2.5,
    }
    if one.low is None or one.high is None:
        axis.plot(x, y, **look)
        return
    low, high = array(one.low), array(one.high)
    if one.style == "none":
        around = np.abs(np.stack([y - low, high - y]))
        axis.errorbar(x, y, yerr=around, elinewidth=1.0, capsize=2.0, **look)
        return
    area: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0, "zorder": 1.5}
    if np.isnan(y).all():  # an area alone
        axis.fill_between(x, low, high, label=look["label"], **area)
        return
    axis.plot(x, y, **look)
    axis.fill_between(x, low, high, **area)


def _draw_reference(axis: "Axes", reference: Reference, colours: Colours) -> None:
    from matplotlib.patheffects import withStroke

    line: dict[str, Any] = {"color": colours.muted, "lw": 0.9, "ls": (0, (4, 3)), "zorder": 1.8}
    halo = [withStroke(linewidth=2.5, foreground=colours.background)]
    words: dict[str, Any] = {"color": colours.muted, "fontsize": 7, "zorder": 1.9}
    words |= {"path_effects": halo, "textcoords": "offset points"}
    if reference.y is not None:
        axis.axhline(reference.y, **line)
        ends = (*axis.get_ylim(), reference.y)
        low, high, here = (axis.transScale.transform((1, y))[1] for y in ends)
        crowded = here > low + 0.9 * (high - low)
        words |= {"xycoords": axis.get_yaxis_transform(), "xytext": (-2, -2 if crowded else 2)}
        words |= {"ha": "right", "va": "top" if crowded else "bottom"}
        axis.annotate(reference.label, (1.0, reference.y), **words)
    if reference.x is not None:
        axis.axvline(reference.x, **line)
        words |= {"xycoords": axis.get_xaxis_transform(), "xytext": (2, -2)}
        words |= {"ha": "left", "va": "top", "rotation": 90}
        axis.annotate(reference.label, (reference.x, 1.0), **words)


def _draw_forest(axis: "Axes", panel: Forest, colours: Colours) -> None:
    rows, bands, depth = laid_out(panel)
    for band in bands:
        x, width = -band.reach, 2 * band.reach
        axis.barh(band.middle, width, band.tall, left=x, color=colours.grid, zorder=1.5, lw=0)
    for row in rows:
        _draw_row(axis, row, colours)
    axis.set(xlim=(-1.04, 1.04), ylim=(depth + 0.6, -0.2))
    axis.set_title(panel.title, loc="left")
    axis.grid(False)
    axis.set_xticks([-1, 1], [panel.left, panel.right])
    for tick, side in zip(axis.get_xticklabels(), ("left", "right"), strict=True):
        tick.set(horizontalalignment=side, color=colours.muted)
    axis.tick_params(length=0)
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)


def _draw_row(axis: "Axes", row: Row, colours: Colours) -> None:
    if row.words:
        bold = "bold" if row.effect is None else "normal"
        size, ink = (8.5, colours.ink) if row.effect is None else (7.5, colours.muted)
        text: dict[str, Any] = {"va": "center", "fontsize": size, "color": ink}
        axis.text(-1.02, row.at - HEIGHT / 2, row.words, fontweight=bold, ha="left", **text)
        axis.text(1.02, row.at - HEIGHT / 2, row.numbers, ha="right", **text)
    if row.effect is None:
        return
    colour = colours.line(row.effect.colour)
    inside = colours.background if row.effect.hollow else colour
    axis.plot([0, 0], [row.at - ZERO[0], row.at + ZERO[1]], color=colours.muted, lw=0.9, zorder=1.8)
    axis.plot([row.low, row.high], [row.at] * 2, color=colour, lw=1.6, zorder=2.5)
    if row.middle is not None:
        axis.plot(row.middle, row.at, "o", ms=5, mfc=inside, mec=colour, mew=1.3, zorder=3)
    for place, arrow, cut in zip((row.low, row.high), "<>", row.cut, strict=True):
        if cut:
            axis.plot(place, row.at, arrow, ms=5, mfc=colour, mec=colour, zorder=3, clip_on=False)


def _draw_heat_map(figure: "Figure", axis: "Axes", panel: HeatMap, colours: Colours) -> None:
    from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm

    values = np.array([array(row) for row in panel.values])
    low, high = panel.value_range or (float(np.nanmin(values)), float(np.nanmax(values)))
    stops = colours.ramp if panel.centre is None else colours.diverging
    palette = LinearSegmentedColormap.from_list("nclab", list(stops))
    if panel.centre is None:
        norm = Normalize(low, high)
    else:
        tiny = 1e-9 * max(1.0, abs(panel.centre))
        norm = TwoSlopeNorm(
            panel.centre, min(low, panel.centre - tiny), max(high, panel.centre + tiny)
        )
    rows, columns = values.shape
    x = array(panel.x) if len(panel.x) else np.arange(columns)
    y = array(panel.y) if len(panel.y) else np.arange(rows)
    shading: Any = "gouraud" if len(panel.x) else "nearest"
    shade = axis.pcolormesh(x, y, values, cmap=palette, norm=norm, shading=shading, lw=0)
    shade.set_rasterized(rows * columns > 2500)
    axis.grid(False)
    flat = len(panel.x) and np.ptp(x) > 3 * np.ptp(y)  # squares would leave a strip
    axis.set_aspect("auto" if flat else "equal")
    if len(panel.x):
        if panel.centre is not None:
            axis.contour(x, y, values, [panel.centre], colors=colours.ink, linewidths=0.9)
    else:
        axis.invert_yaxis()
        _name_ticks(axis, panel, rows, columns)
        if max(rows, columns) <= 10:
            _write_values(axis, values, shade, colours)
    axis.set_title(panel.title, loc="left")
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    bar = figure.colorbar(shade, ax=axis, shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    if panel.centre is not None:  # both sides, though their scales differ
        ticks = [low, (low + panel.centre) / 2, panel.centre, (high + panel.centre) / 2, high]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
    if panel.value_label:
        bar.set_label(panel.value_label)


def _name_ticks(axis: "Axes", panel: HeatMap, rows: int, columns: int) -> None:
    for count, names, put in (
        (columns, panel.x_names, axis.set_xticks),
        (rows, panel.y_names, axis.set_yticks),
    ):
        step = max(1, math.ceil(count / 20))
        places = list(range(0, count, step))
        put(places, [names[place] if names else str(place) for place in places])
    axes.turn(axis, panel.x_names)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _write_values(axis: "Axes", values: NDArray[np.float64], shade: Any, colours: Colours) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = shade.cmap(shade.norm(value))
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
        text = f"{value:.2f}".replace("-", "−")
        colour = "#1F2328" if bright else "#FFFFFF"
        size = 7 if len(values) <= 6 else 5.5 if len(values) <= 8 else 4.5
        axis.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _legend_of_all(figure: "Figure", width: float) -> None:
    """One legend under all panels, every label once."""
    found: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if not found:
        return
    letters = max(len(label) for label in found)
    across = max(1, min(len(found), int(width / (0.45 + 0.065 * letters))))
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=across,
        handlelength=HANDLE,
        columnspacing=1.4,
    )


def _legend_below(axis: "Axes", *, beside: bool) -> None:
    """A legend under one panel, where it hides nothing; beside its points where names are there."""
    handles, labels = axis.get_legend_handles_labels()
    if handles and beside:
        axis.legend(handles, labels, loc="best", handlelength=HANDLE)
    elif handles:
        axis.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            ncols=1 if max(map(len, labels)) > 14 else 3,
            handlelength=HANDLE,
            columnspacing=1.2,
            borderaxespad=0.0,
        )


def _longest_legend(picture: Picture) -> int:
    panels = [panel for panel in picture.panels if isinstance(panel, Panel)]
    return max((sum(bool(one.label) for one in panel.series) for panel in panels), default=0)


def array(values: Numbers | Sequence[float | None]) -> NDArray[np.float64]:
    """Numbers with nan where there is nothing to draw."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
