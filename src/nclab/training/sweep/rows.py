"""The rows of a sweep: one flat summary per model, from the records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nclab.errors import NclabError
from nclab.metrics.catalogue import plugged
from nclab.records import RunView, glance
from nclab.records.fleet_config import completed
from nclab.records.health import has_converged
from nclab.records.schema import last_layer
from nclab.training.sweep.config import ALWAYS

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
"""What a row takes from the measurement of the last layer."""
RENAMED = {"loss": "objective"}
"""Options whose name is a metric's: what is trained on, and the cross-entropy that is measured."""
TEST = "test"
HELD_OUT = (
    "accuracy",
    "loss",
    "nc1_trace_pinv",
    "reference_ncc_accuracy",
    "strong_test_collapse",
    "weak_test_collapse",
    "reference_mean_shift",
)
"""What a row takes, as test_..., from that of the held-out samples where there are some."""


def measured_names() -> tuple[str, ...]:
    """What a row takes from the last layer: ours, and the metrics of plugins."""
    return (*MEASURED, *(metric.name for metric in plugged()))


def summary(measurement: dict[str, Any] | None, test: dict[str, Any] | None = None) -> Row:
    """The numbers of a row, from the last measurement records; None where there is none."""
    last = last_layer(measurement)
    record = measurement or {}
    numbers = {name: last.get(name) for name in measured_names()}
    held_out = {f"{TEST}_{name}": last_layer(test).get(name) for name in HELD_OUT} if test else {}
    return {"epoch": record.get("epoch"), "why": record.get("why"), **numbers, **held_out}


def rows_of(out: Path, names: Sequence[str], *, threshold: float = 0.99) -> list[Row]:
    """The rows of ended runs, in the order of their names."""
    return [row_of(out / name, threshold=threshold) for name in names]


def row_of(folder: Path, *, threshold: float = 0.99) -> Row:
    """The row of one ended run."""
    return row_from(glance(folder), threshold=threshold)


def row_from(view: RunView, *, threshold: float = 0.99) -> Row:
    """The row of an ended run that was read."""
    end = view.end
    if end is None:
        raise NclabError(
            f"Expected a run that has ended, but {view.folder} has not. Run the sweep again to "
            "go on."
        )
    config = view.manifest.config
    row = {
        "norm": config["member"]["norm"],
        "weight_decay": config["member"]["weight_decay"],
        "seed": config["member"]["seed"],
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
        **_later_options(config),
        "run": view.name,
    }


def _later_options(config: dict[str, Any]) -> Row:
    """Options that a run's configuration has only where they are not the default."""
    later = {**config["data"].get("selection", {})}
    for part, always in ALWAYS.items():
        later |= {name: value for name, value in config[part].items() if name not in always}
    return {RENAMED.get(name, name): value for name, value in later.items()}


def settings_of(config: dict[str, Any]) -> Row:
    """All that a run was told but its norm, weight decay and seed, under the names of rows."""
    whole = completed(config)
    data = {name: value for name, value in whole["data"].items() if "digest" not in name}
    selection, label = data.pop("selection"), data.pop("label")
    own = {f"data_{name}": value for name, value in data.items()}
    found = {"data": label, **own, **selection, **whole["shape"], **whole["recipe"]}
    return {RENAMED.get(name, name): value for name, value in found.items()}


def differing(settings: Sequence[Row]) -> list[str]:
    """The settings of which there is more than one value.

    >>> differing([{"rate": 0.1, "batch": 8}, {"rate": 0.2, "batch": 8}, {"rate": 0.2}])
    ['rate', 'batch']
    """
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]
