"""Pictures drawn by matplotlib, saved as PNG, PDF and SVG or shown in a notebook."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nclab.errors import MissingExtra
from nclab.figures.matplotlib_panels import draw_forest, draw_heat_map, draw_panel
from nclab.figures.picture import (
    DARK,
    LIGHT,
    Colours,
    Forest,
    HeatMap,
    Panel,
    Picture,
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
"""Suffix, dots per inch and removed metadata of every file; equal figures give equal files."""
_TITLE_HEIGHT, _LEGEND_LINE = 0.32, 0.22
"""Inches of the title and of one line of a legend."""
_PIXEL_RATIO = 2
"""Image dots per screen dot in a notebook, so that figures are sharp on high-density screens."""


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
                draw_heat_map(figure, axis, panel, colours)
            elif isinstance(panel, Forest):
                draw_forest(axis, panel, colours)
            else:
                draw_panel(axis, panel, colours)
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
    """Return the settings of matplotlib for the colours of a background."""
    ink = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor")
    return {
        **dict.fromkeys((*ink, "ytick.labelcolor"), colours.ink),
        **dict.fromkeys(("grid.color", "xtick.color", "ytick.color"), colours.grid),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), colours.background),
        "axes.edgecolor": colours.muted,
    }


@contextmanager
def _fixed_layout(figure: "Figure") -> Iterator[None]:
    """Compute the layout of a figure once for all formats: it takes longer than the drawing."""
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
