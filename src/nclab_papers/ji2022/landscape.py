"""Section 3.2 of ji2022: the loss on spheres, its minima, its saddles and the ways down."""

import math
from functools import cache

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import max_abs
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.landscape import (
    Escape,
    along_circle,
    escape,
    hessian_product,
    minimise_on_sphere,
    smallest_eigenpairs,
    square_norm,
    tangent,
)
from nclab.ulpm.problem import (
    Array,
    Problem,
    log_gradient,
    log_loss,
    optimal_log_loss,
    smallest_margin,
)
from nclab.ulpm.separation import optimal_point
from nclab.ulpm.trajectory import QUANTITIES, quantities
from nclab_papers.ji2022.critical_points import critical_points

SIZES = ((3, 1, 2), (4, 2, 3), (4, 2, 6), (5, 3, 5))
"""Classes, samples a class and dimensions; the smallest dimensions hold just a simplex."""
SEARCHED = ((3, 1, 2), (3, 1, 4), (4, 1, 3), (4, 1, 5), (3, 2, 2))
"""The same, where critical points are searched, with and without dimensions to spare."""
RADII = (1.5, 3.0, 5.0)
"""Of the spheres on which they are."""
ANGLE = 0.01
"""Of a step on the sphere."""
ENOUGH = 10
"""Critical points that a search must find before its silence counts."""
STARTS = {"quick": 3, "paper": 20}
NONE_FOUND = f"the search found 0 critical points that are not optimal; {ENOUGH} are needed"


@cache
def _ways_down(preset: str) -> Numbers:
    rows = [_along_curvature(example_problem(), example_point(scale)) for scale in (0.5, 1.0, 1.5)]
    for size in SEARCHED:
        for radius in RADII:
            problem = Problem(*size, "sum")
            points = critical_points(problem, radius=radius, starts=STARTS[preset])
            rows += [_along_curvature(problem, theta) for theta in points]
    random = [
        _down_the_gradient(problem, radius, seed)
        for problem in (Problem(4, 2, 3, "sum"), Problem(4, 2, 5, "sum"))
        for radius in RADII
        for seed in range(3)
    ]
    best = 2 * optimal_point(problem := Problem(4, 2, 5, "sum"))
    skew = 0.01 * (np.triu(np.ones((5, 5)), 1) - np.tril(np.ones((5, 5)), -1))
    turned = best @ np.linalg.solve(np.eye(5) - skew, np.eye(5) + skew)
    return {
        "critical": [row for row in rows if row["log_gap"] > 1e-6],
        "random": random,
        "rotation_change": abs(log_loss(problem, turned) - log_loss(problem, best)),
        "rotation_distance": float(np.linalg.norm(turned - best)),
    }


def _along_curvature(problem: Problem, theta: Array) -> dict[str, float]:
    """A critical point: how far from optimal, its curvature, and the loss a step down from it."""
    pairs = smallest_eigenpairs(problem, theta, count=1)
    here, way = log_loss(problem, theta), pairs.vectors[0]
    bent = hessian_product(problem, theta)(way) - pairs.values[0] * way
    moved = along_circle(theta, way, ANGLE)
    return {
        "radius": math.sqrt(square_norm(theta)),
        "spare_dimensions": problem.dim - problem.num_classes + 1,
        "log_gap": here - optimal_log_loss(problem, square_norm(theta)),
        "eigenvalue": float(pairs.values[0]),
        "residual": float(np.linalg.norm(bent) / (abs(pairs.values[0]) + 1e-12)),
        "change": log_loss(problem, moved) - here,
        **_taken(problem, theta, escape(problem, theta, angle=ANGLE)),
    }


def _down_the_gradient(problem: Problem, radius: float, seed: int) -> dict[str, float]:
    theta = problem.initial(scale=1.0, seed=seed)
    theta *= radius / math.sqrt(square_norm(theta))
    return _taken(problem, theta, escape(problem, theta, angle=ANGLE))


def _taken(problem: Problem, theta: Array, way: Escape | None) -> dict[str, float]:
    """What `escape` says of a way down, and what comes of going it; 0 where it finds none."""
    if way is None:
        return {"escape": 0.0, "escape_error": 0.0}
    moved = along_circle(theta, way.direction, ANGLE)
    taken = math.expm1(log_loss(problem, moved) - log_loss(problem, theta))
    leaving = float(np.vdot(way.direction, theta)) / math.sqrt(square_norm(theta))
    longer = math.sqrt(square_norm(way.direction)) - 1
    return {
        "escape": taken,
        "escape_error": max_abs([taken - way.actual, leaving, longer]),
    }


