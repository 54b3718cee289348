"""Where gradient flow of ji2022 goes: towards KKT points of the separation problem."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import max_abs
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem, log_gradient, logit_gradient, smallest_margin
from nclab.ulpm.separation import alignment, approximate_kkt, margin_gradient, optimal_point
from nclab.ulpm.trajectory import Trajectory, slope
from nclab_papers.ji2022.margin import SEEDS, SIZES

LOG_TIMES = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Where the flow is looked at."""
LOG_LOG_2 = math.log(math.log(2))
"""What the logarithm of the loss must be below, by hypothesis."""
NEAR = 0.1
"""Residuals, at margin 1, that count as those of a KKT point at the last of them."""


@cache
def flows(preset: str) -> tuple[Trajectory, ...]:
    """Gradient flow of the sum of the losses to t = 1e434, from several starts."""
    return tuple(
        flow(
            (problem := Problem(*size, "sum")),
            problem.initial(scale=0.3, seed=seed),
            log_time=LOG_TIMES[-1],
            sample_at=LOG_TIMES,
        )
        for size in SIZES
        for seed in range(SEEDS[preset])
    )


@cache
def _direction(preset: str) -> Numbers:
    rows, recomputed, aligned = [], [], []
    for run in flows(preset):
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
        found = approximate_kkt(run.problem, run.theta)
        recomputed.append(found.epsilon / run.last.kkt_epsilon - 1)
        aligned.append(1 - alignment(run.problem, run.theta))
    stuck = flow(example_problem(), example_point(1.0), log_time=LOG_TIMES[2]).last
    return {
        "runs": len(flows(preset)),
        "rows": rows,
        "recomputed": max_abs(recomputed),
        "aligned": [min(aligned), max(aligned)],
        "stuck": {
            "epsilon": stuck.kkt_epsilon,
            "delta": stuck.kkt_delta,
            "normalised_margin": stuck.normalised_margin,
        },
    }


def _worst(numbers: Numbers, name: str) -> list[float]:
    """The largest value over the runs at every time after separation."""
    return [
        max(float(row[name]) for row in numbers["rows"] if row["log_time"] == time)
        for time in LOG_TIMES
    ]


def _at_decades(series: Sequence[float]) -> str:
    return ", ".join(number(series[LOG_TIMES.index(time)]) for time in (10.0, 100.0, 1000.0))


