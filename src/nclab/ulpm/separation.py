r"""Problem (5) of ji2022: weights and features of smallest norm that separate the classes.

$$\min \tfrac12\|W\|_F^2+\tfrac12\|H\|_F^2 \quad\text{s.t.}\quad (w_k-w_j)\cdot h_{k,i}\ge 1$$

for every sample i of class k and every other class j. This file has the optimum, a solver, and
certificates that check the Karush-Kuhn-Tucker (KKT) conditions. Each constraint has a multiplier
and a slack, its margin minus 1.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nclab.errors import NclabError
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.ulpm.problem import (
    Array,
    Problem,
    logit_gradient,
    pair_margins,
    smallest_margin,
)

ACTIVE = 1e-6
"""A constraint counts as active if its margin exceeds the smallest one by at most this share."""


def optimal_value(problem: Problem) -> float:
    r"""Return the optimal objective of problem (5).

    $$(C-1)\sqrt N$$

    Source: ji2022, Thm 3.2 (its value: Lemma 3.1 with margin 1)
    Range: [1, inf).
    """
    return (problem.num_classes - 1) * math.sqrt(problem.per_class)


def optimal_point(problem: Problem, *, seed: int | None = None) -> Array:
    r"""Return a global optimum of problem (5), a simplex ETF with features parallel to rows.

    $$\|w_k\|^2=\sqrt N\,\tfrac{C-1}{C},\quad h_{k,i}=w_k/\sqrt N$$

    With a seed, the optimum is rotated at random.

    Source: ji2022, Thm 3.2
    """
    classes, size = problem.num_classes, math.sqrt(problem.per_class)
    frame = simplex_etf(classes, problem.dim).numpy()
    if seed is not None:
        random = np.random.default_rng(seed).standard_normal((problem.dim, problem.dim))
        frame = frame @ np.linalg.qr(random)[0]
    W = math.sqrt(size * (classes - 1) / classes) * frame
    return np.concatenate([W, np.repeat(W, problem.per_class, axis=0) / size])


def optimal_multiplier(problem: Problem) -> float:
    r"""Return the multiplier of every constraint at the global optimum of problem (5).

    $$\lambda_{kij} = \frac1{C\sqrt N}$$

    Source: ji2022, Thm 3.2 (proof)
    Range: (0, 1/2].
    """
    return 1.0 / (problem.num_classes * math.sqrt(problem.per_class))


class ApproximateKKT(NamedTuple):
    """Distance of a point, scaled to smallest margin 1, from the KKT conditions of problem (5)."""

    log_loss: float
    alignment: float
    """Cosine beta between the point theta and minus the gradient of the loss."""
    epsilon: float
    """Norm of theta minus the sum, over the constraints, of multiplier times margin gradient."""
    delta: float
    """Largest product of a constraint's multiplier and slack; 0 at a KKT point."""
    delta_bound: float
    """Upper bound on `delta` by ji2022, Lemma 3.2, with the constant of its proof."""


