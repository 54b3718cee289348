"""Descent on the layer-peeled model: fixed rate, noisy or stochastic, and normalised."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from nclab.errors import NclabError
from nclab.progress import track
from nclab.ulpm.problem import Array, Problem, as_problem, invariants
from nclab.ulpm.steppers import (
    Advance,
    KernelStepper,
    NumpyStepper,
    Stepper,
    TorchStepper,
    kernel_available,
)
from nclab.ulpm.trajectory import Outcome, Sample, Trajectory, log_schedule, take_sample

Backend = Literal["auto", "kernel", "numpy", "torch", "cuda"]

KERNEL_WORK = 250_000
"""Products C * CN * d up to which the compiled kernel, on one core, beats torch."""

KERNEL_STEPS = 20_000
"""Steps from which on it pays to load the kernel (half a second; seconds where it is new)."""

MOST_STEPS = 10**15
"""More would take years."""


@dataclass(frozen=True)
class Disturbance:
    """What makes descent noisy or stochastic; the same numbers on every backend."""

    noise: float = 0.0
    """Standard deviation of the normal number added to each entry of the gradient, every step."""
    batch: int | None = None
    """Samples drawn without replacement every step, in place of all."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise NclabError(f"Expected noise >= 0, got {self.noise}.")
        if self.batch is not None and self.batch < 1:
            raise NclabError(f"Expected a batch of at least 1 sample, got {self.batch}.")


def descend(
    problem: Problem,
    start: Array | None = None,
    *,
    steps: int,
    rate: float = 5.0,
    disturbance: Disturbance | None = None,
    sample_at: Sequence[int] | None = None,
    backend: Backend = "auto",
) -> Trajectory:
    r"""Gradient descent with a fixed rate, sampled on a logarithmic schedule.

    $$\theta \leftarrow \theta - \eta\nabla L(\theta)$$

    Source: ji2022, Sec. 4 (rate 5, on the mean loss)

    Args:
        start: a point; by default normal numbers of standard deviation 0.1, seed 0.
        sample_at: the steps to measure; 12 a decade by default, always the first and the last.
        backend: `auto` takes torch for large problems, for small ones the compiled kernel, or
            numpy where the run is short or numba missing; `cuda` is torch on a GPU.

    >>> run = descend(Problem(3, 2, 2), steps=100)
    >>> run.outcome.value, run.last.margin > 0
    ('finished', True)
    """
    stepper = _stepper(problem, start, rate, steps, normalised=False, backend=backend)
    return _run(stepper, "descent", steps, disturbance, sample_at)


def normalised_descent(
    problem: Problem,
    start: Array | None = None,
    *,
    steps: int,
    rate: float = 300.0,
    sample_at: Sequence[int] | None = None,
    backend: Backend = "auto",
) -> Trajectory:
    r"""Descent whose rate grows as the loss falls, so that the margin grows linearly.

    $$\theta \leftarrow \theta - c\,\frac{\nabla L(\theta)}{L(\theta)\,\|\theta\|^2}$$

    Source: ji2022, Sec. 5.3 (the loss-dependent rate it asks for)

    For (C, N, d) = (5, 10, 20) rates up to 300 are stable; without the norm in the denominator
    descent goes to the edge of stability. Arguments as for `descend`.

    >>> run = normalised_descent(Problem(3, 2, 2), steps=100, rate=20.0)
    >>> run.last.log_time > 30
    True
    """
    stepper = _stepper(problem, start, rate, steps, normalised=True, backend=backend)
    return _run(stepper, "normalised", steps, None, sample_at)


