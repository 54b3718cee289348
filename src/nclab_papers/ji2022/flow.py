"""Gradient flow of ji2022: its limit directions, and how fast the loss falls along a direction.

Let u be a unit vector of all parameters (W, H) that classifies every sample correctly, and q_min
the smallest margin at u. At radius r, the loss L(r u) is a sum of exponentials, and the largest
one decides: log L(r u) = -q_min r^2 up to a constant.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import holds_if, max_abs
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.flow import flow
from nclab.ulpm.landscape import square_norm
from nclab.ulpm.problem import (
    Array,
    Problem,
    largest_margin,
    log_gradient,
    log_loss,
    logit_gradient,
    smallest_margin,
)
from nclab.ulpm.separation import approximate_kkt, margin_gradient, optimal_point
from nclab.ulpm.trajectory import slope
from nclab_papers.ji2022.landscape import SIZES as SPEED_SIZES
from nclab_papers.ji2022.margin import SEEDS, SIZES

LOG_TIMES = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Values of log t at which the flow is sampled."""
LOG_LOG_2 = math.log(math.log(2))
"""The theorems assume that log L, the logarithm of the loss, is below this number."""
NEAR = 0.1
"""A KKT residual at the last sampled time counts as zero if it is at most this number."""

DIRECTIONS = 50
"""Number of random directions drawn for each size."""
FAR = (100.0, 200.0)
"""Two radii; `speed` is computed from the losses at both."""
RADII = (5.0, 10.0, 20.0, 40.0, 80.0)
"""Radii r at which -log L / r^2 is compared with the margin."""


@cache
def _direction(preset: str) -> Numbers:
    """Measure KKT residuals along flows from random points to t = 1e434.

    Also measure them at the end of the flow that starts at Example 3.1.
    """
    rows, recomputed, aligned = [], [], []
    for size, seed in product(SIZES, range(SEEDS[preset])):
        problem = Problem(*size, "sum")
        start = problem.initial(scale=0.3, seed=seed)
        run = flow(problem, start, log_time=LOG_TIMES[-1], sample_at=LOG_TIMES)
        for log_time, sample in zip(LOG_TIMES, run.samples[1:], strict=True):
            rows.append(
                {
                    "log_time": log_time,
                    "epsilon": sample.kkt_epsilon,
                    "delta": sample.kkt_delta,
                    "alignment_gap": 1 - sample.alignment,
                    "margin": sample.margin,
                    "log_loss": sample.log_loss,
                }
            )
        residuals = approximate_kkt(problem, run.theta)
        recomputed.append(residuals.epsilon / run.last.kkt_epsilon - 1)
        aligned.append(1 - approximate_kkt(problem, run.theta).alignment)
    stuck = flow(example_problem(), example_point(1.0), log_time=LOG_TIMES[2]).last
    return {
        "runs": len(aligned),
        "rows": rows,
        "recomputed": max_abs(recomputed),
        "aligned": [min(aligned), max(aligned)],
        "stuck": {
            "epsilon": stuck.kkt_epsilon,
            "delta": stuck.kkt_delta,
            "normalised_margin": stuck.normalised_margin,
        },
    }


def _largest_by_time(numbers: Numbers, name: str) -> list[float]:
    """Return the largest value of a quantity over all runs, for every time in `LOG_TIMES`."""
    return [
        max(float(row[name]) for row in numbers["rows"] if row["log_time"] == time)
        for time in LOG_TIMES
    ]


def _if_loss_is_small(right: bool, evidence: str, numbers: Numbers) -> Finding:
    """Return the verdict on a statement about the flows, which assumes that the loss is small.

    The verdict is open if the loss of some flow is not below log 2 at log t = 10.
    """
    first = _largest_by_time(numbers, "log_loss")[0]
    evidence = (
        f"{numbers['runs']} flows, all with a loss below log 2 at log t = 10 (log loss "
        f"{number(first)}). {evidence}"
    )
    if not first < LOG_LOG_2:
        evidence = f"the loss of a flow is not below log 2 at log t = 10: {evidence}"
        return Finding(Verdict.OPEN, evidence, numbers)
    return holds_if(right, evidence, numbers)


