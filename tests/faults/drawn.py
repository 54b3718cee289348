"""Figures that are drawn once: this campaign tests the disk, and drawing is slow."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from nclab.figures import matplotlib_renderer


class Drawn:
    """A figure for `save` that remembers the bytes of its files."""

    def __init__(self, figure: Any) -> None:
        self._figure, self._made = figure, dict[str, bytes]()
        self.get_layout_engine = figure.get_layout_engine
        self.set_layout_engine = figure.set_layout_engine

    def draw_without_rendering(self) -> None:
        if not self._made:
            self._figure.draw_without_rendering()

    def savefig(self, stream: io.BytesIO, *, format: str, **how: Any) -> None:
        if format not in self._made:
            content = io.BytesIO()
            self._figure.savefig(content, format=format, **how)
            self._made[format] = content.getvalue()
        stream.write(self._made[format])


@contextmanager
def drawn_once() -> Iterator[None]:
    """Return a figure, drawn only once for each name in this process and its children."""
    made, plain = dict[tuple[str, bool], Drawn](), matplotlib_renderer.draw

    def known(picture: Any, dark: bool = False) -> Drawn:
        key = picture.name, dark
        if key not in made:
            made[key] = Drawn(plain(picture, dark))
        return made[key]

    with patch.object(matplotlib_renderer, "draw", known):
        yield
