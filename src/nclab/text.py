"""How numbers and tables are shown to people."""

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


def as_text(renderable: Any, *, width: int = WIDTH) -> str:
    """What the terminal would show, as plain text.

    >>> as_text("[bold]plain[/bold]")
    'plain'
    """
    from rich.console import Console

    stream = StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
