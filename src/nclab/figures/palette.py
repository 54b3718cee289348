"""Colours of all figures on light and dark backgrounds, distinct for colour-blind readers."""

from typing import NamedTuple

BLACK = 6
"""Index of the palette's black, which marks theory and failed runs; white on a dark background."""


class Colours(NamedTuple):
    """The colours of one background: lines, text, grid and heat maps."""

    lines: tuple[str, ...]
    """Colours of lines and markers; `Series.colour` is an index into them."""
    ink: str
    muted: str
    grid: str
    background: str
    ramp: tuple[tuple[float, str], ...]
    """Colours of a heat map, from low to high."""
    diverging: tuple[tuple[float, str], ...]
    """Colours of a heat map with a centre, from far below to far above the centre."""

    def line(self, index: int) -> str:
        """Return the line colour of an index; the palette repeats after its last colour.

        >>> LIGHT.line(0) == LIGHT.line(7)
        True
        """
        return self.lines[index % len(self.lines)]


def _evenly_spaced(*colours: str) -> tuple[tuple[float, str], ...]:
    return tuple((index / (len(colours) - 1), colour) for index, colour in enumerate(colours))


LIGHT = Colours(
    lines=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    ink="#1F2328",
    muted="#656D76",
    grid="#E4E7EB",
    background="#FFFFFF",
    ramp=((0.0, "#F7FBFF"), (0.35, "#9ECAE1"), (0.7, "#2F7FBC"), (1.0, "#08306B")),
    diverging=_evenly_spaced("#2166AC", "#92C5DE", "#F7F7F7", "#F4A582", "#B2182B"),
)
"""Colours on a light background; the lines have the colours of Okabe and Ito."""
DARK = Colours(
    lines=("#4AA8E0", "#F28141", "#2BC99B", "#E39AC6", "#F5BD41", "#9AD4F7", "#F0F3F6"),
    ink="#E6EDF3",
    muted="#9BA4AE",
    grid="#2D333B",
    background="#14181D",
    ramp=((0.0, "#12202E"), (0.35, "#1F5B8C"), (0.7, "#5FAEDD"), (1.0, "#E3F3FF")),
    diverging=_evenly_spaced("#6CB6F0", "#2B6EA6", "#20262D", "#A8523A", "#FF9B7A"),
)
"""Colours on a dark background: lighter versions of the colours of `LIGHT`."""
