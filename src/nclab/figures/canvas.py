"""What every figure shares: late import of matplotlib, colours that all eyes tell apart, saving."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import MissingExtra
from nclab.figures.palette import LIGHT, Colours
from nclab.files import write_whole

if TYPE_CHECKING:
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
    "pdf.fonttype": 42,
    "svg.hashsalt": "nclab",
}


@contextmanager
def drawing(*, paper: Colours = LIGHT, **size: Any) -> Iterator["Figure"]:
    """A figure in nclab's style; nothing global is changed and no window is opened."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("A figure", package="matplotlib", extra="plot") from error
    with matplotlib.rc_context(STYLE | _colours(paper)):
        yield Figure(layout="constrained", **size)


FORMATS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    (".png", 200, {"Software": None}),
    (".pdf", 100, {"CreationDate": None}),
    (".svg", 100, {"Date": None}),
)
"""Suffixes, dots per inch of what is not lines, and what would make two writings differ."""


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure as .png, .pdf and .svg under one name, whole or not at all."""
    import matplotlib

    written = []
    with matplotlib.rc_context(STYLE), _settled(figure):
        for suffix, dots, metadata in FORMATS:
            content = io.BytesIO()
            figure.savefig(content, format=suffix[1:], dpi=dots, metadata=metadata)
            target = path.with_name(path.name + suffix)
            write_whole(target, content.getvalue())
            written.append(target)
    return written


@contextmanager
def _settled(figure: "Figure") -> Iterator[None]:
    """Lay a figure out once for all formats; the layout takes longer than the drawing."""
    engine = figure.get_layout_engine()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    yield
    figure.set_layout_engine(engine)


def _colours(paper: Colours) -> dict[str, Any]:
    ink = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor")
    return {
        **dict.fromkeys((*ink, "ytick.labelcolor"), paper.ink),
        **dict.fromkeys(("grid.color", "xtick.color", "ytick.color"), paper.grid),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), paper.background),
        "axes.edgecolor": paper.muted,
    }
