"""The rows of a sweep: one flat summary per network, from its records, and tables of rows."""

import json
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import MissingExtra, NclabError, NclabWarning, RecordError
from nclab.metrics.catalogue import plugin_metrics
from nclab.records import RunView, glance
from nclab.records.results import write_rows
from nclab.records.schema import FLEET, completed, current, has_converged, last_layer
from nclab.text import number, scientific
from nclab.training.sweep.config import ALWAYS_STORED

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]

MEASURED = (
    "accuracy",
    "loss",
    "min_intra",
    "max_inter",
    "alpha",
    "beta",
    "mean_intra",
    "mean_inter",
    "centred_min_intra",
    "centred_max_inter",
    "optimal_loss",
    "excess_loss",
    "balanced_loss",
    "nc1_trace_pinv",
    "nc3_alignment_min",
    "nc4_ncc_accuracy",
    "zero_features",
)
"""Numbers of a row that come from the measurement of the last layer."""
RENAMED = {"loss": "objective"}
"""Options that have another name in a row, because a metric has their name: `loss` is the measured
cross-entropy, so the loss of the training is called `objective`."""
TEST = "test"
TEST_MEASURED = (
    "accuracy",
    "loss",
    "nc1_trace_pinv",
    "reference_ncc_accuracy",
    "strong_test_collapse",
    "weak_test_collapse",
    "reference_mean_shift",
)
"""Numbers of a row that come from the measurement of test samples; their names begin with test_."""
TABLE_COLUMNS = {
    "accuracy": "accuracy",
    "loss": "loss",
    "min_intra": "intra",
    "max_inter": "inter",
    "alpha": "α",
    "beta": "β",
}
MEMBER = ("norm", "weight_decay", "seed")
MOST_LINES = 200
"""Largest number of lines in a table on the terminal."""
CSV, PARQUET = "results.csv", "results.parquet"


def measured_names() -> tuple[str, ...]:
    """Return the names of measured numbers in a row, including the metrics of plugins."""
    return (*MEASURED, *(metric.name for metric in plugin_metrics()))


def summary(measurement: dict[str, Any] | None, test: dict[str, Any] | None = None) -> Row:
    """Return the measured numbers of a row; None for numbers that are missing in the records.

    Args:
        measurement: last record of the training samples.
        test: last record of the test samples, if any are held out.
    """
    last = last_layer(measurement)
    record = measurement or {}
    numbers = {name: last.get(name) for name in measured_names()}
    test_layer = last_layer(test) if test else {}
    test_numbers = {f"{TEST}_{name}": test_layer.get(name) for name in TEST_MEASURED if test}
    return {"epoch": record.get("epoch"), "why": record.get("why"), **numbers, **test_numbers}


def rows_of(out: Path, names: Sequence[str], *, threshold: float = 0.99) -> list[Row]:
    """Return the rows of ended runs in the order of their names."""
    return [row_from(glance(out / name), threshold=threshold) for name in names]


def row_from(view: RunView, *, threshold: float = 0.99) -> Row:
    """Return the row of an ended run, with all options that differ from their default."""
    end = view.end
    if end is None:
        raise NclabError(
            f"Expected a run that has ended, but {view.folder} has not. Run the sweep again to "
            "continue it."
        )
    config = view.manifest.config
    options = {**config["data"].get("selection", {})}
    for part, always in ALWAYS_STORED.items():
        stored = current(config[part])
        options |= {name: value for name, value in stored.items() if name not in always}
    row = {
        **{name: config["member"][name] for name in MEMBER},
        **{name: end.get(name) for name in measured_names()},
        **{name: end[name] for name in end if name.startswith((f"{TEST}_", "trained_"))},
    }
    return {
        **row,
        "converged": end["state"] == "finished" and has_converged(row, threshold=threshold),
        "epoch": end.get("epoch"),
        "why": end.get("why"),
        "data": config["data"]["label"],
        "layers": config["shape"]["layers"],
        "width": config["shape"]["width"],
        **{RENAMED.get(name, name): value for name, value in options.items()},
        "run": view.name,
    }


