"""Section 3.1 of ji2022: the margin and the minimum-norm separation problem."""

import math

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    draws,
    holds_if,
    judge_if,
    judge_statement,
    max_abs,
    statement,
    tally,
)
from nclab.text import number
from nclab.theory.statements import Inequality
from nclab.ulpm.problem import Array, Problem, largest_margin, pair_margins, smallest_margin
from nclab.ulpm.separation import (
    certify,
    optimal_multiplier,
    optimal_point,
    optimal_value,
    ray_value,
    solve_separation,
)
from nclab.ulpm.trajectory import QUANTITIES, quantities

SIZES = ((3, 1, 2), (4, 2, 5), (5, 3, 8))
"""Classes, samples per class and dimensions of the problems on which statements are tested."""
SEEDS = {"quick": 2, "paper": 10}
"""Number of random starts for each size, by preset."""


@statement(
    "ji2022/def-3.1",
    Kind.DEFINITION,
    "The neural collapse margin is the smallest margin of all samples against the best other "
    "class.",
    "ji2022, Def. 3.1 “for the entire dataset as”",
    smallest_margin,
    judge=judge_if(
        lambda numbers: numbers["error"] <= 1e-12,
        "on {points} points the margin by its definition differs from the code and from the metric "
        "by at most {error}",
    ),
)
def def_3_1(preset: str) -> Numbers:
    """Compare the library's margin with the paper's definition at random points."""
    errors = []
    for size in SIZES:
        problem = Problem(*size)
        for seed in range(20):
            theta = problem.initial(scale=1.0, seed=seed)
            W, H = problem.split(theta)
            logits = H @ W.T
            correct = logits[np.arange(len(H)), problem.labels]
            others = np.where(
                np.eye(problem.num_classes, dtype=bool)[problem.labels], -np.inf, logits
            )
            expected = float((correct - others.max(1)).min())
            measured = quantities(problem, theta)["margin"]
            errors += [expected - smallest_margin(problem, theta), expected - measured]
    return {"points": len(errors) // 2, "error": max_abs(errors)}


def _margin_bound(preset: str) -> Numbers:
    """Compare margins with the bound of Lemma 3.1 at random points and at a simplex ETF.

    Also measure the collapse of a solution of the separation problem.
    """
    rng = np.random.default_rng(0)
    margins, bounds, frames, nearest = [], [], [], []
    for size in SIZES:
        problem = Problem(*size)
        best = optimal_point(problem)
        largest = largest_margin(problem, float((best**2).sum()))
        frames.append(smallest_margin(problem, best) / largest)
        for _ in range(draws(preset) // 40):
            theta = best + 10 ** rng.uniform(-4, 0.5) * rng.normal(size=problem.shape)
            margins.append(smallest_margin(problem, theta))
            bounds.append(largest_margin(problem, float((theta**2).sum())))
        solved = solve_separation(problem).theta
        measured = quantities(problem, solved)
        nearest += [measured[name] for name in QUANTITIES]
    both = Inequality(np.array(margins), "<=", np.array(bounds))
    return {**tally(both), "frame_ratio": min(frames), "collapse_error": max_abs(nearest)}


@claim(
    "ji2022/lemma-3.1",
    Kind.LEMMA,
    "The margin is at most (|W|^2 + |H|^2)/(2 (K-1) sqrt n), with equality only at neural "
    "collapse.",
    "ji2022, Lemma 3.1 “Neural Collapse Margin as an Indicator of Neural Collapse”",
    gather=_margin_bound,
    code="nclab.ulpm.problem.largest_margin",
)
def lemma_3_1(numbers: Numbers) -> Finding:
    """Require that the bound holds, simplex ETFs reach it, and a solver finds collapsed points."""
    finding = judge_statement(numbers)
    evidence = (
        f"{finding.evidence}. Simplex ETFs reach the bound (ratio {numbers['frame_ratio']:.12f}), "
        f"and the maximisers that a solver finds are collapsed (largest of the six metrics "
        f"{number(numbers['collapse_error'])}). W = H = 0 is a trivial exception"
    )
    reached = numbers["frame_ratio"] >= 1 - 1e-9 and numbers["collapse_error"] <= 1e-3
    if finding.verdict is Verdict.HOLDS and not reached:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(finding.verdict, evidence, numbers)


def _ray(preset: str) -> Numbers:
    """Compute the smallest |theta|^2 / 2 with margin 1 along rays: by search and two formulas.

    The formulas are |theta|^2 / 2 divided by the margin (`power_one`) and by its square root
    (`power_half`).
    """
    rows = []
    for size in SIZES:
        problem = Problem(*size)
        theta = optimal_point(problem) * 3 + 0.05 * problem.initial(scale=1.0)
        scales = np.linspace(1e-3, 2, 200_001)
        feasible = scales[scales**2 * smallest_margin(problem, theta) >= 1]
        half = 0.5 * float((theta**2).sum())
        rows.append(
            {
                "by_search": float(feasible[0]) ** 2 * half,
                "power_one": ray_value(problem, theta),
                "power_half": half / math.sqrt(smallest_margin(problem, theta)),
            }
        )
    return {"rows": rows}


@claim(
    "ji2022/remark-3.1",
    Kind.REMARK,
    "Along the ray through (W, H) the smallest objective of the separation problem is half the "
    "squared norm over the square root of the margin.",
    "ji2022, Remark 3.1 “minimum objective value is”",
    gather=_ray,
    code="nclab.ulpm.separation.ray_value",
)
def remark_3_1(numbers: Numbers) -> Finding:
    linear, half = (
        max(abs(row[f"power_{name}"] / row["by_search"] - 1) for row in numbers["rows"])
        for name in ("one", "half")
    )
    evidence = (
        f"compared with a search along the ray, half the squared norm over q_min has a relative "
        f"error of {number(linear)}; over sqrt(q_min), as printed, the error is {number(half)}"
    )
    return holds_if(half <= 1e-3, evidence, numbers, corrected=linear <= 1e-3)


def maximise_margin(problem: Problem, *, radius: float, seed: int) -> tuple[float, Array]:
    """Return the largest margin of all points in a ball, and the point that attains it.

    Sequential quadratic programming maximises the margin directly, so the result is independent of
    the solver of the separation problem (5).
    """
    from scipy.optimize import minimize

    is_pair = ~np.isinf(pair_margins(problem, np.zeros(problem.shape)))
    start = problem.initial(scale=1.0, seed=seed).ravel()
    start *= radius / np.linalg.norm(start)

    def margins(flat: Array) -> Array:
        pairs: Array = pair_margins(problem, flat[:-1].reshape(problem.shape))[is_pair]
        return pairs - flat[-1]

    optimum = minimize(
        lambda flat: -flat[-1],
        np.append(start, smallest_margin(problem, start.reshape(problem.shape))),
        jac=lambda flat: np.append(np.zeros(len(flat) - 1), -1.0),
        method="SLSQP",
        constraints=(
            {"type": "ineq", "fun": margins},
            {"type": "ineq", "fun": lambda flat: radius**2 - flat[:-1] @ flat[:-1]},
        ),
        options={"maxiter": 500, "ftol": 1e-14},
    )
    theta = optimum.x[:-1].reshape(problem.shape)
    return smallest_margin(problem, theta), theta


def _equivalence(preset: str) -> Numbers:
    """Solve the separation problem, and independently maximise the margin in a ball.

    Return for each problem its optimal value and the value at the solution of the other problem.
    """
    rows = []
    for size in ((3, 1, 2), (3, 2, 2), (4, 1, 3)):
        problem, radius = Problem(*size), 3.0
        maxima = [maximise_margin(problem, radius=radius, seed=seed) for seed in range(4)]
        margin, widest = max(maxima, key=lambda maximum: maximum[0])
        solved = solve_separation(problem)
        scaled = solved.theta * (radius / np.linalg.norm(solved.theta))
        rows.append(
            {
                "margin": margin,
                "margin_of_solution": smallest_margin(problem, scaled),
                "value": solved.value,
                "value_of_widest": 0.5 * radius**2 / smallest_margin(problem, widest),
                "used_norm": float(np.linalg.norm(widest)) / radius,
            }
        )
    return {"rows": rows}


@claim(
    "ji2022/remark-3.1-margin",
    Kind.REMARK,
    "The separation problem is the same as maximising the margin in a ball: its minimum is "
    "attained exactly in the directions of largest margin.",
    "ji2022, Remark 3.1 “can be reorganized to maximize neural collapse margin such”",
    gather=_equivalence,
    code="nclab.ulpm.separation.solve_separation",
)
def remark_3_1_margin(numbers: Numbers) -> Finding:
    """Require that the solution of each problem also solves the other problem."""
    rows = numbers["rows"]
    margin = max(abs(row["margin_of_solution"] / row["margin"] - 1) for row in rows)
    value = max(abs(row["value_of_widest"] / row["value"] - 1) for row in rows)
    evidence = (
        f"both problems were solved independently for {len(rows)} sizes. A solution of (5), scaled "
        f"to the ball, has the largest margin (relative error {number(margin)}); the point of "
        f"largest margin, scaled to margin 1, has the smallest norm (relative error "
        f"{number(value)})"
    )
    right = margin <= 1e-5 and value <= 1e-5 and min(row["used_norm"] for row in rows) > 1 - 1e-6
    return holds_if(right, evidence, numbers)


def _optimum(preset: str) -> Numbers:
    """Solve the separation problem from random starts, and certify the closed-form optimum."""
    rows = []
    for size in SIZES:
        problem = Problem(*size)
        no_pair = np.isinf(pair_margins(problem, np.zeros(problem.shape)))
        multipliers = np.where(no_pair, 0.0, optimal_multiplier(problem))
        exact = certify(problem, optimal_point(problem, seed=0), multipliers)
        for seed in range(SEEDS[preset]):
            solution = solve_separation(problem, seed=seed)
            collapse = quantities(problem, solution.theta)
            rows.append(
                {
                    "value": solution.value,
                    "closed_form": optimal_value(problem),
                    "residual": max(solution.residual, exact.residual),
                    "collapse_error": max(collapse[name] for name in QUANTITIES),
                }
            )
    return {"rows": rows}


@claim(
    "ji2022/thm-3.2",
    Kind.THEOREM,
    "Every global optimum of the separation problem is a KKT point and satisfies the criteria of "
    "neural collapse.",
    "ji2022, Thm 3.2 “Every global optimum of the minimum-norm separation problem (5)”",
    gather=_optimum,
    code="nclab.ulpm.separation.solve_separation",
)
def thm_3_2(numbers: Numbers) -> Finding:
    rows = numbers["rows"]
    gap = max(abs(row["value"] / row["closed_form"] - 1) for row in rows)
    residual = max(row["residual"] for row in rows)
    collapse = max(row["collapse_error"] for row in rows)
    evidence = (
        f"{len(rows)} solutions from random starts: the optimal value is (K-1) sqrt n to "
        f"{number(gap)}, the KKT residual at most {number(residual)}, and the largest of the six "
        f"metrics of collapse {number(collapse)}"
    )
    right = gap <= 1e-6 and residual <= 1e-5 and collapse <= 1e-3
    return holds_if(right, evidence, numbers)
