"""`nclab runs`: list the runs of a folder with state, progress and last measurement."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nclab.cli.shared import (
    JsonOption,
    RunsArgument,
    check_runs_folder,
    print_json,
    print_skipped,
    print_table,
    text_table,
)
from nclab.errors import RecordError
from nclab.text import is_number, number

if TYPE_CHECKING:
    from rich.table import Table

    from nclab.records import RunView

COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "stopped": "yellow"}
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "run": lambda row: row["name"],
    "kind": lambda row: row["kind"],
    "state": lambda row: row["state"],
    "health": lambda row: row["health"],
    "progress": lambda row: "–" if row["progress"] is None else f"{row['progress']:.0%}",
    "epoch": lambda row: number(row["epoch"]),
    "accuracy": lambda row: number(row["accuracy"]),
    "min intra": lambda row: number(row["min_intra"], near=1.0),
    "why": lambda row: "; ".join(str(row[name]) for name in ("why", "problem") if row[name]),
}
"""Columns of the table by heading: functions that make the text from the row of `--json`."""
WORDS = ("run", "kind", "state", "health", "why")
"""Columns of words, which are aligned left."""


def command(folder: RunsArgument, as_json: JsonOption = False) -> None:
    """List the runs of a folder: state, problems, progress and the last measurement.

    With --json, runs also have their configuration and all metrics of the last measurement.

    Example: [bold]nclab runs runs/ --json[/bold]
    """
    from nclab.records import find_runs, glance
    from nclab.records.read import SkippedPath

    check_runs_folder(folder)
    skipped: list[SkippedPath] = []
    rows = []
    for path in find_runs(folder, skipped=skipped):
        try:
            rows.append(_row(glance(path, root=folder), folder))
        except RecordError as error:  # it was readable a moment ago
            skipped.append(SkippedPath(path, str(error)))
    print_skipped(skipped)
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo(f"No runs in {folder}.")
    else:
        print_table(_table(rows))


def _row(view: "RunView", root: Path) -> dict[str, Any]:
    """Return one run as plain JSON values."""
    from nclab.records import read_run
    from nclab.records.schema import ALARM, MEASUREMENT, health_of, last_layer

    last_record = view.last(MEASUREMENT)
    alarms: list[dict[str, Any]] = []
    if last_record and not last_record.get("layers"):  # alarms say why nothing was measured
        alarms = read_run(view.folder, kinds=(ALARM,), root=root).records
    measured = last_record or {}
    end = view.end or {}
    train = measured.get("train")
    train = train if isinstance(train, dict) else {}
    why = end.get("why") or (view.heartbeat.get("why") if view.state == "failed" else None)
    last = last_layer(measured)  # over all data, as in the rows of a sweep and on the pages
    return {
        "name": view.name,
        "folder": str(view.folder),
        "kind": view.manifest.kind,
        "state": view.state,
        "health": health_of(last_record, state=view.state, alarms=alarms),
        "progress": view.progress,
        "step": _first(view.heartbeat.get("step"), measured.get("step")),
        "total": _first(view.heartbeat.get("total")),
        "epoch": _first(measured.get("epoch")),
        "accuracy": _first(last.get("accuracy"), end.get("accuracy"), train.get("accuracy")),
        "loss": _first(last.get("loss"), end.get("loss"), train.get("loss")),
        "min_intra": _first(last.get("min_intra"), end.get("min_intra")),
        "why": None if why is None else str(why),
        "problem": view.problem,
        "seed": view.manifest.seed,
        "created": view.manifest.created,
        "config": view.manifest.config,
        "metrics": _metrics(last_record),
    }


def _metrics(record: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return every scalar of the last measurement, by layer."""
    from nclab.records.schema import layers_of, title_of_layer

    return {
        title_of_layer(layer, index): {
            name: value
            for name, value in layer.items()
            if name != "layer" and (value is None or isinstance(value, bool | int | float))
        }
        for index, layer in enumerate(layers_of(record))
    }


def _first(*values: Any) -> int | float | None:
    """Return the first of the values that is a finite number; None if none is."""
    return next((value for value in values if is_number(value)), None)


def _table(rows: list[dict[str, Any]]) -> "Table":
    """Return the table; the column `why` appears only if a run has a reason or a problem."""
    headings = [name for name in COLUMNS if name != "why" or any(map(COLUMNS[name], rows))]
    lines = [[COLUMNS[name](row) for name in headings] for row in rows]
    colours = {"state": COLOURS, "health": {row["health"]: "red" for row in rows}}
    right = [name for name in headings if name not in WORDS]
    # Names of runs differ at the end, so they are never shortened.
    return text_table(headings, lines, colours=colours, fold=["run"], right=right)