@claim(
    "ji2022/sec-1.1-landscape",
    Kind.THEOREM,
    "Every critical point of the loss on a sphere is a strict saddle, except the global "
    "minimisers, which are collapsed.",
    "ji2022, Sec. 1 “all the critical points are strict saddles in the tangent space”",
    gather=_ways_down,
    code="nclab.ulpm.landscape.smallest_eigenpairs",
    figure="slice",
)
def sec_1_1_landscape(numbers: Numbers) -> Finding:
    rows = numbers["critical"]
    if not rows:
        return Finding(Verdict.OPEN, NONE_FOUND, numbers)
    curvature = max(row["eigenvalue"] for row in rows)
    evidence = (
        f"{len(rows)} critical points of the sphere that are not optimal, found by search: the "
        f"smallest eigenvalue of each is at most {number(curvature)} of the loss"
    )
    if not (curvature < 0 and max(row["residual"] for row in rows) <= 1e-4):
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.HOLDS if len(rows) >= ENOUGH else Verdict.OPEN, evidence, numbers)


def _growth(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    slopes, losses, errors, step = [], [], [], 1e-5
    for size in SIZES:
        problem = Problem(*size, "sum")
        for _ in range(50):
            noise = 10 ** rng.uniform(-3, -0.5) * rng.normal(size=problem.shape)
            theta = rng.uniform(0.5, 3) * (optimal_point(problem) + noise)
            if smallest_margin(problem, theta) > 0:
                slopes.append(tangent(problem, theta).radial)
                ends = [log_loss(problem, (1 + sign * step) * theta) for sign in (-1, 1)]
                errors.append(slopes[-1] / ((ends[1] - ends[0]) / (2 * step)) - 1)
                losses.append(log_loss(problem, 100 * theta))
    return {
        "points": len(slopes),
        "largest_slope": max(slopes),
        "largest_log_loss": max(losses),
        "slope_error": max_abs(errors),
    }


@claim(
    "ji2022/sec-3.2-infinity",
    Kind.REMARK,
    "Once the features are separated the loss always decreases along the current point, and its "
    "infimum 0 is reached only at infinity.",
    "ji2022, Sec. 3.2 “the optimum is attained only in infinity”",
    gather=_growth,
    code="nclab.ulpm.landscape.tangent",
)
def sec_3_2_infinity(numbers: Numbers) -> Finding:
    evidence = (
        f"{numbers['points']} separated points: the logarithm of the loss falls along the point, "
        f"slope at most {number(numbers['largest_slope'])}; a hundred times further out it is at "
        f"most {number(numbers['largest_log_loss'])}"
    )
    right = numbers["largest_slope"] < 0 and numbers["largest_log_loss"] < -1
    right = right and numbers["slope_error"] <= 1e-5
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _sphere(preset: str) -> Numbers:
    gaps, collapse, balance, uneven = [], [], [], []
    for size in SIZES:
        problem, radius = Problem(*size), 4.0
        for seed in range(STARTS[preset]):
            found = minimise_on_sphere(problem, radius=radius, seed=seed)
            gaps.append(found.log_gap)
            measured = quantities(problem, found.theta)
            collapse += [measured[name] for name in QUANTITIES]
            W, H = problem.split(found.theta)
            balance.append(float(np.linalg.norm(W) / np.linalg.norm(H)) - 1)
        W, H = problem.split(optimal_point(problem))
        theta = np.concatenate([2 * W, H])
        theta *= radius / math.sqrt(square_norm(theta))
        uneven.append(log_loss(problem, theta) - optimal_log_loss(problem, radius**2))
    return {
        "minima": len(gaps),
        "smallest_gap": min(gaps),
        "largest_gap": max(gaps),
        "collapse_error": max_abs(collapse),
        "norm_imbalance": max_abs(balance),
        "uneven_gap": min(uneven),
    }


@claim(
    "ji2022/thm-3.3",
    Kind.THEOREM,
    "On a sphere the loss is smallest exactly at collapsed points with |W| = |H|.",
    "ji2022, Thm 3.3 “The optimal value of loss function (4) on a sphere is attained”",
    gather=_sphere,
    code="nclab.ulpm.problem.optimal_log_loss",
)
def thm_3_3(numbers: Numbers) -> Finding:
    evidence = (
        f"{numbers['minima']} minimisations from random starts, d >= K - 1: log of the loss over "
        f"its closed form between {number(numbers['smallest_gap'])} and "
        f"{number(numbers['largest_gap'])}, collapsed to {number(numbers['collapse_error'])}, "
        f"|W|/|H| - 1 at most {number(numbers['norm_imbalance'])}; a collapsed point with "
        f"|W| = 2|H| is {number(numbers['uneven_gap'])} above"
    )
    attained = numbers["smallest_gap"] >= -1e-10 and numbers["largest_gap"] <= 1e-8
    only = numbers["collapse_error"] <= 1e-4 and numbers["norm_imbalance"] <= 1e-4
    right = attained and only and numbers["uneven_gap"] > 1e-6
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _scalings(preset: str) -> Numbers:
    problem = Problem(4, 2, 5)
    W, H = problem.split(optimal_point(problem))
    rows = []
    for a, b in ((1.0, 1.0), (2.0, 0.5), (3.0, 1.0), (1.0, -1.0)):
        theta = np.concatenate([a * W, b * H])
        measured = quantities(problem, theta)
        rows.append(
            {
                "a": a,
                "b": b,
                "collapse_error": max(measured[name] for name in QUANTITIES),
                "margin": measured["margin"],
                "log_gap": log_loss(problem, theta) - optimal_log_loss(problem, square_norm(theta)),
            }
        )
    return {"rows": rows}


@claim(
    "ji2022/remark-3.2",
    Kind.REMARK,
    "If (W, H) satisfies the criteria of collapse so does (a W, b H) for all real a and b, but "
    "only some of them are optimal.",
    "ji2022, Remark 3.2 “the second conditions is necessary”",
    gather=_scalings,
    code="nclab.ulpm.problem.optimal_log_loss",
)
def remark_3_2(numbers: Numbers) -> Finding:
    rows = numbers["rows"]
    same_sign = [row for row in rows if row["a"] * row["b"] > 0]
    opposite = [row for row in rows if row["a"] * row["b"] < 0]
    kept = max(row["collapse_error"] for row in same_sign)
    lost = min(row["collapse_error"] for row in opposite)
    best = [row for row in same_sign if row["log_gap"] <= 1e-10]
    evidence = (
        f"factors of one sign keep collapse (error {number(kept)}) and {len(best)} of "
        f"{len(same_sign)} pairs are optimal; of opposite signs they do not (error {number(lost)}, "
        f"margin {number(opposite[0]['margin'])})"
    )
    if kept > 1e-9 or not 0 < len(best) < len(same_sign):
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.HOLDS if lost <= 1e-9 else Verdict.CORRECTED, evidence, numbers)