def _at_decades(series: Sequence[float]) -> str:
    """Return the values of a series over `LOG_TIMES` at log t = 10, 100 and 1000 as text."""
    return ", ".join(number(series[LOG_TIMES.index(time)]) for time in (10.0, 100.0, 1000.0))


@claim(
    "ji2022/thm-3.1",
    Kind.THEOREM,
    "Once the loss is below log 2, every limit direction of gradient flow is the direction of a "
    "KKT point of the minimum-norm separation problem.",
    "ji2022, Thm 3.1 “is along the direction of an Karush-Kuhn-Tucker (KKT)”",
    gather=_direction,
    code="nclab.ulpm.flow.flow",
    figure="margins_flow",
)
def thm_3_1(numbers: Numbers) -> Finding:
    """Require a small loss, and KKT residuals that fall below `NEAR` like powers of log t."""
    epsilon, delta = _largest_by_time(numbers, "epsilon"), _largest_by_time(numbers, "delta")
    stuck = numbers["stuck"]
    powers = {
        name: slope(LOG_TIMES[2:], series[2:]) if min(series) > 0 else math.nan
        for name, series in (("epsilon", epsilon), ("delta", delta))
    }
    evidence = (
        f"At log t = 10, 100, 1000 the points are (epsilon, delta)-KKT points with "
        f"epsilon at most {_at_decades(epsilon)} and delta at most {_at_decades(delta)}, which "
        f"fall like powers {number(powers['epsilon'])} and {number(powers['delta'])} of log t. "
        f"From Example 3.1 the limit is also a KKT point (epsilon {number(stuck['epsilon'])}), "
        f"with normalised margin {stuck['normalised_margin']:.4f}"
    )
    near = 0 <= epsilon[-1] <= NEAR and 0 <= delta[-1] <= NEAR
    vanishing = powers["epsilon"] <= -0.25 and powers["delta"] <= -0.25
    consistent = numbers["recomputed"] <= 1e-6
    second_limit = 0 <= stuck["epsilon"] <= 1e-6 and abs(stuck["normalised_margin"] - 0.75) <= 1e-6
    right = near and vanishing and consistent and second_limit
    return _if_loss_is_small(right, evidence, numbers)


def _approximate(preset: str) -> Numbers:
    """Compare the bounds of Lemma 3.2 with KKT residuals, computed by definition, at random points.

    Only points whose loss is below log 2 are used.
    """
    rng = np.random.default_rng(1)
    equality, ratios, signs, constants = [], [], [], []
    for size in SIZES:
        problem = Problem(*size, "sum")
        for _ in range(100):
            noise = 10 ** rng.uniform(-3, -1) * rng.normal(size=problem.shape)
            theta = rng.uniform(1, 6) * (optimal_point(problem) + noise)
            if log_gradient(problem, theta).log_loss >= LOG_LOG_2:
                continue
            residuals = approximate_kkt(problem, theta)
            constants.append(smallest_margin(problem, theta) / float(np.vdot(theta, theta)))
            equality.append(_stationarity(problem, theta) / residuals.epsilon - 1)
            ratios.append(residuals.delta / (math.e * residuals.delta_bound))
            gradient = log_gradient(problem, theta).gradient
            norms = float(np.linalg.norm(theta) * np.linalg.norm(gradient))
            signs.append(float(np.vdot(theta, gradient)) / norms)
    return {
        "points": len(ratios),
        "equality_error": max_abs(equality),
        "delta_ratio": max(ratios),
        "largest_beta_printed": max(signs),
        "constants": [min(constants), max(constants)],
    }


def _stationarity(problem: Problem, theta: Array) -> float:
    """Return the norm of the gradient of the Lagrangian of the separation problem.

    The point is scaled to margin 1, and the multipliers come from the gradient of the loss.
    """
    weights = logit_gradient(problem, theta).weights
    gradient = log_gradient(problem, theta).gradient
    scale = float(np.linalg.norm(theta) / np.linalg.norm(gradient))
    multipliers = np.maximum(weights, 0.0) * scale
    scaled = theta / math.sqrt(smallest_margin(problem, theta))
    return float(np.linalg.norm(scaled - margin_gradient(problem, scaled, multipliers)))