def approximate_kkt(problem: Problem, theta: Array) -> ApproximateKKT:
    r"""Measure how far a point is from the KKT conditions of problem (5).

    $$\varepsilon=\sqrt{2(1-\beta)/\kappa},\qquad
      \delta\le\frac{C}{2e\kappa\,q_{\min}},\qquad \kappa=q_{\min}/\|\theta\|^2$$

    The multipliers are proportional to the derivatives of the loss with respect to the logits.
    $\beta$ is the cosine of the point $\theta$ and minus the gradient of the loss, and $q_{\min}$
    the smallest margin.

    Source: ji2022, Lemma 3.2 (beta with -grad L; printed without the minus)
    Range: epsilon and delta in [0, inf); nan while a sample is classified wrongly.

    kappa changes along a run. With this kappa the first formula is an equality, and the second
    bounds each multiplier times its slack. The paper uses a positive constant that is at most kappa
    at all times, and a bound on delta that is larger by a factor e.
    """
    log_loss, weights = logit_gradient(problem, theta)
    W, H = problem.split(theta)
    gradient = np.concatenate([weights.T @ H, weights @ W])
    size, steepness = float(np.linalg.norm(theta)), float(np.linalg.norm(gradient))
    if size == 0 or steepness == 0:
        return ApproximateKKT(log_loss, math.nan, math.nan, math.nan, math.nan)
    # The difference of the unit vectors keeps the digits of 1 - beta where beta is near 1.
    gap = float(np.linalg.norm(theta / size + gradient / steepness))
    margins = pair_margins(problem, theta)
    smallest = float(margins.min())
    beta = 1.0 - 0.5 * gap**2
    if smallest <= 0:
        return ApproximateKKT(log_loss, beta, math.nan, math.nan, math.nan)
    multipliers = weights * (size / steepness)
    slack = np.where(np.isinf(margins), 0.0, margins / smallest - 1.0)
    kappa = smallest / size**2
    return ApproximateKKT(
        log_loss,
        beta,
        epsilon=gap / math.sqrt(kappa),
        delta=float((multipliers * slack).max()),
        delta_bound=problem.num_classes / (2 * math.e * kappa * smallest),
    )


@dataclass(frozen=True)
class KKTCertificate:
    """A point of problem (5), scaled to smallest margin 1, with multipliers and KKT residuals."""

    theta: Array
    multipliers: Array
    """(CN, C) non-negative multiplier of every sample and other class; 0 for the label."""
    value: float
    """Objective of problem (5), half the squared norm of the scaled point."""
    lower_bound: float
    """Lower bound on the objective of every feasible point, from ji2022, Lemma 3.1."""
    stationarity: float
    """Norm of theta minus the sum, over the constraints, of multiplier times margin gradient,
    divided by the norm of theta."""
    complementarity: float
    """Largest product of a constraint's multiplier and slack."""

    @property
    def gap(self) -> float:
        """Difference between the value and the lower bound, divided by the lower bound."""
        return self.value / self.lower_bound - 1.0

    @property
    def residual(self) -> float:
        """Maximum of stationarity and complementarity; 0 at a KKT point."""
        return max(self.stationarity, self.complementarity)

    def kind(self, tolerance: float = 1e-6) -> str:
        """Return `global minimum`, `KKT point` or `not a KKT point`."""
        if self.residual > tolerance:
            return "not a KKT point"
        return "global minimum" if self.gap <= tolerance else "KKT point"


def certify(problem: Problem, theta: Array, multipliers: Array | None = None) -> KKTCertificate:
    """Scale a point to smallest margin 1 and measure its KKT residuals in problem (5).

    The point must separate the classes. By default, nclab computes the multipliers with the
    smallest residual; only active constraints have multipliers other than 0.

    Source: ji2022, Eq. (5)

    >>> problem = Problem(4, 2, 3)
    >>> certificate = certify(problem, optimal_point(problem))
    >>> certificate.kind(), round(certificate.value, 9)
    ('global minimum', 4.242640687)
    """
    smallest = smallest_margin(problem, theta)
    if smallest <= 0:
        raise NclabError(
            "Expected a point that separates the classes, got a smallest margin of "
            f"{smallest:.3g}. Run descent or flow until the margin is positive."
        )
    scaled = theta / math.sqrt(smallest)
    margins = pair_margins(problem, scaled)
    if multipliers is None:
        multipliers = best_multipliers(problem, scaled, margins)
    combined = margin_gradient(problem, scaled, multipliers)
    slack = np.where(np.isinf(margins), 0.0, margins - 1.0)
    value = 0.5 * float((scaled**2).sum())
    return KKTCertificate(
        scaled,
        multipliers,
        value,
        optimal_value(problem),
        stationarity=float(np.linalg.norm(scaled - combined) / np.linalg.norm(scaled)),
        complementarity=float((multipliers * slack).max()),
    )


