"""Records of runs as one flat table for other programs: CSV, Parquet or JSON."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nclab.errors import MissingExtra, NclabError, RecordError
from nclab.files import write_whole
from nclab.records.fleet_config import FLEET, completed
from nclab.records.journal import JOURNAL
from nclab.records.read import LeftOut, RunView, find_runs, read_run
from nclab.records.schema import MEASUREMENT, layers_of, split_of

Row = dict[str, Any]
FORMATS = ("csv", "parquet", "json")
MOMENT_COLUMNS = ("step", "epoch", "log_time", "source")


def record_rows(
    folder: Path,
    *,
    kinds: Sequence[str] = (MEASUREMENT,),
    left_out: list[LeftOut] | None = None,
) -> list[Row]:
    """Return a row for each layer and step of every run, with its configuration; scalars only.

    Other kinds of records than measurements give one row each. All rows have the same columns: the
    run, its configuration as `config.<name>`, step and epoch, the numbers. Runs and files that
    cannot be read are added to `left_out`; no link is followed.

    >>> record_rows(Path("no-such-folder"))
    []
    """
    skipped: list[LeftOut] = [] if left_out is None else left_out
    rows = [row for view in _read_views(folder, skipped) for row in _rows(view, kinds)]
    columns = sorted(dict.fromkeys(name for row in rows for name in row), key=_order)
    return [{name: row.get(name) for name in columns} for row in rows]


def _read_views(folder: Path, left_out: list[LeftOut]) -> Iterator[RunView]:
    for path in find_runs(folder, left_out=left_out):
        try:
            view = read_run(path, arrays=False, root=folder, warn=False)
        except RecordError as error:
            left_out.append(LeftOut(path, str(error)))
            continue
        if view.problem:
            journal = path / JOURNAL
            left_out.append(
                LeftOut(journal, f"Not all of {journal} could be read: {view.problem}.")
            )
        yield view


def write_rows(rows: Sequence[Row], file: Path, kind: str) -> None:
    """Write a table as csv, parquet (extra `arrow`) or json, atomically."""
    write_whole(file, encoded(rows, kind), through_link=True)


def encoded(rows: Sequence[Row], kind: str) -> bytes:
    """Return a table as csv, parquet or json.

    >>> encoded([{"run": "a", "loss": 0.5}], "csv")
    b'run,loss\\na,0.5\\n'
    """
    if kind not in FORMATS:
        raise NclabError(f"Expected a format among {', '.join(FORMATS)}, got {kind!r}.")
    if kind == "json":
        text = json.dumps(list(rows), allow_nan=False, ensure_ascii=False, indent=1)
        return f"{text}\n".encode()
    if kind == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]) if rows else ["run"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().encode()
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtra("Parquet", package="pyarrow", extra="arrow") from error
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(_typed(rows)), sink)
    return bytes(sink.getvalue().to_pybytes())


def _rows(view: RunView, kinds: Sequence[str]) -> Iterator[Row]:
    config = view.manifest.config
    complete = completed(config) if view.manifest.kind == FLEET else config
    settings = {f"config.{name}": _cell(value) for name, value in _flatten(complete, "")}
    head: Row = {"run": view.name, "folder": str(view.folder), "kind": view.manifest.kind}
    head |= {"state": view.state, "seed": view.manifest.seed, **settings}
    for record in view.records:
        if record["kind"] not in kinds:
            continue
        if record["kind"] != MEASUREMENT:
            values = {name: _cell(value) for name, value in record.items() if name != "kind"}
            yield {**head, "record": record["kind"], **values}
            continue
        moment = {name: record[name] for name in MOMENT_COLUMNS if name in record}
        for layer in layers_of(record):
            scalars = {name: value for name, value in layer.items() if not isinstance(value, dict)}
            numbers = {name: _cell(value) for name, value in scalars.items() if name != "warnings"}
            yield {**head, "record": MEASUREMENT, **moment, "split": split_of(record), **numbers}


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, value


def _cell(value: Any) -> Any:
    """Return a value that fits into a cell; lists and dictionaries become JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _order(name: str) -> int:
    """Return the sort key of a column: the run first, then its configuration, then the rest."""
    first = ("run", "folder", "kind", "state", "seed")
    if name in first:
        return first.index(name)
    return len(first) + (not name.startswith("config.")) * (1 + (name not in MOMENT_COLUMNS))


def _typed(rows: Sequence[Row]) -> list[Row]:
    """Return rows in which every column has one type, as Parquet requires; others become text."""
    typed = [dict(row) for row in rows]
    for name in rows[0] if rows else ():
        types = {type(row[name]) for row in rows if row[name] is not None}
        if len(types) > 1:
            convert = float if types == {int, float} else str
            for row in typed:
                row[name] = None if row[name] is None else convert(row[name])
    return typed