@claim(
    "ji2022/lemma-3.2",
    Kind.LEMMA,
    "Once the loss of gradient flow is below log 2, the point, scaled to margin 1, is an (epsilon, "
    "delta)-approximate KKT point with epsilon = sqrt(2(1 - beta)/C), delta = K/(2 C q_min), beta "
    "the cosine of the point and its gradient and C a positive constant.",
    "ji2022, Lemma 3.2 “approximate KKT point of the following minimum-norm separation problem”",
    gather=_approximate,
    code="nclab.ulpm.separation.approximate_kkt",
)
def lemma_3_2(numbers: Numbers) -> Finding:
    """Test the bounds of the lemma with C = q_min/|theta|^2; a smaller C loosens them."""
    beta = numbers["largest_beta_printed"]
    least, most = numbers["constants"]
    evidence = (
        f"{numbers['points']} points with a loss below log 2. Let beta be the cosine of theta and "
        f"-grad L, and C = q_min/|theta|^2 of each point, from {number(least)} to {number(most)}. "
        f"The stationarity equals sqrt(2(1 - beta)/C) to {number(numbers['equality_error'])}, and "
        f"each multiplier times its slack is at most {number(numbers['delta_ratio'])} of "
        f"K/(2 C q_min). A smaller constant C makes both bounds larger. As printed, without the "
        f"minus sign, beta is at most {number(beta)} and epsilon does not fall"
    )
    if numbers["equality_error"] > 1e-6 or numbers["delta_ratio"] > 1 or not least > 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.HOLDS if beta > 0 else Verdict.CORRECTED, evidence, numbers)


@claim(
    "ji2022/lemma-3.3",
    Kind.LEMMA,
    "Once the loss of gradient flow is below log 2, beta tends to 1 and the margin to infinity.",
    "ji2022, Lemma 3.3 “when time t goes to infinity”",
    gather=_direction,
    code="nclab.ulpm.separation.approximate_kkt",
    figure="margins_flow",
)
def lemma_3_3(numbers: Numbers) -> Finding:
    """Require that 1 - beta falls and the margin grows from each sampled time to the next.

    beta is the cosine of theta and the negative gradient.
    """
    gaps = _largest_by_time(numbers, "alignment_gap")
    margins = [
        min(float(row["margin"]) for row in numbers["rows"] if row["log_time"] == time)
        for time in LOG_TIMES
    ]
    evidence = (
        f"At log t = 10, 100, 1000: 1 - beta at most {_at_decades(gaps)}, margin at least "
        f"{_at_decades(margins)}"
    )
    least, most = numbers["aligned"]
    falling = all(b < a for a, b in pairwise(gaps)) and -1e-12 <= least <= most < 0.01
    growing = all(b > a for a, b in pairwise(margins)) and margins[-1] > 0.9 * LOG_TIMES[-1]
    return _if_loss_is_small(falling and growing, evidence, numbers)


def _unit(theta: Array) -> Array:
    return theta / math.sqrt(square_norm(theta))


def _directions(problem: Problem) -> list[Array]:
    """Return random directions that separate the classes, near a simplex ETF and far from it."""
    rng, directions = np.random.default_rng(0), []
    for _ in range(DIRECTIONS):
        noise = 10 ** rng.uniform(-3, -0.3) * rng.normal(size=problem.shape)
        directions.append(_unit(optimal_point(problem) + noise))
    return [theta for theta in directions if smallest_margin(problem, theta) > 0.01]


def speed(problem: Problem, direction: Array) -> float:
    """Return by how much log L falls along a direction if r^2 grows by 1, at large radii r.

    >>> problem = Problem(3, 1, 2, "sum")
    >>> round(speed(problem, _unit(optimal_point(problem))), 6)  # 1/(2(C - 1))
    0.25
    """
    near, far = (log_loss(problem, radius * direction) for radius in FAR)
    return (near - far) / (FAR[1] ** 2 - FAR[0] ** 2)


