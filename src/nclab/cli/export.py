"""`nclab export`: the records of runs as one table for other tools."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import (
    JsonOption,
    RunsArgument,
    check_runs_folder,
    print_json,
    print_skipped,
)
from nclab.errors import DataError, NclabError


def command(
    folder: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="<file>", help="File to write; its suffix sets the format."
        ),
    ] = None,
    records: Annotated[
        str,
        typer.Option(help="Kinds of records, separated by commas: measurement, epoch, alarm, end…"),
    ] = "measurement",
    as_json: JsonOption = False,
) -> None:
    """Write the records of runs and their configuration as one table: csv, parquet or json.

    The table has a row for each layer and measurement. Without --out the table is printed. Runs
    that cannot be read are skipped with a message on standard error.

    Example: [bold]nclab export runs/ --out runs.csv[/bold]

    Training curves: [bold]nclab export runs/ --records epoch --out epochs.parquet[/bold]
    """
    from nclab.files import check_output
    from nclab.records.read import SkippedPath
    from nclab.records.results import FORMATS, encoded, record_rows, write_rows
    from nclab.text import printable

    check_runs_folder(folder)
    kinds = tuple(word.strip() for word in records.split(",") if word.strip())
    if not kinds:
        raise NclabError(f"Expected at least one kind in --records, got {records!r}.")
    form = "json" if as_json else "csv" if out is None else out.suffix.removeprefix(".")
    if form not in FORMATS:
        raise NclabError(f"Expected --out with suffix .csv, .parquet or .json, got {out}.")
    if out is not None:  # check the file before reading the runs
        check_output(out)
    skipped: list[SkippedPath] = []
    rows = record_rows(folder, kinds=kinds, skipped=skipped)
    print_skipped(skipped)
    if not rows:
        raise DataError(f"Expected runs with records of {', '.join(kinds)} in {folder}, got none.")
    if out is not None:
        write_rows(rows, out, form)
        runs = len({row["folder"] for row in rows})
        typer.echo(f"wrote {len(rows)} rows of {runs} runs to {out}")
    elif form == "json":
        print_json(rows)
    else:
        text = encoded(rows, form).decode()
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
