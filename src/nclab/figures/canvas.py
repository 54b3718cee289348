"""What every figure shares: late import of matplotlib, colours that all eyes tell apart, saving."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError
from nclab.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
"""Okabe and Ito's colours."""

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
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


@contextmanager
def drawing(**size: Any) -> Iterator["Figure"]:
    """A figure in nclab's style; nothing global is changed and no window is opened."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NclabError("Figures need matplotlib. Run `pip install nclab[plot]`.") from error
    with matplotlib.rc_context(STYLE):
        yield Figure(layout="constrained", **size)


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure as .png and .pdf under one name, whole or not at all."""
    import matplotlib

    written = []
    with matplotlib.rc_context(STYLE):
        for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None})):
            content = io.BytesIO()
            figure.savefig(content, format=suffix[1:], dpi=200, metadata=metadata)
            target = path.with_suffix(suffix)
            write_whole(target, content.getvalue())
            written.append(target)
    return written
