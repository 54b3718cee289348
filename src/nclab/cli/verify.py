"""`nclab verify`: every file of every run against its checks."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.output import print_json, print_table
from nclab.errors import DataError

if TYPE_CHECKING:
    from nclab.records.verify import Verified

COLOURS = {
    "good": "green",
    "unchecked": "yellow",
    "skipped": "yellow",
    "differs": "red",
    "damaged": "red",
}
MADE = ("records", "network", "summary")
"""What is made again of a run, in the place of a file's name."""
DAMAGED = 1
"""The exit code where something is damaged, or comes out otherwise."""


def command(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="A run, or a folder with runs.")],
    numbers: Annotated[
        bool | None,
        typer.Option(
            "--numbers/--no-numbers",
            help="Make every number again that can be: by default of a single run, not of many.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Check every record, checkpoint and result of a folder; nothing is changed.

    Says the first bad byte, what it affects and how to repair it. Files of nclab 0.1.0 have no
    checks of their own and are called unchecked. With --numbers also: scalars from the arrays of
    their records, summaries from the last measurement, networks of sweeps from their checkpoint
    and data drawn anew, verdicts from numbers.json. Exit code 1 if anything is damaged or differs.

    Example: [bold]nclab verify runs/mine[/bold]

    All numbers of many: [bold]nclab verify runs/ --numbers[/bold]
    """
    from nclab.records.verify import verify_folder

    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"Expected a folder with runs, but {folder} {what}.")
    found = verify_folder(folder)
    if numbers or (numbers is None and (folder / "manifest.json").is_file()):
        found += _recomputed(folder, {one.file for one in found if one.state == "damaged"})
    if as_json:
        print_json([asdict(one) for one in found])
    elif not found:
        typer.echo(f"No runs in {folder}.")
    else:
        odd = [one for one in found if one.state != "good"]
        if odd:
            print_table(_table(odd))
        typer.echo(_summary(found))
    if any(one.state in ("damaged", "differs") for one in found):
        raise typer.Exit(DAMAGED)


def _recomputed(folder: Path, damaged: set[str]) -> "list[Verified]":
    """What can be made again of every run whose files are good, and of the claims."""
    from dataclasses import replace

    from nclab.claims.recompute import recompute_claims, recompute_run
    from nclab.progress import track
    from nclab.records.read import find_runs

    found = []
    for run in track(find_runs(folder), "making numbers again"):
        place = run.relative_to(folder).as_posix()
        at = "" if place == "." else f"{place}/"
        if not any(file.startswith(at) for file in damaged):
            found += [replace(one, file=f"{at}{one.file}") for one in recompute_run(run)]
    return found + recompute_claims(folder)


def _summary(found: "list[Verified]") -> str:
    counts = {state: sum(one.state == state for one in found) for state in COLOURS}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    made = [one for one in found if one.file.rpartition("/")[2] in MADE or ":" in one.file]
    files = len(found) - len(made)
    more = f" and {len(made)} kinds of numbers" if made else ""
    return f"{files} file{'s' if files != 1 else ''}{more}: {told}."


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
