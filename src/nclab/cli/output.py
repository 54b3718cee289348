"""What every command prints with: tables for people, JSON for machines."""

import json
import sys
from typing import Any

import typer

from nclab.text import WIDTH, fit_to_width


def print_json(value: Any) -> None:
    """One JSON value; a number that is not finite is a bug, not an output."""
    every = "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    typer.echo(json.dumps(value, allow_nan=False, ensure_ascii=not every))


def print_table(*renderables: Any) -> None:
    """Rich renderables, as wide as the terminal, or wide enough for a table in a file.

    Texts are printed as they are: a folder may be called runs[/x].
    """
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    if not sys.stdout.isatty():
        console = Console(width=max(WIDTH, console.width), markup=False, emoji=False)
    for renderable in renderables:
        console.print(fit_to_width(renderable, console))
