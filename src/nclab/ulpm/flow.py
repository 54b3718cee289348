r"""Gradient flow of the layer-peeled model up to any time t.

The speed of the flow is proportional to the loss L, which becomes tiny. nclab therefore integrates
in a rescaled time s with $ds = L\|\theta\|^2 dt$, in which the margin grows linearly, and computes
log(1 + t) along with the point $\theta$.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nclab.errors import NclabError
from nclab.progress import track
from nclab.ulpm.problem import Array, Problem, invariants, log_gradient
from nclab.ulpm.trajectory import Outcome, Sample, Trajectory, take_sample

Derivative = Callable[[float, Array], Array]

EVALUATIONS = 10_000_000
"""Largest number of gradient evaluations; a flow that needs more counts as stalled."""

FIRST, LAST = -30.0, 1e7
"""Smallest and largest final log t. Up to log t = -30 the point hardly moves; log t = 1e7 needs
about `EVALUATIONS` gradients."""


def flow(
    problem: Problem,
    start: Array | None = None,
    *,
    log_time: float,
    sample_at: Sequence[float] | None = None,
    tolerance: float = 1e-9,
) -> Trajectory:
    r"""Follow gradient flow from t = 0 to log t = `log_time`, as large as 1000 or more.

    $$\frac{d\theta}{dt} = -\nabla L(\theta)$$

    Source: ji2022, Sec. 2.2 (printed without the minus)

    The state is $(\theta, \log(1+t))$, integrated in $s$ with DOP853:
    $d\theta/ds = -\nabla\log L/\|\theta\|^2$,
    $d\log(1+t)/ds = \exp(-\log(1+t)-\log L-\log\|\theta\|^2)$. The number of steps grows in
    proportion to log t: 325 steps up to log t = 1000 for (C, N, d) = (5, 10, 20). Every sample
    contains the drift of the flow's invariants.

    Args:
        log_time: log t at the end.
        start: a point; by default Gaussian numbers with standard deviation 0.1 and seed 0.
        sample_at: the values of log t to measure; by default evenly spaced in
            log(1 + log(1 + t)).
        tolerance: relative error per step; with 1e-9 the invariants drift by less than 1e-8.

    >>> run = flow(Problem(3, 2, 2), log_time=50.0)
    >>> round(run.last.log_time, 9), run.last.margin > 40
    (50.0, True)
    """
    from scipy.integrate import DOP853

    if not math.isfinite(log_time):
        raise NclabError(f"Expected a finite log time, got {log_time}.")
    if not FIRST <= log_time <= LAST:
        raise NclabError(f"Expected a log time from {FIRST:g} to {LAST:g}, got {log_time:g}.")
    theta = problem.initial() if start is None else problem.checked(start).copy()
    if not theta.any():
        raise NclabError("Expected a start other than zero: the flow does not leave zero.")
    sample_at = flow_schedule(log_time) if sample_at is None else sample_at
    targets = sorted({log_time, *(float(time) for time in sample_at if time < log_time)})
    state = np.append(theta.ravel(), 0.0)
    precision = {"rtol": tolerance, "atol": tolerance * 1e-3}
    solver = DOP853(_derivative(problem), 0.0, state, math.inf, **precision)
    step = 0
    conserved = invariants(problem, theta)
    samples: list[Sample] = [take_sample(problem, theta, conserved, step=0, log_time=-math.inf)]
    outcome, message = Outcome.finished, f"log t = {log_time:g}"
    for target in track(targets, "flowing"):
        steps, failure = _advance(solver, _log1p_exp(target))
        if failure is not None:
            outcome = Outcome.stalled
            message = f"the integrator stopped before log t = {target:g}: {failure}"
            break
        step += steps
        theta = _state_at(solver, _log1p_exp(target))[:-1].reshape(problem.shape)
        samples.append(take_sample(problem, theta, conserved, step=step, log_time=target))
    return Trajectory(problem, "flow", "numpy", tuple(samples), theta, outcome, message)


def flow_schedule(log_time: float, *, count: int = 60) -> list[float]:
    """Return values of log t from t = 0.1 to `log_time`, evenly spaced in log(1 + log(1 + t))."""
    first = min(math.log1p(0.1), _log1p_exp(log_time))
    points = np.geomspace(1 + first, 1 + _log1p_exp(log_time), count) - 1
    return [_log_expm1(float(point)) for point in points]


def _advance(solver: Any, clock: float) -> tuple[int, str | None]:
    """Integrate until log(1 + t) reaches `clock`.

    Return the number of steps, and the reason if the integrator fails.
    """
    steps = 0
    while solver.y[-1] < clock:
        failure = solver.step()
        steps += 1
        if solver.status == "failed" or solver.nfev > EVALUATIONS:
            return steps, str(failure or f"{solver.nfev} gradients used")
    return steps, None


def _state_at(solver: Any, clock: float) -> Array:
    """Return the state at log(1 + t) = `clock`, interpolated within the last step."""
    from scipy.optimize import brentq

    interpolant, time = solver.dense_output(), solver.t
    if interpolant(time)[-1] > clock:
        time = brentq(lambda s: interpolant(s)[-1] - clock, solver.t_old, time, xtol=1e-14)
    state: Array = interpolant(time)
    return state


def _derivative(problem: Problem) -> Derivative:
    shape = problem.shape

    def derivative(_: float, state: Array) -> Array:
        log_loss, slope = log_gradient(problem, state[:-1].reshape(shape))
        square = float(state[:-1] @ state[:-1])
        change = np.empty_like(state)
        np.divide(slope.ravel(), -square, out=change[:-1])
        change[-1] = math.exp(-state[-1] - log_loss - math.log(square))
        return change

    return derivative


def _log1p_exp(x: float) -> float:
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))
