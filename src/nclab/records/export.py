"""The records of runs as one flat table, for tools of others."""

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
MOMENT = ("step", "epoch", "log_time", "source")


def record_rows(
    folder: Path,
    *,
    kinds: Sequence[str] = (MEASUREMENT,),
    left_out: list[LeftOut] | None = None,
) -> list[Row]:
    """A row for each layer and moment of every run, with its configuration; scalars only.

    Records of other kinds are rows as they are. Every row has the same columns: the run, its
    configuration as `config.<name>`, the moment, the numbers. What cannot be read, of a run or
    of the folder, hides nothing else and is told in `left_out`; no link is followed.

    >>> record_rows(Path("no-such-folder"))
    []
    """
    told: list[LeftOut] = [] if left_out is None else left_out
    rows = [row for view in _views(folder, told) for row in _rows(view, kinds)]
    columns = sorted(dict.fromkeys(name for row in rows for name in row), key=_order)
    return [{name: row.get(name) for name in columns} for row in rows]


def _views(folder: Path, left_out: list[LeftOut]) -> Iterator[RunView]:
    for place in find_runs(folder, left_out=left_out):
        try:
            view = read_run(place, arrays=False, root=folder, warn=False)
        except RecordError as error:
            left_out.append(LeftOut(place, str(error)))
            continue
        if view.problem:
            journal = place / JOURNAL
            left_out.append(LeftOut(journal, f"Not all of {journal} is read: {view.problem}."))
        yield view


def flat_config(view: RunView) -> Row:
    """The configuration of a run under dotted names, defaults of a fleet's included."""
    config = view.manifest.config
    whole = completed(config) if view.manifest.kind == FLEET else config
    return dict(_flat(whole, ""))


def write_rows(rows: Sequence[Row], file: Path, kind: str) -> None:
    """Write a table as csv, parquet (extra `arrow`) or json, whole or not at all."""
    write_whole(file, encoded(rows, kind), through_link=True)


def encoded(rows: Sequence[Row], kind: str) -> bytes:
    """The bytes of such a file.

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
    told = {f"config.{name}": _cell(value) for name, value in flat_config(view).items()}
    head: Row = {"run": view.name, "folder": str(view.folder), "kind": view.manifest.kind}
    head |= {"state": view.state, "seed": view.manifest.seed, **told}
    for record in view.records:
        if record["kind"] not in kinds:
            continue
        if record["kind"] != MEASUREMENT:
            own = {name: _cell(value) for name, value in record.items() if name != "kind"}
            yield {**head, "record": record["kind"], **own}
            continue
        when = {name: record[name] for name in MOMENT if name in record}
        for layer in layers_of(record):
            plain = {name: value for name, value in layer.items() if not isinstance(value, dict)}
            numbers = {name: _cell(value) for name, value in plain.items() if name != "warnings"}
            yield {**head, "record": MEASUREMENT, **when, "split": split_of(record), **numbers}


def _flat(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{where}.{name}" if where else str(name))
    elif where:
        yield where, value


def _cell(value: Any) -> Any:
    """What a table holds: numbers, words, truths; lists as words."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _order(name: str) -> int:
    """The run and its configuration first; else as they come."""
    first = ("run", "folder", "kind", "state", "seed")
    if name in first:
        return first.index(name)
    return len(first) + (not name.startswith("config.")) * (1 + (name not in MOMENT))


def _typed(rows: Sequence[Row]) -> list[Row]:
    """Columns of one type each, as Parquet wants: mixed ones become words."""
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).update(() if value is None else (type(value),))
    mixed = {name for name, found in kinds.items() if len(found) > 1 and not found <= {int, float}}
    floats = {name for name, found in kinds.items() if found == {int, float}}
    return [
        {
            name: None
            if value is None
            else str(value)
            if name in mixed
            else float(value)
            if name in floats
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
