"""Tests of descent on every backend: golden runs, divergence, repeatable noise."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from nclab.compute import has_numba
from nclab.errors import NclabError
from nclab.ulpm import Disturbance, Outcome, Problem, Trajectory, descend, normalised_descent
from nclab.ulpm.descent import Backend
from tests.reference.slow_ulpm import slow_loss
from tests.ulpm.golden import GOLDEN, assert_row

PROBLEM = Problem(5, 10, 20)
BACKENDS: list[Backend] = ["numpy", "torch"]
BACKENDS += ["kernel"] if has_numba() else []
needs_kernel = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


@cache
def run_descent(scale: float, steps: int) -> Trajectory:
    """Return a run of descent; two tests share the longest one."""
    return descend(PROBLEM, PROBLEM.initial(scale=scale), steps=steps, sample_at=[])


@pytest.mark.parametrize("row", GOLDEN["descent"], ids=lambda row: f"{row['steps']}-{row['scale']}")
def test_descent_reproduces_the_reference_runs(row: dict[str, float]) -> None:
    if row["steps"] > 1000 and not has_numba():
        pytest.skip("numba is not installed")
    run = run_descent(row["scale"], int(row["steps"]))
    assert_row(run.last, row["values"], relative=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", GOLDEN["normalised"], ids=lambda row: str(row["steps"]))
def test_normalised_descent_reproduces_the_reference_runs(
    backend: Backend, row: dict[str, float]
) -> None:
    run = normalised_descent(PROBLEM, steps=int(row["steps"]), backend=backend, sample_at=[])
    assert_row(run.last, row["values"], relative=0.01)  # type: ignore[arg-type]


@needs_kernel
def test_few_normalised_steps_beat_100_000_steps_of_descent() -> None:
    level = run_descent(0.1, 100_000).last
    for rate, expected in GOLDEN["steps_to_the_level_of_descent"].items():
        run = normalised_descent(
            PROBLEM, steps=expected + 20, rate=float(rate), sample_at=range(1, 130)
        )
        passed = [sample.step for sample in run.samples if sample.margin >= level.margin]
        assert passed[0] == expected, rate
        below = run.column("nc1_within_variation") <= level.nc1_within_variation
        assert run.samples[below.argmax()].step == expected, rate
        step = next(
            sample.step
            for sample in run.samples
            if sample.margin >= level.margin
            and sample.nc1_within_variation <= level.nc1_within_variation
            and sample.nc2_equiangularity_means <= level.nc2_equiangularity_means
            and sample.nc2_equiangularity_weights <= level.nc2_equiangularity_weights
            and sample.nc3_self_duality <= level.nc3_self_duality
        )
        assert step <= 1.05 * expected, rate
        assert rate != "300" or step <= 15


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_steps_agree_with_slow_descent(backend: Backend) -> None:
    problem = Problem(3, 2, 2, "sum")
    theta = problem.initial(scale=1.0, seed=5)
    expected, width = theta.copy(), 1e-6
    for _ in range(3):
        gradient = np.empty_like(expected)
        for index in np.ndindex(*expected.shape):
            moved = []
            for sign in (1, -1):
                other = expected.copy()
                other[index] += sign * width
                moved.append(slow_loss(*problem.split(other), problem.per_class))
            gradient[index] = (moved[0] - moved[1]) / (2 * width)
        expected -= 0.1 * gradient
    run = descend(problem, theta, steps=3, rate=0.1, backend=backend)
    np.testing.assert_allclose(run.theta, expected, atol=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 5, 2), (7, 3, 6), (4, 9, 11)])
def test_backends_agree(backend: Backend, sizes: tuple[int, int, int]) -> None:
    problem = Problem(*sizes)
    start = problem.initial(scale=0.5, seed=1)
    reference = descend(problem, start, steps=50, rate=2.0, backend="numpy")
    run = descend(problem, start, steps=50, rate=2.0, backend=backend)
    np.testing.assert_allclose(run.theta, reference.theta, rtol=1e-10, atol=1e-12)
    assert run.backend == backend
    reference = normalised_descent(problem, start, steps=20, rate=3.0, backend="numpy")
    run = normalised_descent(problem, start, steps=20, rate=3.0, backend=backend)
    np.testing.assert_allclose(run.theta, reference.theta, rtol=1e-9, atol=1e-11)
    assert run.last.log_time == pytest.approx(reference.last.log_time, rel=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_divergence_is_a_result(backend: Backend) -> None:
    problem = Problem(5, 10, 20, "sum")
    run = descend(problem, steps=1000, rate=5.0, backend=backend)
    assert run.outcome is Outcome.diverged
    assert "rate 5 is too large for the sum loss" in run.message
    assert np.isfinite(run.theta).all()
    assert run.last.step < 110
    stable = descend(problem, steps=1000, rate=0.5, backend=backend)
    assert stable.outcome is Outcome.finished
    assert stable.last.normalised_margin > 0.9


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("disturbance", [Disturbance(noise=0.1, seed=3), Disturbance(batch=5)])
def test_noise_is_the_same_on_every_backend(backend: Backend, disturbance: Disturbance) -> None:
    problem = Problem(3, 4, 2)
    runs = [
        descend(problem, steps=30, rate=0.5, disturbance=disturbance, backend=name)
        for name in ("numpy", backend)
    ]
    np.testing.assert_allclose(runs[0].theta, runs[1].theta, rtol=1e-10, atol=1e-12)
    undisturbed = descend(problem, steps=30, rate=0.5)
    assert np.abs(undisturbed.theta - runs[0].theta).max() > 1e-3


def test_a_batch_of_all_samples_is_plain_descent() -> None:
    problem = Problem(3, 4, 2)
    every = descend(problem, steps=20, disturbance=Disturbance(batch=problem.samples))
    np.testing.assert_allclose(every.theta, descend(problem, steps=20).theta, rtol=1e-12)


def test_samples_follow_the_schedule() -> None:
    problem = Problem(3, 2, 2)
    run = descend(problem, steps=40, sample_at=[5, 40, 70, 10])
    assert [sample.step for sample in run.samples] == [0, 5, 10, 40]
    assert run.samples[0].log_time == -math.inf
    assert run.last.log_time == pytest.approx(math.log(5.0 * 40))


def test_large_problems_use_torch() -> None:
    problem = Problem(20, 20, 64)
    run = descend(problem, steps=2, sample_at=[])
    assert run.backend == "torch"
    assert run.last.log_loss < run.samples[0].log_loss


def test_descent_runs_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nclab.ulpm.descent.KERNEL_STEPS", 5)
    if has_numba():
        assert descend(Problem(3, 2, 2), steps=5).backend == "kernel"
    monkeypatch.setattr("nclab.ulpm.descent.has_numba", lambda: False)
    assert descend(Problem(3, 2, 2), steps=5).backend == "numpy"
    with pytest.raises(NclabError, match=r"pip install nclab\[fast\]"):
        descend(Problem(3, 2, 2), steps=5, backend="kernel")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_raises() -> None:
    with pytest.raises(NclabError, match="CUDA device, got none"):
        descend(Problem(3, 2, 2), steps=5, backend="cuda")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "at least 1 step, got 0"),
        ({"steps": 5, "rate": -1.0}, "positive rate, got -1"),
        ({"steps": 5, "rate": math.nan}, "positive rate, got nan"),
        ({"steps": 5, "backend": "abacus"}, "got 'abacus'"),
        ({"steps": 5, "disturbance": Disturbance(batch=99)}, "at most 6 samples, got 99"),
    ],
)
def test_invalid_options_raise(options: dict[str, object], words: str) -> None:
    with pytest.raises(NclabError, match=words):
        descend(Problem(3, 2, 2), **options)  # type: ignore[arg-type]


def test_invalid_disturbances_raise() -> None:
    with pytest.raises(NclabError, match="noise >= 0"):
        Disturbance(noise=-1.0)
    with pytest.raises(NclabError, match="batch of at least 1"):
        Disturbance(batch=0)
    problem = Problem(3, 2, 2)
    with pytest.raises(NclabError, match="other than zero"):
        normalised_descent(problem, np.zeros(problem.shape), steps=1)
