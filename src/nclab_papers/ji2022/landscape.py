"""Section 3.2 of ji2022: the loss on spheres, with its minima, saddles and descent directions."""

import math
from functools import cache
from itertools import product

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import holds_if, judge_if, max_abs, statement
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.landscape import (
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

SIZES = ((3, 1, 2), (4, 2, 3), (4, 2, 6), (5, 3, 5))
"""Numbers of classes C, samples per class and dimensions d of the problems. Some have d = C - 1,
the smallest d that allows a simplex."""
SEARCHED = ((3, 1, 2), (3, 1, 4), (4, 1, 3), (4, 1, 5), (3, 2, 2))
"""Sizes of the problems whose critical points are searched for, in the format of `SIZES`."""
RADII = (1.5, 3.0, 5.0)
"""Radii of the spheres that are searched."""
ANGLE = 0.01
"""Angle in radians by which a step moves a point on its sphere."""
ENOUGH = 10
"""Number of critical points that the search must find before a claim can hold."""
STARTS = {"quick": 3, "paper": 20}
"""Number of random starts of each search, by preset."""
CRITICAL = 1e-9
"""A point counts as critical if the norm of the tangent gradient of log(loss), times the radius
of the sphere, is at most this number."""
NONE_FOUND = f"the search found 0 critical points that are not optimal; {ENOUGH} are needed"


def critical_points(problem: Problem, *, radius: float, starts: int) -> list[Array]:
    """Return critical points of the loss on a sphere, by least squares on the gradient.

    Minima and saddles are both returned. Starts that end at no critical point are skipped.

    >>> len(critical_points(Problem(3, 1, 2, "sum"), radius=3.0, starts=2))
    2
    """
    from scipy.optimize import least_squares

    def on_sphere(flat: Array) -> Array:
        point: Array = flat.reshape(problem.shape) * (radius / np.linalg.norm(flat))
        return point

    def residual(flat: Array) -> Array:
        gradient = tangent(problem, on_sphere(flat)).gradient.ravel()
        return np.append(gradient, np.linalg.norm(flat) - radius)

    points = []
    for seed in range(starts):
        start = problem.initial(scale=1.0, seed=seed).ravel()
        end = least_squares(residual, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200).x
        point = on_sphere(end)
        gradient = tangent(problem, point).gradient
        if float(np.linalg.norm(gradient)) * math.sqrt(square_norm(point)) <= CRITICAL:
            points.append(point)
    return points


@cache
def _descents(preset: str) -> Numbers:
    """Measure how one descent step changes the loss at critical and at random points on spheres.

    For comparison, also measure how the loss changes if an optimum is rotated.
    """
    rows = [_along_curvature(example_problem(), example_point(scale)) for scale in (0.5, 1.0, 1.5)]
    for size, radius in product(SEARCHED, RADII):
        problem = Problem(*size, "sum")
        points = critical_points(problem, radius=radius, starts=STARTS[preset])
        rows += [_along_curvature(problem, theta) for theta in points]
    random = []
    for dim, radius, seed in product((3, 5), RADII, range(3)):
        problem = Problem(4, 2, dim, "sum")
        theta = problem.initial(scale=1.0, seed=seed)
        random.append(_step(problem, theta * (radius / math.sqrt(square_norm(theta)))))
    best = 2 * optimal_point(problem := Problem(4, 2, 5, "sum"))
    skew = 0.01 * (np.triu(np.ones((5, 5)), 1) - np.tril(np.ones((5, 5)), -1))
    rotated = best @ np.linalg.solve(np.eye(5) - skew, np.eye(5) + skew)
    return {
        "critical": [row for row in rows if row["log_gap"] > 1e-6],
        "random": random,
        "rotation_change": abs(log_loss(problem, rotated) - log_loss(problem, best)),
        "rotation_distance": float(np.linalg.norm(rotated - best)),
    }


def _along_curvature(problem: Problem, theta: Array) -> dict[str, float]:
    """Measure the excess loss of a critical point, and the smallest eigenvalue of the Hessian.

    Also measure the change of log(loss) after a step along the eigenvector of this eigenvalue.
    """
    pairs = smallest_eigenpairs(problem, theta, count=1)
    start, value, direction = log_loss(problem, theta), pairs.values[0], pairs.vectors[0]
    residual = hessian_product(problem, theta)(direction) - value * direction
    return {
        "radius": math.sqrt(square_norm(theta)),
        "spare_dimensions": problem.dim - problem.num_classes + 1,
        "log_gap": start - optimal_log_loss(problem, square_norm(theta)),
        "eigenvalue": float(value),
        "residual": float(np.linalg.norm(residual) / (abs(value) + 1e-12)),
        "change": log_loss(problem, along_circle(theta, direction, ANGLE)) - start,
        **_step(problem, theta),
    }


def _step(problem: Problem, theta: Array) -> dict[str, float]:
    """Take one step of `escape`; return the relative change of the loss and an error.

    The error is the largest one in what `escape` reports: the change of the loss, and the
    direction, which must be a unit vector orthogonal to the point. The result is 0, 0 if `escape`
    finds no descent direction.
    """
    step = escape(problem, theta, angle=ANGLE)
    if step is None:
        return {"escape": 0.0, "escape_error": 0.0}
    end = along_circle(theta, step.direction, ANGLE)
    change = math.expm1(log_loss(problem, end) - log_loss(problem, theta))
    cosine = float(np.vdot(step.direction, theta)) / math.sqrt(square_norm(theta))
    norm_error = math.sqrt(square_norm(step.direction)) - 1
    return {"escape": change, "escape_error": max_abs([change - step.actual, cosine, norm_error])}


@claim(
    "ji2022/sec-1.1-landscape",
    Kind.THEOREM,
    "Every critical point of the loss on a sphere is a strict saddle, except the global "
    "minimisers, which are collapsed.",
    "ji2022, Sec. 1 “all the critical points are strict saddles in the tangent space”",
    gather=_descents,
    code="nclab.ulpm.landscape.smallest_eigenpairs",
    figure="slice",
)
def sec_1_1_landscape(numbers: Numbers) -> Finding:
    rows = numbers["critical"]
    if not rows:
        return Finding(Verdict.OPEN, NONE_FOUND, numbers)
    curvature = max(row["eigenvalue"] for row in rows)
    evidence = (
        f"a search found {len(rows)} critical points of the sphere that are not optimal; the "
        f"smallest eigenvalue of each is at most {number(curvature)} times the loss"
    )
    if not (curvature < 0 and max(row["residual"] for row in rows) <= 1e-4):
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.HOLDS if len(rows) >= ENOUGH else Verdict.OPEN, evidence, numbers)


