"""How numbers and tables are shown to people."""

import html
import shutil
import sys
from collections.abc import Iterable
from io import StringIO
from typing import Any

WIDTH = 100
"""Columns of a table in a file."""


def number(value: float | None, *, near: float | None = None) -> str:
    """Four significant digits, or a dash for what was not measured.

    What is `near` 1 is shown by its distance from 1, which is what matters there.

    >>> number(0.123456), number(None), number(-1/3), number(2.5e-13)
    ('0.1235', '–', '-0.3333', '2.5e-13')
    >>> number(1 - 2e-7, near=1.0), number(1.0, near=1.0)
    ('1-2.0e-07', '1')
    """
    if value is None:
        return "–"
    if near == 1.0 and 1e-12 < 1 - value < 1e-3:
        return f"1-{1 - value:.1e}"
    return f"{value:.4g}"


def counted(many: int, word: str) -> str:
    """How many there are, the word in its number.

    >>> counted(1, "run"), counted(0, "run"), counted(2, "run")
    ('1 run', '0 runs', '2 runs')
    """
    return f"{many} {word}" if many == 1 else f"{many} {word}s"


def scientific(value: float) -> str:
    """A number as people write weight decays.

    >>> [scientific(value) for value in (1e-4, 3e-3, 0.0, 0.5)]
    ['1e-4', '3e-3', '0', '5e-1']
    """
    if value == 0:
        return "0"
    digits, power = f"{value:e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def fitted(renderable: Any, console: Any) -> Any:
    """The same where it has room; else tables give up their lines before their digits.

    A terminal of 80 columns would otherwise show 6.398e-37 as 6.398e followed by dots.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table

    while hasattr(renderable, "__rich__"):
        renderable = renderable.__rich__()
    if isinstance(renderable, Group):
        return Group(*(fitted(part, console) for part in renderable.renderables))
    if isinstance(renderable, Table) and _dots(renderable, console.width) > _dots(renderable, 9999):
        renderable.box = box.SIMPLE_HEAD
        renderable.show_edge = False
        renderable.padding = (0, 0)
        for column in renderable.columns:
            column.overflow = "fold"
    return renderable


def _dots(renderable: Any, width: int) -> int:
    """How many cells end in dots, cut off or of their own, at a width."""
    stream = StringIO()
    _console(stream, width).print(renderable)
    return stream.getvalue().count("…")


def as_text(renderable: Any, *, width: int | None = None) -> str:
    """What the terminal would show, as plain text; `WIDTH` columns unless that is narrower.

    >>> as_text("[bold]plain[/bold]")
    'plain'
    """
    stream = StringIO()
    if width is None:
        here = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
        width = min(WIDTH, here)
    console = _console(stream, width)
    console.print(fitted(renderable, console))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _console(stream: StringIO, width: int) -> Any:
    """One that writes to the stream only: in a notebook rich would show what it prints."""
    from rich.console import Console

    options: dict[str, Any] = {"color_system": None, "legacy_windows": False}
    return Console(file=stream, width=width, force_jupyter=False, **options)


def as_html(renderable: Any) -> str:
    """The same as plain HTML for a notebook: tables as tables, lines as paragraphs.

    >>> as_html("1 < [bold]2[/bold]")
    '<p>1 &lt; 2</p>'
    """
    from rich.console import Group
    from rich.table import Table

    while hasattr(renderable, "__rich__"):
        renderable = renderable.__rich__()
    if isinstance(renderable, Group):
        return "".join(map(as_html, renderable.renderables))
    if not isinstance(renderable, Table):
        return "".join(f"<p>{html.escape(line)}</p>" for line in _plain(renderable).splitlines())
    sides = ["right" if column.justify == "right" else "left" for column in renderable.columns]

    def line(kind: str, cells: Iterable[Any]) -> str:
        made = zip(sides, map(_plain, cells), strict=True)
        looks = [f'<{kind} style="text-align:{side}">{html.escape(x)}</{kind}>' for side, x in made]
        return f"<tr>{''.join(looks)}</tr>"

    head = line("th", (column.header for column in renderable.columns))
    rows = zip(*(column.cells for column in renderable.columns), strict=True)
    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _plain(cell: Any) -> str:
    from rich.text import Text

    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


class Printed:
    """What has `__rich__`, as text at a prompt and as tables in a notebook."""

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__  # at a prompt, too: all fields in a row would fill the screen

    def _repr_html_(self) -> str:
        return as_html(self)