def _tangents(preset: str) -> Numbers:
    """The part of the gradient in the tangent space, as the code has it and as the rest it leaves.

    A step in the tangent space changes the squared norm by its own square only, and the full
    gradient must be its tangent part and a multiple of the point.
    """
    problem = Problem(4, 2, 5)
    across, norms, rests = [], [], []
    for seed in range(50):
        theta = problem.initial(scale=1.0, seed=seed)
        square = square_norm(theta)
        part, full = tangent(problem, theta).gradient, log_gradient(problem, theta).gradient
        size = math.sqrt(square_norm(part))
        across.append(float(np.vdot(part, theta)) / (size * math.sqrt(square)))
        norms.append(square_norm(theta + part / size) / square - 1 - 1 / square)
        rest = full - part
        along = theta * (float(np.vdot(rest, theta)) / square)
        rests.append(math.sqrt(square_norm(rest - along) / square_norm(full)))
    return {
        "cosine": max_abs(across),
        "norm_error": max_abs(norms),
        "off_point": max_abs(rests),
    }


@claim(
    "ji2022/def-3.2",
    Kind.DEFINITION,
    "The tangent space of (W, H) is the set of directions orthogonal to it.",
    "ji2022, Def. 3.2 “is defined to be a set of directions that”",
    gather=_tangents,
    code="nclab.ulpm.landscape.tangent",
)
def def_3_2(numbers: Numbers) -> Finding:
    evidence = (
        f"50 points: the gradient in the tangent space is orthogonal to the point (cosine "
        f"{number(numbers['cosine'])}), a step along it changes the squared norm by its own square "
        f"only (to {number(numbers['norm_error'])}), and what it leaves of the full gradient is "
        f"along the point (off by {number(numbers['off_point'])})"
    )
    right = max(numbers.values()) <= 1e-12
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


@claim(
    "ji2022/thm-3.4",
    Kind.THEOREM,
    "From every point that is not optimal on its sphere there is a tangent direction, and a point "
    "of the sphere arbitrarily near, with a loss that is not larger.",
    "ji2022, Thm 3.4 “is not the optimal solutions in Theorem 3.3”",
    gather=_ways_down,
    code="nclab.ulpm.landscape.escape",
    figure="slice",
)
def thm_3_4(numbers: Numbers) -> Finding:
    rows = numbers["critical"]
    if not rows:
        return Finding(Verdict.OPEN, NONE_FOUND, numbers)
    curvature, change = (max(row[name] for row in rows) for name in ("eigenvalue", "change"))
    spare = sum(row["spare_dimensions"] > 0 for row in rows)
    radii = [row["radius"] for row in rows]
    evidence = (
        f"even with < in place of <=, which a rotation would satisfy (change "
        f"{number(numbers['rotation_change'])} at distance {number(numbers['rotation_distance'])}"
        f"): {len(rows)} critical points that are not optimal, at radii from "
        f"{number(min(radii))} to {number(max(radii))} and {spare} of them in d > K - 1, all have "
        f"a negative eigenvalue, at most {number(curvature)}, and the log loss falls along it by "
        f"{number(-change)} or more; {len(numbers['random'])} random points go down the gradient"
    )
    ways = [*rows, *numbers["random"]]
    down = curvature < 0 and change < 0 and all(row["escape"] < 0 for row in ways)
    down = down and max(row["escape_error"] for row in ways) <= 1e-9
    if not down or len(rows) < ENOUGH or not spare:
        verdict = Verdict.REFUTED if not down else Verdict.OPEN
        return Finding(verdict, evidence, numbers)
    return Finding(Verdict.HOLDS, evidence, numbers)
