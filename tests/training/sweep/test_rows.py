"""Rows follow from the records."""

from pathlib import Path
from typing import Any

import pytest

import nclab
from nclab.records import open_run
from nclab.records.schema import has_converged
from nclab.training.sweep.rows import rows_of, summary

GOOD: dict[str, Any] = {"accuracy": 0.995, "loss": 0.1, "max_inter": -0.3}


def test_the_row_is_the_last_layer_of_the_last_measurement() -> None:
    layers = [{"min_intra": 0.1, "accuracy": None}, {"min_intra": 0.9, "accuracy": 1.0}]
    row = summary({"epoch": 7, "layers": layers})
    assert (row["min_intra"], row["accuracy"], row["epoch"]) == (0.9, 1.0, 7)
    assert summary(None)["min_intra"] is None
    assert summary({"epoch": 3, "layers": []})["loss"] is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"accuracy": 0.989}, False),
        ({"accuracy": None}, False),
        ({"loss": float("inf")}, False),
        ({"max_inter": None}, False),
        ({"max_inter": 1 - 1e-9}, False),
    ],
)
def test_convergence(change: dict[str, Any], expected: bool) -> None:
    assert has_converged({**GOOD, **change}, threshold=0.99) is expected


def test_a_run_that_has_not_ended_has_no_row(tmp_path: Path) -> None:
    open_run(tmp_path / "a", kind="fleet", config={}, seed=0).close()
    with pytest.raises(nclab.NclabError, match="Run the sweep again"):
        rows_of(tmp_path, ["a"])
