"""Results on disk: the numbers of experiments as JSON, and records of runs as one flat table."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.errors import MissingExtra, NclabError, RecordError
from nclab.files import read_regular, translate_os_errors, write_whole
from nclab.records.encoding import dump_checked_json, load_checked_json
from nclab.records.journal import JOURNAL
from nclab.records.read import MOMENT_COLUMNS, RunView, SkippedPath, find_runs, read_run
from nclab.records.schema import FLEET, MEASUREMENT, completed

Row = dict[str, Any]

NUMBERS = "numbers.json"
CLAIMS = "claims.json"
SKIPPED = "skipped.json"
UNREADABLE = "unreadable"
"""Key under which `read_numbers` returns why the numbers of an experiment cannot be read."""
FORMATS = ("csv", "parquet", "json")
"""Formats of the flat table."""


def make_folder(folder: Path) -> None:
    """Create a folder and its parent folders if they do not exist."""
    with translate_os_errors("make the folder", folder, NclabError):
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; an object gets a checksum. Numbers must be finite."""
    if isinstance(value, Mapping):
        content = dump_checked_json(value)
    else:
        content = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1).encode()
    write_whole(path, content)


def parse_json(path: Path, *, root: Path | None = None) -> Any:
    """Return the value of a JSON file, with None for numbers that are not finite.

    Raise `RecordError` if the file cannot be read or is damaged. With `root`, no link below that
    folder is followed.
    """
    try:
        value, has_checksum = load_checked_json(read_regular(path, root=root))
    except OSError as error:
        raise RecordError(str(error.strerror)) from error
    if has_checksum:
        del value["schema"]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file is missing or damaged."""
    try:
        content = parse_json(path)
    except RecordError:
        return {}
    return content if isinstance(content, dict) else {}


def heading(name: str, *, preset: str, seeds: Sequence[int], config: Any) -> Row:
    """Return the settings of an experiment in the form in which its numbers file stores them.

    If a numbers file has the same settings, `kept_numbers` returns it, and nothing is recomputed.
    """
    return {
        "experiment": name,
        "preset": preset,
        "seeds": list(seeds),
        "settings": json.loads(json.dumps(asdict(config))),  # turns tuples into lists
        "nclab": __version__,
    }


def kept_numbers(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers in a folder if they were computed with these settings, else None."""
    numbers = read_json(folder / NUMBERS)
    return numbers if all(numbers.get(key) == wanted[key] for key in wanted) else None


def read_numbers(runs: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the content of RUNS/<experiment>/numbers.json for every experiment that has the file.

    If a file cannot be read or holds another experiment, the reason is under "unreadable".
    """
    results = {}
    for name in names:
        path = runs / name / NUMBERS
        if not path.exists():
            continue
        try:
            numbers = parse_json(path, root=runs)
        except RecordError as error:
            results[name] = {UNREADABLE: str(error)}
            continue
        if not isinstance(numbers, dict):
            results[name] = {UNREADABLE: f"a JSON {type(numbers).__name__}, not an object"}
        elif numbers.get("experiment", name) != name:
            results[name] = {UNREADABLE: f"it holds the numbers of {numbers['experiment']!r}"}
        else:
            results[name] = numbers
    return results


def digest(runs: Path, name: str) -> str:
    """Return the SHA-256 of the numbers of an experiment, empty if they cannot be read."""
    try:
        return hashlib.sha256(read_regular(runs / name / NUMBERS, root=runs)).hexdigest()
    except OSError:
        return ""


def record_rows(
    folder: Path, *, kinds: Sequence[str] = (MEASUREMENT,), skipped: list[SkippedPath] | None = None
) -> list[Row]:
    """Return a row for each layer and step of every run, with its configuration; scalars only.

    Other kinds of records give one row each, after the measurements. All rows have the same
    columns: the run, its configuration as `config.<name>`, step and epoch, the numbers. Runs and
    files that cannot be read are added to `skipped`; no link is followed.
    """
    skipped = [] if skipped is None else skipped
    rows: list[Row] = []
    for path in find_runs(folder, skipped=skipped):
        try:
            view = read_run(path, root=folder, warn=False)
        except RecordError as error:
            skipped.append(SkippedPath(path, str(error)))
            continue
        if view.problem:
            journal = path / JOURNAL
            reason = f"Not all of {journal} could be read: {view.problem}."
            skipped.append(SkippedPath(journal, reason))
        rows += _rows(view, kinds)
    columns = sorted(dict.fromkeys(name for row in rows for name in row), key=_order)
    return [{name: row.get(name) for name in columns} for row in rows]


def write_rows(rows: Sequence[Row], file: Path, kind: str) -> None:
    """Write a table as csv, parquet (extra `arrow`) or json, atomically."""
    write_whole(file, encoded(rows, kind), through_link=True)


def encoded(rows: Sequence[Row], kind: str) -> bytes:
    """Return a table as csv, parquet or json.

    >>> encoded([{"run": "a", "loss": 0.5}], "csv")
    b'run,loss\\na,0.5\\n'
    """
    if kind not in FORMATS:
        raise NclabError(f"Expected the format {' or '.join(FORMATS)}, got {kind!r}.")
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
    settings = {
        f"config.{name}": json.dumps(value) if isinstance(value, list | dict) else value
        for name, value in _flatten(complete, "")
    }
    head: Row = {"run": view.name, "folder": str(view.folder), "kind": view.manifest.kind}
    head |= {"state": view.state, "seed": view.manifest.seed, **settings}
    if MEASUREMENT in kinds:
        for row in view.layer_rows():
            yield {**head, "record": MEASUREMENT, **row}
    for record in view.records:
        if record["kind"] in kinds and record["kind"] != MEASUREMENT:
            values = {k: v for k, v in record.items() if not isinstance(v, dict | list)}
            yield {**head, "record": values.pop("kind"), **values}


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, value


def _order(name: str) -> int:
    """Return the sort key of a column: first the run, then its configuration, then the numbers."""
    first = ("run", "folder", "kind", "state", "seed")
    if name in first:
        return first.index(name)
    return len(first) + (not name.startswith("config.")) * (1 + (name not in MOMENT_COLUMNS))


def _typed(rows: Sequence[Row]) -> list[Row]:
    """Return rows in which every column has one type, as Parquet requires.

    Integers and floats become floats; other mixed columns become text.
    """
    typed = [dict(row) for row in rows]
    for name in rows[0] if rows else ():
        types = {type(row[name]) for row in rows if row[name] is not None}
        if len(types) > 1:
            convert = float if types == {int, float} else str
            for row in typed:
                row[name] = None if row[name] is None else convert(row[name])
    return typed