@statement(
    "ji2022/sec-3.2-infinity",
    Kind.REMARK,
    "Once the features are separated the loss always decreases along the current point, and its "
    "infimum 0 is reached only at infinity.",
    "ji2022, Sec. 3.2 “the optimum is attained only in infinity”",
    tangent,
    judge=judge_if(
        lambda numbers: (
            numbers["largest_slope"] < 0
            and numbers["largest_log_loss"] < -1
            and numbers["slope_error"] <= 1e-5
        ),
        "{points} points that separate the classes: the log loss falls along the point, with a "
        "slope of at most {largest_slope}; at 100 times the radius it is at most "
        "{largest_log_loss}",
    ),
)
def sec_3_2_infinity(preset: str) -> Numbers:
    """Measure the slope of log(loss) along the radius, at random points that separate classes."""
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


@statement(
    "ji2022/thm-3.3",
    Kind.THEOREM,
    "On a sphere the loss is smallest exactly at collapsed points with |W| = |H|.",
    "ji2022, Thm 3.3 “The optimal value of loss function (4) on a sphere is attained”",
    optimal_log_loss,
    judge=judge_if(
        lambda numbers: (
            -1e-10 <= numbers["smallest_gap"] <= numbers["largest_gap"] <= 1e-8
            and max(numbers["collapse_error"], numbers["norm_imbalance"]) <= 1e-4
            and numbers["uneven_gap"] > 1e-6
        ),
        "{minima} minimisations from random starts with d >= K - 1: the log loss minus its closed "
        "form is between {smallest_gap} and {largest_gap}, the metrics of collapse are at most "
        "{collapse_error}, and |W|/|H| - 1 is at most {norm_imbalance}. A collapsed point with "
        "|W| = 2|H| has a log loss {uneven_gap} above the minimum",
    ),
)
def thm_3_3(preset: str) -> Numbers:
    """Minimise the loss on spheres, and measure the collapse and the loss of the minima.

    Also measure the loss of a collapsed point with |W| = 2|H|.
    """
    gaps, collapse, balance, uneven = [], [], [], []
    for size in SIZES:
        problem, radius = Problem(*size), 4.0
        for seed in range(STARTS[preset]):
            minimum = minimise_on_sphere(problem, radius=radius, seed=seed)
            gaps.append(minimum.log_gap)
            measured = quantities(problem, minimum.theta)
            collapse += [measured[name] for name in QUANTITIES]
            W, H = problem.split(minimum.theta)
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


