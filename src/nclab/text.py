"""How numbers and tables are shown to people."""

import shutil
import sys
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
    from rich.console import Console

    stream = StringIO()
    Console(file=stream, width=width, color_system=None).print(renderable)
    return stream.getvalue().count("…")


def as_text(renderable: Any, *, width: int | None = None) -> str:
    """What the terminal would show, as plain text; `WIDTH` columns unless that is narrower.

    >>> as_text("[bold]plain[/bold]")
    'plain'
    """
    from rich.console import Console

    stream = StringIO()
    if width is None:
        here = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
        width = min(WIDTH, here)
    console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
    console.print(fitted(renderable, console))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
