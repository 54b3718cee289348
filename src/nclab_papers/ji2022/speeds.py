"""Sections 3.2 and 5.2 of ji2022: how fast the loss falls along a direction, and what it becomes.

Along a ray that separates the classes the loss is in the end that of its smallest margin, as sums
of exponentials become their largest term: log L = -q_min r^2 up to a constant, at radius r.
"""

import math
from itertools import pairwise

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import max_abs
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.landscape import square_norm
from nclab.ulpm.problem import Array, Problem, largest_margin, log_loss, smallest_margin
from nclab.ulpm.separation import optimal_point

SIZES = ((3, 1, 2), (4, 2, 3), (4, 2, 6), (5, 3, 5))
"""Classes, samples a class and dimensions."""
DRAWN = 50
"""Directions of each."""
FAR = (100.0, 200.0)
"""Radii between which the speed along a direction is measured."""
RADII = (5.0, 10.0, 20.0, 40.0, 80.0)
"""Where the loss is compared with the margin."""


def _unit(theta: Array) -> Array:
    """The direction of a point."""
    return theta / math.sqrt(square_norm(theta))


def _directions(problem: Problem) -> list[Array]:
    """Directions that separate the classes, from near a simplex to far from it."""
    rng = np.random.default_rng(0)
    noises = (10 ** rng.uniform(-3, -0.3) * rng.normal(size=problem.shape) for _ in range(DRAWN))
    drawn = [_unit(optimal_point(problem) + noise) for noise in noises]
    return [one for one in drawn if smallest_margin(problem, one) > 0.01]


def speed(problem: Problem, direction: Array) -> float:
    """How fast the logarithm of the loss falls along a direction, far out: by squared radius.

    >>> problem = Problem(3, 1, 2, "sum")
    >>> round(speed(problem, _unit(optimal_point(problem))), 6)  # 1/(2(C - 1))
    0.25
    """
    near, far = (log_loss(problem, radius * direction) for radius in FAR)
    return (near - far) / (FAR[1] ** 2 - FAR[0] ** 2)


def _speeds(preset: str) -> Numbers:
    ratios, errors, best = [], [], []
    for size in SIZES:
        problem = Problem(*size, "sum")
        most = largest_margin(problem, 1.0)
        best.append(speed(problem, _unit(optimal_point(problem))) / most - 1)
        for one in _directions(problem):
            found = speed(problem, one)
            ratios.append(found / most)
            errors.append(found / smallest_margin(problem, one) - 1)
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
    code="nclab_papers.ji2022.speeds.speed",
)
def sec_3_2_speeds(numbers: Numbers) -> Finding:
    """Speeds must be the smallest margins, differ by a factor of two, and none beat a simplex."""
    evidence = (
        f"{numbers['directions']} directions, log L over the squared radius: from "
        f"{number(numbers['slowest'])} to {number(numbers['fastest'])} of the speed of a simplex, "
        f"Example 3.1 at {number(numbers['example'])}. Each is the smallest margin of its "
        f"direction, to {number(numbers['margin_error'])}; that of a simplex is the largest there "
        f"is, 1/(2(K - 1) sqrt n), to {number(numbers['simplex_error'])}"
    )
    different = 0 < numbers["slowest"] <= 0.5 and abs(numbers["example"] - 0.75) <= 1e-3
    fastest = numbers["fastest"] <= 1 + 1e-9 and numbers["simplex_error"] <= 1e-6
    right = different and fastest and numbers["margin_error"] <= 1e-3
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _largest_terms(preset: str) -> Numbers:
    """The loss as a margin of the normalised point, and how far off it may be by counting terms."""
    rows = []
    for radius in RADII:
        errors, shares = [], []
        for size in SIZES:
            problem = Problem(*size, "sum")
            terms = problem.samples * (problem.num_classes - 1)
            for one in _directions(problem):
                margin = smallest_margin(problem, one)
                off = abs(-log_loss(problem, radius * one) / radius**2 - margin)
                errors.append(off / margin)
                shares.append(off * radius**2 / math.log(max(2, terms)))
        rows.append(
            {
                "radius": radius,
                "error": max_abs(errors),
                "of_bound": max_abs(shares),
            }
        )
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
    """-log L / r^2 must come to the smallest margin of the direction as fast as counting says."""
    rows = numbers["rows"]
    said = ", ".join(f"{number(row['error'])} at {row['radius']:g}" for row in rows)
    bound = max(row["of_bound"] for row in rows)
    evidence = (
        f"-log L over the squared radius is the smallest margin of the normalised point but for a "
        f"relative error of at most {said}; times the squared radius it is at most "
        f"{number(bound)} of the logarithm of the number of terms, as it must be"
    )
    falling = all(b["error"] < a["error"] / 3.5 for a, b in pairwise(rows))
    right = falling and bound <= 1 and rows[-1]["error"] <= 0.1
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)
