"""The results of a folder of runs as one table: every setting and every number of a row."""

import csv
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nclab.errors import NclabWarning, RecordError
from nclab.files import write_whole
from nclab.records import glance
from nclab.records.fleet_config import FLEET
from nclab.training.sweep.rows import Row, row_from, settings_of

CSV, PARQUET = "results.csv", "results.parquet"


def results(out: Path, *, threshold: float = 0.99) -> list[Row]:
    """A row for every network of a folder that has ended, all with the same columns.

    Settings first, those that a run leaves at their default included, then what was measured. A
    run that cannot be read, or that no sweep has made, is left out with a warning.
    """
    rows = []
    for manifest in sorted(out.glob("*/manifest.json")):
        try:
            view = glance(manifest.parent)
            if view.manifest.kind == FLEET and view.end is not None:
                row = row_from(view, threshold=threshold)
                rows.append({"run": row["run"], **settings_of(view.manifest.config), **row})
        except (RecordError, LookupError, TypeError, AttributeError) as error:
            why = error if isinstance(error, RecordError) else "its configuration is another one"
            words = f"{manifest.parent} is left out of the table of results: {why}"
            warnings.warn(words, NclabWarning, stacklevel=2)
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: _cell(row.get(name)) for name in columns} for row in rows]


def write_results(out: Path, *, threshold: float = 0.99) -> list[Path]:
    """Write them as `results.csv`, and as `results.parquet` where pyarrow is installed."""
    rows = results(out, threshold=threshold)
    written = [out / CSV]
    write_whole(out / CSV, _as_csv(rows))
    parquet = _as_parquet(rows)
    if parquet is not None:
        write_whole(out / PARQUET, parquet)
        written.append(out / PARQUET)
    return written


def _cell(value: Any) -> Any:
    """What a table holds: numbers, words, truths; lists as words."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _as_csv(rows: Sequence[Row]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _as_parquet(rows: Sequence[Row]) -> bytes | None:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        return None
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue().to_pybytes())
