"""`nclab verify`: every file of every run against its checks."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.output import print_json, print_table
from nclab.errors import DataError

if TYPE_CHECKING:
    from nclab.records.verify import Verified

COLOURS = {"good": "green", "unchecked": "yellow", "skipped": "yellow", "damaged": "red"}
DAMAGED = 1
"""The exit code where something is damaged."""


def command(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="A run, or a folder with runs.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Check every record, checkpoint and result of a folder; nothing is changed.

    Says the first bad byte, what it affects and how to repair it. Exit code 1 if anything is
    damaged. Files of nclab 0.1.0 have no checks of their own and are called unchecked.

    Example: [bold]nclab verify runs/[/bold]
    """
    from nclab.records.verify import verify_folder

    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"Expected a folder with runs, but {folder} {what}.")
    found = verify_folder(folder)
    if as_json:
        print_json([asdict(one) for one in found])
    elif not found:
        typer.echo(f"No runs in {folder}.")
    else:
        odd = [one for one in found if one.state != "good"]
        if odd:
            print_table(_table(odd))
        typer.echo(_summary(found))
    if any(one.state == "damaged" for one in found):
        raise typer.Exit(DAMAGED)


def _summary(found: "list[Verified]") -> str:
    counts = {state: sum(one.state == state for one in found) for state in COLOURS}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(found)} file{'s' if len(found) != 1 else ''}: {told}."


def _table(found: "list[Verified]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("file", "state", "found", "what to do", header_style="bold")
    for column in (table.columns[0], table.columns[2]):
        column.overflow = "fold"
    for one in found:
        state = Text(one.state, style=COLOURS[one.state])
        table.add_row(Text(one.file), state, Text(one.found), Text(one.repair))
    return table