def _scalings(preset: str) -> Numbers:
    """Measure collapse, margin and loss at (a W, b H), with (W, H) optimal, for several a and b."""
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
    same_error = max(row["collapse_error"] for row in same_sign)
    opposite_error = min(row["collapse_error"] for row in opposite)
    best = [row for row in same_sign if row["log_gap"] <= 1e-10]
    evidence = (
        f"factors of equal sign keep collapse (error {number(same_error)}), and {len(best)} of "
        f"{len(same_sign)} pairs are optimal. Factors of opposite sign do not keep collapse (error "
        f"{number(opposite_error)}, margin {number(opposite[0]['margin'])})"
    )
    right = same_error <= 1e-9 and 0 < len(best) < len(same_sign)
    return holds_if(right and opposite_error <= 1e-9, evidence, numbers, corrected=right)


@statement(
    "ji2022/def-3.2",
    Kind.DEFINITION,
    "The tangent space of (W, H) is the set of directions orthogonal to it.",
    "ji2022, Def. 3.2 “is defined to be a set of directions that”",
    tangent,
    judge=judge_if(
        lambda numbers: max(numbers.values()) <= 1e-12,
        "at 50 points the tangent gradient is orthogonal to the point (cosine {cosine}), a step "
        "along it changes the squared norm only by the square of the step (error {norm_error}), "
        "and the rest of the full gradient is a multiple of the point (error {off_point})",
    ),
)
def def_3_2(preset: str) -> Numbers:
    """Test the definition of the tangent gradient at random points.

    It must be orthogonal to the point, and the rest of the gradient parallel to the point. A step
    along it must change the norm only in second order.
    """
    problem = Problem(4, 2, 5)
    cosines, norms, remainders = [], [], []
    for seed in range(50):
        theta = problem.initial(scale=1.0, seed=seed)
        square = square_norm(theta)
        part, full = tangent(problem, theta).gradient, log_gradient(problem, theta).gradient
        size = math.sqrt(square_norm(part))
        cosines.append(float(np.vdot(part, theta)) / (size * math.sqrt(square)))
        norms.append(square_norm(theta + part / size) / square - 1 - 1 / square)
        radial = full - part
        along = theta * (float(np.vdot(radial, theta)) / square)
        remainders.append(math.sqrt(square_norm(radial - along) / square_norm(full)))
    return {
        "cosine": max_abs(cosines),
        "norm_error": max_abs(norms),
        "off_point": max_abs(remainders),
    }


@claim(
    "ji2022/thm-3.4",
    Kind.THEOREM,
    "From every point that is not optimal on its sphere there is a tangent direction, and a point "
    "of the sphere arbitrarily near, with a loss that is not larger.",
    "ji2022, Thm 3.4 “is not the optimal solutions in Theorem 3.3”",
    gather=_descents,
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
        f"the claim holds even with < instead of <=. (A rotation satisfies <=: the loss changes by "
        f"{number(numbers['rotation_change'])} at distance "
        f"{number(numbers['rotation_distance'])}.) {len(rows)} critical points that are not "
        f"optimal, at radii from {number(min(radii))} to {number(max(radii))}, {spare} of them "
        f"with d > K - 1, all have a negative eigenvalue of at most {number(curvature)}; the log "
        f"loss falls along its direction by {number(-change)} or more. From "
        f"{len(numbers['random'])} random points the loss falls along the gradient"
    )
    steps = [*rows, *numbers["random"]]
    down = curvature < 0 and change < 0 and all(row["escape"] < 0 for row in steps)
    down = down and max(row["escape_error"] for row in steps) <= 1e-9
    if down and (len(rows) < ENOUGH or not spare):
        return Finding(Verdict.OPEN, evidence, numbers)
    return holds_if(down, evidence, numbers)