def _speeds(preset: str) -> Numbers:
    """Compare `speed` with the margin for random directions, a simplex ETF and Example 3.1."""
    ratios, errors, best = [], [], []
    for size in SPEED_SIZES:
        problem = Problem(*size, "sum")
        most = largest_margin(problem, 1.0)
        best.append(speed(problem, _unit(optimal_point(problem))) / most - 1)
        for direction in _directions(problem):
            measured = speed(problem, direction)
            ratios.append(measured / most)
            errors.append(measured / smallest_margin(problem, direction) - 1)
    example = speed(example_problem(), _unit(example_point()))
    return {
        "directions": len(ratios),
        "slowest": min(ratios),
        "fastest": max(ratios),
        "margin_error": max_abs(errors),
        "simplex_error": max_abs(best),
        "example": example / largest_margin(example_problem(), 1.0),
    }


@claim(
    "ji2022/sec-3.2-speeds",
    Kind.REMARK,
    "Along all directions that separate the classes the loss falls to 0, but at quite different "
    "speeds, and there is an optimal direction in which it falls fastest.",
    "ji2022, Sec. 3.2 “there exists an optimal direction with fastest decreasing speed”",
    gather=_speeds,
    code="nclab_papers.ji2022.flow.speed",
)
def sec_3_2_speeds(numbers: Numbers) -> Finding:
    """Require that each speed equals the margin, that speeds differ by a factor of 2 or more
    between directions, and that the speed of a simplex is the largest."""
    evidence = (
        f"in {numbers['directions']} directions the speed of log L per squared radius is between "
        f"{number(numbers['slowest'])} and {number(numbers['fastest'])} of the speed of a simplex "
        f"ETF; Example 3.1 has {number(numbers['example'])}. Each speed equals the smallest margin "
        f"of its direction to {number(numbers['margin_error'])}. The speed of a simplex ETF is the "
        f"largest possible margin, 1/(2(K - 1) sqrt n), to {number(numbers['simplex_error'])}"
    )
    different = 0 < numbers["slowest"] <= 0.5 and abs(numbers["example"] - 0.75) <= 1e-3
    fastest = numbers["fastest"] <= 1 + 1e-9 and numbers["simplex_error"] <= 1e-6
    return holds_if(different and fastest and numbers["margin_error"] <= 1e-3, evidence, numbers)


def _largest_terms(preset: str) -> Numbers:
    """Compare -log L / r^2 with the smallest margin along random directions, at growing radii r.

    The difference is at most log(number of exponentials in L) / r^2.
    """
    rows = []
    for radius in RADII:
        errors, shares = [], []
        for size in SPEED_SIZES:
            problem = Problem(*size, "sum")
            terms = problem.samples * (problem.num_classes - 1)
            for direction in _directions(problem):
                margin = smallest_margin(problem, direction)
                error = abs(-log_loss(problem, radius * direction) / radius**2 - margin)
                errors.append(error / margin)
                shares.append(error * radius**2 / math.log(max(2, terms)))
        rows.append({"radius": radius, "error": max_abs(errors), "of_bound": max_abs(shares)})
    return {"rows": rows}


@claim(
    "ji2022/sec-5.2-max",
    Kind.REMARK,
    "Large features give a better approximation to the problem of the normalised features, as "
    "scaled exponentials approximate the max.",
    "ji2022, Sec. 5.2 “via approximating the max function”",
    gather=_largest_terms,
    code="nclab.ulpm.problem.log_loss",
)
def sec_5_2_max(numbers: Numbers) -> Finding:
    """Require that -log L / r^2 converges to the margin as fast as the number of terms allows."""
    rows = numbers["rows"]
    errors = ", ".join(f"{number(row['error'])} at {row['radius']:g}" for row in rows)
    bound = max(row["of_bound"] for row in rows)
    evidence = (
        f"-log L / r^2 approaches the smallest margin of the normalised point; relative errors by "
        f"radius r are at most {errors}. The error times r^2 is at most {number(bound)} of the "
        f"logarithm of the number of terms, which is its bound"
    )
    falling = all(b["error"] < a["error"] / 3.5 for a, b in pairwise(rows))
    right = falling and bound <= 1 and rows[-1]["error"] <= 0.1
    return holds_if(right, evidence, numbers)