@claim(
    "ji2022/thm-3.1",
    Kind.THEOREM,
    "Once the loss is below log 2, every limit direction of gradient flow is that of a KKT point "
    "of the minimum-norm separation problem.",
    "ji2022, Thm 3.1 “is along the direction of an Karush-Kuhn-Tucker (KKT)”",
    gather=_direction,
    code="nclab.ulpm.flow.flow",
    figure="margins_flow",
)
def thm_3_1(numbers: Numbers) -> Finding:
    """The hypothesis must be met, and both residuals fall below `NEAR` like powers of log t."""
    epsilon, delta = _worst(numbers, "epsilon"), _worst(numbers, "delta")
    first, stuck = _worst(numbers, "log_loss")[0], numbers["stuck"]
    powers = {
        name: slope(LOG_TIMES[2:], series[2:]) if min(series) > 0 else math.nan
        for name, series in (("epsilon", epsilon), ("delta", delta))
    }
    evidence = (
        f"{numbers['runs']} flows, all below log 2 at log t = 10 (log loss {number(first)}): at "
        f"log t = 10, 100, 1000 they are (epsilon, delta)-KKT points with epsilon at most "
        f"{_at_decades(epsilon)} and delta at most {_at_decades(delta)}, powers "
        f"{number(powers['epsilon'])} and {number(powers['delta'])} of log t; from Example 3.1 the "
        f"limit is a KKT point too (epsilon {number(stuck['epsilon'])}), of normalised margin "
        f"{stuck['normalised_margin']:.4f}"
    )
    if not first < LOG_LOG_2:
        return Finding(Verdict.OPEN, f"a flow is not below log 2 in time: {evidence}", numbers)
    near = 0 <= epsilon[-1] <= NEAR and 0 <= delta[-1] <= NEAR
    vanishing = powers["epsilon"] <= -0.25 and powers["delta"] <= -0.25
    honest = numbers["recomputed"] <= 1e-6
    other = 0 <= stuck["epsilon"] <= 1e-6 and abs(stuck["normalised_margin"] - 0.75) <= 1e-6
    right = near and vanishing and honest and other
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _approximate(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    equality, ratios, signs, kappas = [], [], [], []
    for size in SIZES:
        problem = Problem(*size, "sum")
        for _ in range(100):
            noise = 10 ** rng.uniform(-3, -1) * rng.normal(size=problem.shape)
            theta = rng.uniform(1, 6) * (optimal_point(problem) + noise)
            if log_gradient(problem, theta).log_loss >= LOG_LOG_2:
                continue
            found = approximate_kkt(problem, theta)
            kappas.append(smallest_margin(problem, theta) / float(np.vdot(theta, theta)))
            equality.append(_residual(problem, theta) / found.epsilon - 1)
            ratios.append(found.delta / (math.e * found.delta_bound))
            slope = log_gradient(problem, theta).gradient
            size_product = float(np.linalg.norm(theta) * np.linalg.norm(slope))
            signs.append(float(np.vdot(theta, slope)) / size_product)
    return {
        "points": len(ratios),
        "equality_error": max_abs(equality),
        "delta_ratio": max(ratios),
        "largest_beta_printed": max(signs),
        "constants": [min(kappas), max(kappas)],
    }


def _residual(problem: Problem, theta: Any) -> float:
    """Stationarity of the point at margin 1 with the multipliers of the loss, by its definition."""
    weights = logit_gradient(problem, theta).weights
    slope = log_gradient(problem, theta).gradient
    multipliers = np.maximum(weights, 0.0) * float(np.linalg.norm(theta) / np.linalg.norm(slope))
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
    """With C the point's own q_min/|theta|^2: a constant below it only makes both bounds larger."""
    beta = numbers["largest_beta_printed"]
    least, most = numbers["constants"]
    evidence = (
        f"{numbers['points']} points with a loss below log 2: with beta the cosine of theta and "
        f"-grad L, and C = q_min/|theta|^2 of each point, from {number(least)} to {number(most)}, "
        f"the stationarity is sqrt(2(1 - beta)/C) to {number(numbers['equality_error'])} and each "
        f"multiplier times its slack at most {number(numbers['delta_ratio'])} of K/(2 C q_min); a "
        f"constant C below these makes both bounds larger. As printed, without the minus, beta is "
        f"at most {number(beta)} and epsilon does not fall"
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
    code="nclab.ulpm.separation.alignment",
    figure="margins_flow",
)
def lemma_3_3(numbers: Numbers) -> Finding:
    gaps = _worst(numbers, "alignment_gap")
    margins = [
        min(float(row["margin"]) for row in numbers["rows"] if row["log_time"] == time)
        for time in LOG_TIMES
    ]
    first = _worst(numbers, "log_loss")[0]
    evidence = (
        f"{numbers['runs']} flows, all below log 2 at log t = 10 (log loss {number(first)}), log t "
        f"= 10, 100, 1000: 1 - beta at most {_at_decades(gaps)}, margin at least "
        f"{_at_decades(margins)}"
    )
    if not first < LOG_LOG_2:
        return Finding(Verdict.OPEN, f"a flow is not below log 2 in time: {evidence}", numbers)
    least, most = numbers["aligned"]
    falling = all(b < a for a, b in pairwise(gaps)) and -1e-12 <= least <= most < 0.01
    growing = all(b > a for a, b in pairwise(margins))
    growing = growing and margins[-1] > 0.9 * LOG_TIMES[-1]
    return Finding(Verdict.HOLDS if falling and growing else Verdict.REFUTED, evidence, numbers)
