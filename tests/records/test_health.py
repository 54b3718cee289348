"""What is wrong with a run is said by one function, for every table and page."""

from typing import Any

import pytest

from nclab.records.state import health_of

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
def test_of_a_measured_layer(change: dict[str, Any], expected: str) -> None:
    assert health_of({"layers": [{"layer": "first"}, {**GOOD, **change}]}) == expected


def test_of_a_run_that_goes_on() -> None:
    record = {"layers": [{**GOOD, "accuracy": 0.5}]}
    assert health_of(record, state="running") == ""
    assert health_of(record, state="stopped") == "not converged"
    assert health_of(None) == ""


def test_of_what_could_not_be_measured() -> None:
    assert health_of({"layers": []}) == "not measured"
    assert health_of({"layers": []}, alarms=[ALARM]) == "not finite"
    assert health_of({"layers": [], "why": "12 features are not finite"}) == "not finite"
    assert health_of({"layers": [GOOD]}, alarms=[ALARM]) == ""  # it has recovered
