"""`nclab doctor`: what nclab finds on this machine, and what is missing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.output import print_json, print_table

if TYPE_CHECKING:
    from nclab.cli.examination import Finding

COLOURS = {"good": "green", "missing": "yellow", "wrong": "red"}
WRONG = 1
"""The exit code where something is wrong."""


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="Folder in which runs are to be written.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at versions, threads, BLAS, extras, data set, write rights, kernel cache and plugins.

    Changes nothing. Exit code 1 if something is wrong; what is merely not installed is not.

    Example: [bold]nclab doctor runs/[/bold]
    """
    from dataclasses import asdict

    from nclab import plugins
    from nclab.cli.examination import examine

    found = examine(folder)
    added = [one._asdict() for one in plugins.installed()]
    wrong = sum(one.state == "wrong" for one in found) + sum(bool(one["problem"]) for one in added)
    if as_json:
        print_json({"findings": [asdict(one) for one in found], "plugins": added})
    else:
        print_table(_table(found), *([_plugins(added)] if added else []))
        typer.echo("Nothing is wrong." if not wrong else f"{wrong} of these are wrong.")
    if wrong:
        raise typer.Exit(WRONG)


def _table(found: "list[Finding]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("what", "state", "found", "what to do", header_style="bold")
    for column in (table.columns[2], table.columns[3]):
        column.overflow = "fold"
    for one in found:
        state = Text(one.state, style=COLOURS[one.state])
        table.add_row(Text(one.what), state, Text(one.found), Text(one.advice))
    return table


def _plugins(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("plugin", "of", "package", "problem", header_style="bold")
    for row in rows:
        problem = Text(row["problem"], style="red")
        table.add_row(Text(row["name"]), Text(row["kind"]), Text(row["package"]), problem)
    return table
