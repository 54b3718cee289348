"""Tests of the flow: golden runs, invariants, rates, and agreement with small steps of descent."""

import math

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.ulpm import Outcome, Problem, descend, flow
from nclab.ulpm.trajectory import QUANTITIES, slope
from tests.ulpm.golden import GOLDEN, assert_row

PROBLEM = Problem(5, 10, 20)


def test_flow_reproduces_the_reference_runs_in_one_run() -> None:
    times = [row["log_time"] for row in GOLDEN["flow"]]
    run = flow(PROBLEM, log_time=1000.0, sample_at=times)
    assert run.outcome is Outcome.finished
    for row in GOLDEN["flow"]:
        sample = next(s for s in run.samples if s.log_time == row["log_time"])
        assert_row(sample, row["values"], relative=0.01)
        assert sample.invariant_drift < 1e-8


def test_asymptotic_rates() -> None:
    run = flow(PROBLEM, log_time=1000.0, sample_at=np.linspace(500.0, 1000.0, 11).tolist())
    late = [sample for sample in run.samples if sample.log_time >= 500]
    times = [sample.log_time for sample in late]
    for name in QUANTITIES:
        rate = slope(times, [getattr(sample, name) for sample in late])
        expected = -0.5 if name == "nc1_within_variation" else -1.0
        assert rate == pytest.approx(expected, abs=0.02), name
    assert slope(times, [1 - s.normalised_margin for s in late]) == pytest.approx(-1.0, abs=0.02)


def test_small_steps_of_descent_follow_the_flow() -> None:
    problem = Problem(3, 2, 2)
    start = problem.initial(scale=0.5, seed=1)
    end = flow(problem, start, log_time=math.log(20.0)).theta
    errors = [
        float(np.abs(descend(problem, start, steps=int(20 / rate), rate=rate).theta - end).max())
        for rate in (0.02, 0.01)
    ]
    assert errors[1] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


def test_within_class_variation_is_proportional_to_the_start() -> None:
    ends = [
        flow(PROBLEM, PROBLEM.initial(scale=scale), log_time=300.0).last.nc1_within_variation
        for scale in (0.05, 0.1)
    ]
    assert ends[1] / ends[0] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("sizes", [(3, 2, 2), (5, 4, 4)])
def test_without_spare_dimensions_within_class_variation_is_a_power_of_t(
    sizes: tuple[int, int, int],
) -> None:
    run = flow(Problem(*sizes), log_time=150.0, sample_at=[100.0])
    early, late = run.samples[-2:]
    fall = math.log(late.nc1_within_variation / early.nc1_within_variation)
    assert fall / 50.0 == pytest.approx(-1 / (2 * sizes[0]), rel=0.05)


def test_early_times_and_the_schedule() -> None:
    run = flow(Problem(3, 2, 2), log_time=-3.0, sample_at=[-5.0, -4.0, 7.0])
    assert [sample.log_time for sample in run.samples] == [-math.inf, -5.0, -4.0, -3.0]
    losses = run.column("log_loss")
    assert (np.diff(losses) < 0).all()


def test_reduction_only_rescales_time() -> None:
    total, mean = Problem(3, 4, 2, "sum"), Problem(3, 4, 2)
    first = flow(total, log_time=20.0).theta
    other = flow(mean, log_time=20.0 + math.log(12)).theta
    np.testing.assert_allclose(first, other, atol=1e-7)


def test_invalid_starts_and_times_raise() -> None:
    problem = Problem(3, 2, 2)
    with pytest.raises(NclabError, match="finite log time, got inf"):
        flow(problem, log_time=math.inf)
    assert flow(problem, log_time=-30.0).last.log_time == -30.0
    with pytest.raises(NclabError, match="log time from -30"):
        flow(problem, log_time=-40.0)
    with pytest.raises(NclabError, match="does not leave zero"):
        flow(problem, np.zeros(problem.shape), log_time=1.0)


def test_a_flow_with_too_many_gradients_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["nclab.ulpm.flow"], "EVALUATIONS", 100)
    run = flow(Problem(3, 2, 2), log_time=1000.0)
    assert run.outcome is Outcome.stalled
    assert "gradients used" in run.message
