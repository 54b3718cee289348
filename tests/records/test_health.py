"""`health_of` names what is wrong with a run, for all tables and pages."""

from typing import Any

import pytest

from nclab.records.schema import health_of

GOOD = {"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3, "mean_inter": -0.3, "samples": 8}
ALARM = {"kind": "alarm", "name": "not finite"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"accuracy": 0.98}, "not converged"),
        ({"loss": float("nan")}, "not finite"),
        ({"loss": None}, "not finite"),
        ({"mean_inter": 1.0}, "dead"),
        ({"zero_features": 8}, "dead"),
        ({"zero_features": 3}, ""),
        ({"max_inter": 1.0}, "not converged"),
        ({"accuracy": None, "loss": None}, ""),  # a layer that no classifier reads
    ],
)
def test_health_of_a_layer(change: dict[str, Any], expected: str) -> None:
    assert health_of({"layers": [{"layer": "first"}, {**GOOD, **change}]}) == expected


def test_health_of_an_unfinished_run() -> None:
    record = {"layers": [{**GOOD, "accuracy": 0.5}]}
    assert health_of(record, state="running") == ""
    assert health_of(record, state="stopped") == "not converged"
    assert health_of(None) == ""


def test_health_without_a_measurement() -> None:
    assert health_of({"layers": []}) == "not measured"
    assert health_of({"layers": []}, alarms=[ALARM]) == "not finite"
    assert health_of({"layers": [], "why": "12 features are not finite"}) == "not finite"
    assert health_of({"layers": [GOOD]}, alarms=[ALARM]) == ""  # it has recovered
