"""A drawn picture that a notebook shows."""

import io
from typing import TYPE_CHECKING, Any, NamedTuple

from nclab.figures.draw import draw
from nclab.figures.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARP = 2
"""Dots of the image for each dot of the screen, so that it stays sharp on fine screens."""


class Drawing(NamedTuple):
    """A matplotlib figure and its panels: `figure, axes = collapse.plot()`.

    The last line of a notebook's cell shows it, with any backend and without pyplot.
    """

    figure: "Figure"
    axes: "tuple[Axes, ...]"

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Drawing: {len(self.axes)} panels, {width:.3g} x {height:.3g} inches>"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        content = io.BytesIO()
        dots = self.figure.dpi
        self.figure.savefig(content, format="png", dpi=SHARP * dots)
        width, height = (round(inches * dots) for inches in self.figure.get_size_inches())
        return content.getvalue(), {"width": width, "height": height}


def drawn(picture: Picture, dark: bool = False) -> Drawing:
    """A picture drawn with matplotlib.

    >>> from nclab.figures.picture import Panel, Series
    >>> drawn(Picture("p", "", (Panel("loss", "epoch", "", (Series("", [1, 2], [3, 4]),)),)))
    <Drawing: 1 panels, 3.2 x 2.92 inches>
    """
    figure = draw(picture, dark)
    return Drawing(figure, tuple(figure.axes[: len(picture.panels)]))
