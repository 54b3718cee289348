"""`nclab verify`: check every file of every run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nclab.cli.shared import (
    JsonOption,
    RunsArgument,
    check_runs_folder,
    print_json,
    print_table,
    text_table,
)
from nclab.text import counted

if TYPE_CHECKING:
    from nclab.records.verify import Verified

COLOURS = {
    "good": "green",
    "unchecked": "yellow",
    "skipped": "yellow",
    "differs": "red",
    "damaged": "red",
}
DAMAGED = 1
"""Exit code if a file is damaged or a number differs."""


def command(
    folder: RunsArgument,
    numbers: Annotated[
        bool | None,
        typer.Option(
            "--numbers/--no-numbers",
            help="Also recompute measurements and verdicts; by default only if RUNS is a single "
            "run.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every record, checkpoint and result of a folder; change nothing.

    Reports the first bad byte, what it affects and how to repair it. Files of nclab 0.1.0 have no
    checksums and are unchecked. --numbers also draws the data of every sweep again, measures its
    last checkpoint, and judges the claims from numbers.json; the results must agree with the files.
    Exit code 1 if anything is damaged or differs.

    Example: [bold]nclab verify runs/mine[/bold]

    Recompute the numbers of many runs: [bold]nclab verify runs/ --numbers[/bold]
    """
    from nclab.records.verify import verify_folder

    check_runs_folder(folder)
    results = verify_folder(folder)
    if numbers or (numbers is None and (folder / "manifest.json").is_file()):
        results += _recompute(
            folder, {result.file for result in results if result.state == "damaged"}
        )
    if as_json:
        names = {"file": "file", "state": "state", "found": "message", "repair": "repair"}
        print_json([{key: getattr(row, name) for key, name in names.items()} for row in results])
    elif not results:
        typer.echo(f"No runs in {folder}.")
    else:
        problems = [result for result in results if result.state != "good"]
        if problems:
            headings = ("file", "state", "result", "what to do")
            rows = [(row.file, row.state, row.message, row.repair) for row in problems]
            fold = ("file", "result")
            print_table(text_table(headings, rows, colours={"state": COLOURS}, fold=fold))
        typer.echo(_summary(results))
    if any(result.state in ("damaged", "differs") for result in results):
        raise typer.Exit(DAMAGED)


def _recompute(folder: Path, damaged: set[str]) -> "list[Verified]":
    """Recompute the numbers of every run without damaged files, and the verdicts of claims."""
    from dataclasses import replace

    from nclab.claims.reproduce import recompute_claims, recompute_run
    from nclab.progress import track
    from nclab.records.read import find_runs

    results = []
    for run in track(find_runs(folder), "recomputing numbers"):
        path = run.relative_to(folder).as_posix()
        prefix = "" if path == "." else f"{path}/"
        if not any(file.startswith(prefix) for file in damaged):
            results += [replace(row, file=f"{prefix}{row.file}") for row in recompute_run(run)]
    return results + recompute_claims(folder)


def _summary(results: "list[Verified]") -> str:
    """Return a line with the number of files and recomputed results in each state."""
    states = {state: sum(result.state == state for result in results) for state in COLOURS}
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    names = [result.file for result in results]
    numbers = sum(name.endswith("network") or ":" in name for name in names)
    more = f" and {counted(numbers, 'recomputed result')}" if numbers else ""
    return f"{counted(len(results) - numbers, 'file')}{more}: {counts}."
