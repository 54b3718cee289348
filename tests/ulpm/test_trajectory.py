"""Tests of samples against the slow metrics, and of schedules."""

import json
import math

import pytest

from nclab.errors import NclabError
from nclab.ulpm import Problem, descend
from nclab.ulpm.trajectory import QUANTITIES, log_schedule, quantities
from tests.reference.slow import slow_metrics


def test_quantities_agree_with_the_slow_loops() -> None:
    problem = Problem(4, 3, 5)
    theta = descend(problem, steps=30).theta
    W, H = problem.split(theta)
    expected = slow_metrics(H, problem.labels, W)
    values = quantities(problem, theta)
    assert set(QUANTITIES) < set(values)
    for name, value in values.items():
        assert value == pytest.approx(expected[name], rel=1e-10), name


def test_samples_are_plain_json() -> None:
    run = descend(Problem(3, 2, 2), steps=10)
    rows = [sample.to_dict() for sample in run.samples]
    assert rows[0]["log_time"] is None
    assert json.loads(json.dumps(rows, allow_nan=False))[-1]["step"] == 10
    assert run.samples[0].kkt_epsilon != run.samples[0].kkt_epsilon or rows[0]["kkt_epsilon"]


def test_columns() -> None:
    run = descend(Problem(3, 2, 2), steps=100)
    assert run.column("step")[-1] == 100
    with pytest.raises(NclabError, match="field of Sample, got 'speed'"):
        run.column("speed")


@pytest.mark.parametrize("last", [0, 1, 2, 3, 17, 100_000])
def test_schedules_have_the_right_first_and_last_step(last: int) -> None:
    steps = log_schedule(last)
    assert steps[0] == 0
    assert steps[-1] == last
    assert steps == sorted(set(steps))
    assert len(steps) <= 2 + 12 * max(1.0, math.log10(last) if last else 1) + 1