def margin_gradient(problem: Problem, theta: Array, multipliers: Array) -> Array:
    """Return the sum over all constraints of multiplier times gradient of the margin.

    The result has the shape of theta.
    """
    W, H = problem.split(theta)
    weights = -multipliers
    weights[problem.rows, problem.labels] = multipliers.sum(1)
    return np.concatenate([weights.T @ H, weights @ W])


def best_multipliers(problem: Problem, theta: Array, margins: Array) -> Array:
    """Return the non-negative multipliers with the smallest stationarity residual.

    Only active constraints have multipliers other than 0.
    """
    from scipy.optimize import nnls

    active = np.argwhere(margins <= margins.min() * (1 + ACTIVE))  # (a, 2) samples and classes
    columns = np.zeros((theta.size, len(active)))
    for column, (sample, other) in enumerate(active):
        unit = np.zeros_like(margins)
        unit[sample, other] = 1.0
        columns[:, column] = margin_gradient(problem, theta, unit).ravel()
    multipliers = np.zeros_like(margins)
    multipliers[active[:, 0], active[:, 1]] = nnls(columns, theta.ravel())[0]
    return multipliers


def solve_separation(
    problem: Problem, *, seed: int = 0, rounds: int = 60, tolerance: float = 1e-9
) -> KKTCertificate:
    r"""Solve problem (5) from a random start by augmented Lagrangians, and certify the answer.

    $$\min_\theta \tfrac12\|\theta\|^2
      + \tfrac1{2\rho}\sum_{kij}\bigl(\lambda_{kij}+\rho(1-m_{kij})\bigr)_+^2$$

    $m_{kij}$ are the margins, $\lambda_{kij}$ the multipliers and $\rho$ the penalty parameter.
    L-BFGS minimises this function for fixed multipliers, which are updated after each minimisation.
    The closed-form optimum is used only in the certificate, so the solution is independent of it.

    Source: ji2022, Eq. (5)

    >>> problem = Problem(3, 1, 2)
    >>> certificate = solve_separation(problem)
    >>> certificate.kind(), round(certificate.value, 6)
    ('global minimum', 2.0)
    """
    from scipy.optimize import minimize

    others = ~np.isinf(pair_margins(problem, np.zeros(problem.shape)))
    penalty = 1.0 / math.sqrt(problem.per_class)
    multipliers = np.zeros(others.shape)
    theta = problem.initial(scale=1.0, seed=seed)

    def step_from(theta: Array, multipliers: Array) -> Array:
        """Return updated multipliers: larger where a constraint is violated, never negative."""
        return np.maximum(multipliers + penalty * (1.0 - pair_margins(problem, theta)), 0.0)

    def objective(flat: Array, multipliers: Array) -> tuple[float, Array]:
        point = flat.reshape(problem.shape)
        updated = step_from(point, multipliers)
        value = 0.5 * float(flat @ flat) + float((updated**2).sum()) / (2 * penalty)
        return value, (point - margin_gradient(problem, point, updated)).ravel()

    options: dict[str, Any] = {"maxiter": 2000, "maxcor": 30, "gtol": 1e-11, "ftol": 1e-16}
    for _ in range(rounds):
        result = minimize(
            objective, theta.ravel(), (multipliers,), jac=True, method="L-BFGS-B", options=options
        )
        theta = result.x.reshape(problem.shape)
        updated = step_from(theta, multipliers)
        change = float(np.abs(updated - multipliers).max())
        multipliers = updated
        if change <= tolerance and smallest_margin(problem, theta) > 0:
            break
    return certify(problem, theta, multipliers)


def ray_value(problem: Problem, theta: Array) -> float:
    r"""Return the smallest objective of problem (5) among the feasible multiples of a point.

    $$\frac{\|W\|_F^2+\|H\|_F^2}{2\,q_{\min}}$$

    Source: ji2022, Remark 3.1 (with power 1 of the margin; printed with power 1/2)
    Range: [(C - 1) sqrt(N), inf).
    """
    square = float((theta**2).sum())
    return square / (2 * smallest_margin(problem, theta))
