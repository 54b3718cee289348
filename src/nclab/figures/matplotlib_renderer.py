"""Pictures drawn by matplotlib, saved as PNG, PDF and SVG or shown in a notebook."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.errors import MissingExtra
from nclab.figures.forest_layout import TEXT_ABOVE, ZERO_LINE, ForestRow, lay_out_forest
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
    Series,
    names_overlap,
    shares_legend,
)
from nclab.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "legend.handlelength": 3.4,  # with shorter lines the marker hides the dashes
    "pdf.fonttype": 42,
    "svg.hashsalt": "nclab",
}
"""Settings of matplotlib for every figure."""
FORMATS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    (".png", 200, {"Software": None}),
    (".pdf", 100, {"CreationDate": None}),
    (".svg", 100, {"Date": None}),
)
"""For each file format: suffix, dots per inch, and metadata to remove, so that equal figures give
equal files."""
_TITLE_HEIGHT, _LEGEND_LINE = 0.32, 0.22
"""Height of the title and of one line of a legend, in inches."""
_PIXEL_RATIO = 2
"""Image dots per screen dot in a notebook, so that figures are sharp on high-density screens."""
LN10 = float(np.log(10.0))
_DASHES = {"solid": "-", "dashed": "--", "dotted": ":", "none": "none"}
_MARKERS = {"none": "", "filled": "o", "hollow": "o", "cross": "x"}


class Drawing(NamedTuple):
    """A matplotlib figure and its panels: `figure, axes = collapse.plot()`.

    A notebook displays a drawing in the last line of a cell, with any backend, without pyplot.
    """

    figure: "Figure"
    axes: "tuple[Axes, ...]"

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Drawing: {len(self.axes)} panels, {width:.3g} x {height:.3g} inches>"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        content = io.BytesIO()
        dots = self.figure.dpi
        self.figure.savefig(content, format="png", dpi=_PIXEL_RATIO * dots)
        width, height = (round(inches * dots) for inches in self.figure.get_size_inches())
        return content.getvalue(), {"width": width, "height": height}


def plot(picture: Picture, dark: bool = False) -> Drawing:
    """Draw a picture for a notebook.

    >>> from nclab.figures.picture import Panel, Series
    >>> plot(Picture("p", "", (Panel("loss", "epoch", "", (Series("", [1, 2], [3, 4]),)),)))
    <Drawing: 1 panels, 3.2 x 2.92 inches>
    """
    figure = draw(picture, dark)
    return Drawing(figure, tuple(figure.axes[: len(picture.panels)]))


def draw(picture: Picture, dark: bool = False) -> "Figure":
    """Return a picture as a matplotlib figure; open no window and change no global setting."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("A figure", package="matplotlib", extra="plot") from error
    colours = DARK if dark else LIGHT
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    shared = shares_legend(picture)
    entries = max(
        (
            sum(bool(series.label) for series in panel.series)
            for panel in picture.panels
            if isinstance(panel, Panel)
        ),
        default=0,
    )
    width, height = picture.panel_size
    height += 0 if shared else _LEGEND_LINE * entries
    below = 2 * _LEGEND_LINE if shared and entries else 0.0
    size = (columns * width, rows * height + _TITLE_HEIGHT + below)
    with matplotlib.rc_context(STYLE | _coloured(colours)):
        figure = Figure(layout="constrained", figsize=size)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axis in grid.flat[len(picture.panels) :]:
            axis.set_axis_off()
        for axis, panel in zip(grid.flat, picture.panels, strict=False):
            if isinstance(panel, HeatMap):
                _draw_heat_map(figure, axis, panel, colours)
            elif isinstance(panel, Forest):
                _draw_forest(axis, panel, colours)
            else:
                _draw_panel(axis, panel, colours)
                if not shared:
                    _add_legend(axis, inside=names_overlap(panel.x_names))
        if shared:
            _add_shared_legend(figure, size[0])
        if picture.title:
            figure.suptitle(picture.title, fontsize=10, fontweight="bold", color=colours.ink)
    return figure


