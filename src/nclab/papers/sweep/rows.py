"""The rows of a sweep: one flat summary per model, from the records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nclab.errors import NclabError
from nclab.records import glance
from nclab.records.health import has_converged
from nclab.records.schema import last_layer

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


def summary(measurement: dict[str, Any] | None) -> Row:
    """The numbers of a row, from the last measurement record; None where there is none."""
    last = last_layer(measurement)
    record = measurement or {}
    numbers = {name: last.get(name) for name in MEASURED}
    return {"epoch": record.get("epoch"), "why": record.get("why"), **numbers}


def rows_of(out: Path, names: Sequence[str], *, threshold: float = 0.99) -> list[Row]:
    """The rows of ended runs, in the order of their names."""
    return [row_of(out / name, threshold=threshold) for name in names]


def row_of(folder: Path, *, threshold: float = 0.99) -> Row:
    """The row of one ended run."""
    view = glance(folder)
    end = view.end
    if end is None:
        raise NclabError(
            f"Expected a run that has ended, but {folder} has not. Run the sweep again to go on."
        )
    config = view.manifest.config
    row = {
        "norm": config["member"]["norm"],
        "weight_decay": config["member"]["weight_decay"],
        "seed": config["member"]["seed"],
        **{name: end.get(name) for name in MEASURED},
    }
    return {
        **row,
        "converged": end["state"] == "finished" and has_converged(row, threshold=threshold),
        "epoch": end.get("epoch"),
        "why": end.get("why"),
        "data": config["data"]["label"],
        "layers": config["shape"]["layers"],
        "width": config["shape"]["width"],
        "run": view.name,
    }