def _run(
    stepper: Stepper,
    method: str,
    steps: int,
    disturbance: Disturbance | None,
    sample_at: Sequence[int] | None,
) -> Trajectory:
    problem = stepper.problem
    if steps < 1:
        raise NclabError(f"Expected at least 1 step, got {steps}.")
    if steps > MOST_STEPS:
        raise NclabError(f"Expected at most {MOST_STEPS:g} steps, got {steps}. Take the flow.")
    wanted = log_schedule(steps) if sample_at is None else sample_at
    schedule = sorted({0, steps, *(step for step in wanted if 0 < step < steps)})
    theta = stepper.theta()
    start = invariants(problem, theta)
    samples: list[Sample] = [take_sample(problem, theta, start, step=0, log_time=-math.inf)]
    outcome, message = Outcome.finished, f"{steps} steps"
    log_time = -math.inf
    advance = _between_samples(stepper, disturbance)
    for before, after in track(list(pairwise(schedule)), method):
        done = advance(after - before)
        log_time = float(np.logaddexp(log_time, done.log_time))
        reached = stepper.theta()
        # Finite, and the fourth powers that the invariants take are finite too.
        if not (done.finite and np.abs(reached).max() < 1e70):
            outcome = Outcome.diverged
            message = (
                f"grown beyond all bounds by step {before + done.steps}; the rate "
                f"{stepper.rate:g} is too large for the {problem.reduction} loss"
            )
            break
        theta = reached
        samples.append(take_sample(problem, theta, start, step=after, log_time=log_time))
    return Trajectory(problem, method, stepper.name, tuple(samples), theta, outcome, message)


def _between_samples(stepper: Stepper, disturbance: Disturbance | None) -> Callable[[int], Advance]:
    """What takes so many steps, one by one where each needs random numbers."""
    problem = stepper.problem
    share = np.full(problem.samples, problem.share)
    if disturbance is None:
        return lambda steps: stepper.advance(steps, share)
    noise, batch = disturbance.noise, disturbance.batch
    generator = np.random.default_rng(disturbance.seed)
    if batch is not None and batch > problem.samples:
        raise NclabError(f"Expected a batch of at most {problem.samples} samples, got {batch}.")

    def drawn() -> Array:
        """The weight of every sample: those of the batch carry that of all."""
        if batch is None:
            return share
        weights = np.zeros_like(share)
        chosen = generator.choice(problem.samples, batch, replace=False)
        weights[chosen] = problem.share * problem.samples / batch
        return weights

    def advance(steps: int) -> Advance:
        log_time = -math.inf
        for step in range(1, steps + 1):
            done = stepper.advance(1, drawn())
            if noise > 0:
                stepper.move(-stepper.rate * noise * generator.standard_normal(problem.shape))
            log_time = float(np.logaddexp(log_time, done.log_time))
            if not done.finite:
                return Advance(step, log_time, False)
        return Advance(steps, log_time, True)

    return advance


def _stepper(
    problem: Problem,
    start: Array | None,
    rate: float,
    steps: int,
    *,
    normalised: bool,
    backend: Backend,
) -> Stepper:
    as_problem(problem)
    if not (math.isfinite(rate) and rate > 0):
        raise NclabError(f"Expected a positive rate, got {rate}.")
    theta = problem.initial() if start is None else problem.checked(start).copy()
    if normalised and not theta.any():
        raise NclabError("Expected a start other than zero: normalised descent divides by |theta|.")
    if backend == "auto":
        backend = _fastest(problem, steps)
    if backend == "kernel":
        return KernelStepper(problem, theta, rate, normalised=normalised)
    if backend == "numpy":
        return NumpyStepper(problem, theta, rate, normalised=normalised)
    if backend in ("torch", "cuda"):
        return TorchStepper(problem, theta, rate, normalised=normalised, device=backend)
    raise NclabError(f"Expected backend auto, kernel, numpy, torch or cuda, got {backend!r}.")


def _fastest(problem: Problem, steps: int) -> Backend:
    if problem.num_classes * problem.samples * problem.dim > KERNEL_WORK:
        return "torch"
    return "kernel" if steps >= KERNEL_STEPS and kernel_available() else "numpy"