def save(picture: Picture, folder: Path, dark: bool = False) -> list[Path]:
    """Draw a picture, write it as .png, .pdf and .svg, and return the paths.

    A file is either complete or not written at all.
    """
    import matplotlib

    figure = draw(picture, dark)
    paths = []
    with matplotlib.rc_context(STYLE), _fixed_layout(figure):
        for suffix, dots, metadata in FORMATS:
            content = io.BytesIO()
            figure.savefig(content, format=suffix[1:], dpi=dots, metadata=metadata)
            path = folder / f"{picture.name}{suffix}"
            write_whole(path, content.getvalue())
            paths.append(path)
    return paths


def _coloured(colours: Colours) -> dict[str, Any]:
    """Return matplotlib settings for text, grid and background colours."""
    ink = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor")
    return {
        **dict.fromkeys((*ink, "ytick.labelcolor"), colours.ink),
        **dict.fromkeys(("grid.color", "xtick.color", "ytick.color"), colours.grid),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), colours.background),
        "axes.edgecolor": colours.muted,
    }


@contextmanager
def _fixed_layout(figure: "Figure") -> Iterator[None]:
    """Compute the layout of a figure once for all formats, as layout takes longer than drawing."""
    engine = figure.get_layout_engine()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    yield
    figure.set_layout_engine(engine)


def _add_shared_legend(figure: "Figure", width: float) -> None:
    """Add one legend below all panels with one entry for every label."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    letters = max(len(label) for label in entries)
    columns = max(1, min(len(entries), int(width / (0.45 + 0.065 * letters))))
    handles, labels = list(entries.values()), list(entries)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.4)


def _add_legend(axis: "Axes", *, inside: bool) -> None:
    """Add the legend of one panel: below the panel, or inside if tick labels fill that space."""
    handles, labels = axis.get_legend_handles_labels()
    if handles and inside:
        axis.legend(handles, labels, loc="best")
    elif handles:
        axis.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            ncols=1 if max(map(len, labels)) > 14 else 3,
            columnspacing=1.2,
            borderaxespad=0.0,
        )


def _draw_panel(axis: "Axes", panel: Panel, colours: Colours) -> None:
    """Draw the series, axes and references of a panel."""
    for series in panel.series:
        _draw_series(axis, series, colours, width=0.8 if panel.bare else None)
    _set_scales(axis, panel, colours)
    for reference in panel.references:
        _draw_reference(axis, reference, colours)
    axis.set_title(panel.title, loc="left")
    if panel.x_label:
        axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)


def _draw_series(axis: "Axes", series: Series, colours: Colours, *, width: float | None) -> None:
    colour = colours.line(series.colour)
    x, y = _array(series.x), _array(series.y)
    appearance: dict[str, Any] = {
        "color": colour,
        "linestyle": _DASHES[series.style],
        "marker": _MARKERS[series.marker],
        "markersize": 4.5,
        "linewidth": width,
        "markerfacecolor": colours.background if series.marker == "hollow" else colour,
        "markeredgewidth": 1.2 if series.marker in ("hollow", "cross") else 0.0,
        "label": series.label or "_",
        "zorder": 3 if series.style == "none" else 2.5,
    }
    if series.low is None or series.high is None:
        axis.plot(x, y, **appearance)
        return
    low, high = _array(series.low), _array(series.high)
    if series.style == "none":
        errors = np.abs(np.stack([y - low, high - y]))
        axis.errorbar(x, y, yerr=errors, elinewidth=1.0, capsize=2.0, **appearance)
        return
    area: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0, "zorder": 1.5}
    if np.isnan(y).all():  # a band without a line
        axis.fill_between(x, low, high, label=appearance["label"], **area)
        return
    axis.plot(x, y, **appearance)
    axis.fill_between(x, low, high, **area)


def _draw_reference(axis: "Axes", reference: Reference, colours: Colours) -> None:
    from matplotlib.patheffects import withStroke

    line: dict[str, Any] = {"color": colours.muted, "lw": 0.9, "ls": (0, (4, 3)), "zorder": 1.8}
    halo = [withStroke(linewidth=2.5, foreground=colours.background)]
    text: dict[str, Any] = {"color": colours.muted, "fontsize": 7, "zorder": 1.9}
    text |= {"path_effects": halo, "textcoords": "offset points"}
    if reference.y is not None:
        axis.axhline(reference.y, **line)
        values = (*axis.get_ylim(), reference.y)
        low, high, y = (axis.transScale.transform((1, value))[1] for value in values)
        near_top = y > low + 0.9 * (high - low)
        text |= {"xycoords": axis.get_yaxis_transform(), "xytext": (-2, -2 if near_top else 2)}
        text |= {"ha": "right", "va": "top" if near_top else "bottom"}
        axis.annotate(reference.label, (1.0, reference.y), **text)
    if reference.x is not None:
        axis.axvline(reference.x, **line)
        text |= {"xycoords": axis.get_xaxis_transform(), "xytext": (2, -2)}
        text |= {"ha": "left", "va": "top", "rotation": 90}
        axis.annotate(reference.label, (reference.x, 1.0), **text)


def _set_scales(axis: "Axes", panel: Panel, colours: Colours) -> None:
    """Set the scales, ticks and ranges of both axes."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    axis.margins(x=0.03)
    if panel.x_scale == "log":
        axis.set_xscale("log")
        _thin_out_decades(axis)
    if panel.y_scale in ("log", "loglog"):
        axis.set_yscale("log")
    if panel.y_range is not None:
        axis.set_ylim(*panel.y_range)
    if panel.x_scale == "loglog":
        _set_time_axis(axis)
    elif panel.x_ticks:
        axis.set_xticks(panel.x_ticks, panel.x_names or [f"{tick:g}" for tick in panel.x_ticks])
        _slant_names(axis, panel.x_names)
        axis.xaxis.set_minor_locator(NullLocator())
    elif panel.x_scale == "linear" and all(
        x is None or float(x).is_integer() for series in panel.series for x in series.x
    ):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.bare:
        _remove_frame(axis, keep_names=bool(panel.x_names))
    for part in (axis, *axis.child_axes):
        part.tick_params(
            which="both", color=colours.grid, labelcolor=colours.ink, grid_color=colours.grid
        )