def settings_of(config: dict[str, Any]) -> Row:
    """Return all settings of a run except norm, weight decay and seed, named as in rows."""
    complete = completed(config)
    data = {name: value for name, value in complete["data"].items() if "digest" not in name}
    selection, label = data.pop("selection"), data.pop("label")
    of_data = {f"data_{name}": value for name, value in data.items()}
    settings = {"data": label, **of_data, **selection, **complete["shape"], **complete["recipe"]}
    return {RENAMED.get(name, name): value for name, value in settings.items()}


def differing(settings: Sequence[Row]) -> list[str]:
    """Return the names of settings that have more than one value.

    >>> differing([{"rate": 0.1, "batch": 8}, {"rate": 0.2, "batch": 8}, {"rate": 0.2}])
    ['rate', 'batch']
    """
    names = dict.fromkeys(name for row in settings for name in row)
    return [name for name in names if len({repr(row.get(name)) for row in settings}) > 1]


def rows_table(rows: Sequence[Row], axes: Collection[str] = ()) -> "Table":
    """Return a table for the terminal: a line per network and a column per setting that varies.

    Lines of networks that have not converged are dim, and the last column says why. The table has
    at most 200 lines.
    """
    from rich.table import Table

    others = [name for name in axes if name not in MEMBER]
    more = f"and {len(rows) - MOST_LINES:,} more" if len(rows) > MOST_LINES else None
    table = Table(header_style="bold", caption=more)
    for name in (*others, "norm"):
        table.add_column(name)
    for title in ("decay", "seed", *TABLE_COLUMNS.values()):
        table.add_column(title, justify="right")
    table.add_column("converged")
    for row in rows[:MOST_LINES]:
        values = [row.get(name) for name in others]
        settings = [number(v) if isinstance(v, float | None) else str(v) for v in values]
        member = [row["norm"], scientific(row["weight_decay"]), str(row["seed"])]
        cells = [number(row[name]) for name in TABLE_COLUMNS]
        if row["why"]:
            end = "not measured" if row["min_intra"] is None else "diverged"
        elif row["converged"]:
            end = "yes"
        else:
            end = "no, zero features" if row["zero_features"] else "no"
        style = None if row["converged"] else "dim"
        table.add_row(*settings, *member, *cells, end, style=style)
    return table


def results(out: Path, *, threshold: float = 0.99) -> list[Row]:
    """Return a row for every ended network of a folder, all with the same columns.

    Settings come first, including defaults, then measured numbers. A run that cannot be read or
    that does not belong to a sweep is skipped with a warning.
    """
    rows = []
    for manifest in sorted(out.glob("*/manifest.json")):
        try:
            view = glance(manifest.parent)
            if view.manifest.kind == FLEET and view.end is not None:
                row = row_from(view, threshold=threshold)
                rows.append({"run": row["run"], **settings_of(view.manifest.config), **row})
        except (RecordError, LookupError, TypeError, AttributeError) as error:
            reason = error if isinstance(error, RecordError) else "no sweep wrote its configuration"
            warnings.warn(
                f"{manifest.parent} is skipped in the table of results: {reason}",
                NclabWarning,
                stacklevel=2,
            )
    columns = dict.fromkeys(name for row in rows for name in row)
    for row in rows:
        row |= {k: json.dumps(v) for k, v in row.items() if isinstance(v, list | tuple | dict)}
    return [{name: row.get(name) for name in columns} for row in rows]


def write_results(out: Path, *, threshold: float = 0.99) -> list[Path]:
    """Write the results of a folder as `results.csv`, and as `results.parquet` with pyarrow."""
    rows = results(out, threshold=threshold)
    write_rows(rows, out / CSV, "csv")
    try:
        write_rows(rows, out / PARQUET, "parquet")
    except MissingExtra:
        return [out / CSV]
    return [out / CSV, out / PARQUET]