def _thin_out_decades(axis: "Axes") -> None:
    """Label only 1 and 3 times each power of 10 if x spans less than a factor of 100.

    Otherwise matplotlib labels more ticks, and the labels overlap.
    """
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

    low, high = axis.get_xlim()
    if high < 100 * low:
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
        axis.xaxis.set_minor_formatter(NullFormatter())


def _slant_names(axis: "Axes", names: Sequence[str]) -> None:
    """Write tick labels at an angle if they would overlap."""
    if names_overlap(names):
        for label in axis.get_xticklabels():
            label.set(rotation=45, horizontalalignment="right", rotation_mode="anchor")


def _remove_frame(axis: "Axes", *, keep_names: bool) -> None:
    """Remove frame, grid and numbers, and use equal units on both axes."""
    axis.set_aspect("equal", adjustable="datalim")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_yticks([])
    if keep_names:
        axis.tick_params(axis="x", length=0)
    else:
        axis.set_xticks([])


def _set_time_axis(axis: "Axes") -> None:
    """Make the axis of log t logarithmic; if log t exceeds 100, label powers of 10 of t on top."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.set_xlabel(r"$\log t$")
    low, high = axis.get_xlim()
    marks = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
    axis.xaxis.set_major_locator(LogLocator(subs=marks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    if high > 100:
        decades = (lambda x: np.asarray(x) / LN10, lambda x: np.asarray(x) * LN10)
        top = axis.secondary_xaxis("top", functions=decades)
        top.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
        top.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"$t=10^{{{x:g}}}$"))
        top.xaxis.set_minor_formatter(NullFormatter())
        top.tick_params(labelsize=7)
        top.spines["top"].set_visible(False)


def _draw_forest(axis: "Axes", panel: Forest, colours: Colours) -> None:
    """Draw a forest plot: effects with intervals, and a grey band for the margin of each group."""
    rows, bands, height = lay_out_forest(panel)
    for band in bands:
        left, width = -band.half_width, 2 * band.half_width
        axis.barh(band.centre, width, band.height, left=left, color=colours.grid, zorder=1.5, lw=0)
    for row in rows:
        _draw_forest_row(axis, row, colours)
    axis.set(xlim=(-1.04, 1.04), ylim=(height + 0.6, -0.2))
    axis.set_title(panel.title, loc="left")
    axis.grid(False)
    axis.set_xticks([-1, 1], [panel.left, panel.right])
    for tick, side in zip(axis.get_xticklabels(), ("left", "right"), strict=True):
        tick.set(horizontalalignment=side, color=colours.muted)
    axis.tick_params(length=0)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)


def _draw_forest_row(axis: "Axes", row: ForestRow, colours: Colours) -> None:
    heading = row.effect is None
    if row.label:
        size, ink = (8.5, colours.ink) if heading else (7.5, colours.muted)
        text: dict[str, Any] = {"va": "center", "fontsize": size, "color": ink}
        weight = "bold" if heading else "normal"
        axis.text(-1.02, row.y - TEXT_ABOVE, row.label, fontweight=weight, ha="left", **text)
        axis.text(1.02, row.y - TEXT_ABOVE, row.numbers, ha="right", **text)
    if row.effect is None:
        return
    colour = colours.line(row.effect.colour)
    inside = colours.background if row.effect.hollow else colour
    zero = [row.y - ZERO_LINE[0], row.y + ZERO_LINE[1]]
    axis.plot([0, 0], zero, color=colours.muted, lw=0.9, zorder=1.8)
    axis.plot([row.low, row.high], [row.y] * 2, color=colour, lw=1.6, zorder=2.5)
    if row.estimate is not None:
        axis.plot(row.estimate, row.y, "o", ms=5, mfc=inside, mec=colour, mew=1.3, zorder=3)
    for x, arrow, cut in zip((row.low, row.high), "<>", row.cut, strict=True):
        if cut:
            axis.plot(x, row.y, arrow, ms=5, mfc=colour, mec=colour, zorder=3, clip_on=False)


def _draw_heat_map(figure: "Figure", axis: "Axes", panel: HeatMap, colours: Colours) -> None:
    """Draw a matrix as colours, with its numbers if it is at most 10 x 10."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm

    values = np.array([_array(row) for row in panel.values])
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
    continuous = bool(len(panel.x))
    x = _array(panel.x) if continuous else np.arange(columns)
    y = _array(panel.y) if len(panel.y) else np.arange(rows)
    shading: Any = "gouraud" if continuous else "nearest"
    mesh = axis.pcolormesh(x, y, values, cmap=palette, norm=norm, shading=shading, lw=0)
    mesh.set_rasterized(rows * columns > 2500)
    axis.grid(False)
    wide = continuous and np.ptp(x) > 3 * np.ptp(y)  # equal units would leave a thin strip
    axis.set_aspect("auto" if wide else "equal")
    if not continuous:
        axis.invert_yaxis()
        _name_ticks(axis, panel, rows, columns)
        if max(rows, columns) <= 10:
            _write_values(axis, values, mesh)
    elif panel.centre is not None:
        axis.contour(x, y, values, [panel.centre], colors=colours.ink, linewidths=0.9)
    axis.set_title(panel.title, loc="left")
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    bar = figure.colorbar(mesh, ax=axis, shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    if panel.centre is not None:  # ticks on both sides, although their scales differ
        ticks = [low, (low + panel.centre) / 2, panel.centre, (high + panel.centre) / 2, high]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
    if panel.value_label:
        bar.set_label(panel.value_label)


def _name_ticks(axis: "Axes", panel: HeatMap, rows: int, columns: int) -> None:
    """Name at most 20 rows and 20 columns of a matrix."""
    for count, names, set_ticks in (
        (columns, panel.x_names, axis.set_xticks),
        (rows, panel.y_names, axis.set_yticks),
    ):
        ticks = list(range(0, count, max(1, math.ceil(count / 20))))
        set_ticks(ticks, [names[tick] if names else str(tick) for tick in ticks])
    _slant_names(axis, panel.x_names)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def _write_values(axis: "Axes", values: NDArray[np.float64], mesh: Any) -> None:
    """Write every number of a matrix, dark on bright cells and white on dark cells."""
    size = 7 if len(values) <= 6 else 5.5 if len(values) <= 8 else 4.5
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = mesh.cmap(mesh.norm(value))
        colour = "#1F2328" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#FFFFFF"
        text = f"{value:.2f}".replace("-", "−")
        axis.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _array(values: Numbers) -> NDArray[np.float64]:
    """Return numbers as an array; nan replaces None."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
