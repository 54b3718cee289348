"""`target`: choose the formula or solver of a setting and return its optimum."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.targets.closed_forms import solve_balanced, solve_relu, solve_squared
from nclab.theory.targets.deep_heads import solve_deep_linear
from nclab.theory.targets.given_norms import WEAKEST, find_weight, least_loss
from nclab.theory.targets.limits import (
    best_margin,
    code_means,
    softmax_code,
    softmax_margin,
    solve_limit,
)
from nclab.theory.targets.program import (
    LogitPoint,
    Program,
    bias_penalty,
    class_logits,
    critical_weight,
    evaluate,
    nuclear_norm,
)
from nclab.theory.targets.program_solver import initial_point, solve
from nclab.theory.targets.result import Target, logits_are_zero
from nclab.theory.targets.search import program_of_setting, search
from nclab.theory.targets.setting import CLOSED, Setting, Solution, check_setting, factor_grams

SPREAD = "docs/targets.md, any counts"


def target(
    num_classes: int | None = None,
    *,
    counts: Any = None,
    dim: int | None = None,
    loss: str = "cross_entropy",
    weight_decay: float | tuple[float, float] | None = None,
    norms: tuple[float, float] | None = None,
    bias: float | None = None,
    features: str = "free",
    depth: int = 1,
    smoothing: float | None = None,
    focal_gamma: float | None = None,
    targets: Any = None,
    average: str = "samples",
) -> Target:
    r"""Return the optimal classifier and features for given class counts and penalties.

    $$\min_{W,H,b}\; \tfrac1n\sum_i \ell(Wh_i+b, y_i) + \tfrac{\lambda_W}2\|W\|^2
    + \tfrac{\lambda_H}2\|H\|^2 + \tfrac{\lambda_b}2\|b\|^2$$

    The features $h_i$ are free variables, as in the layer-peeled model; $y_i$ are the labels and
    $\ell$ is the loss. The result says how its optimality is proved. All formulas are in
    docs/targets.md. Balanced classes under cross-entropy give the simplex ETF.

    Args:
        num_classes: number of classes, with one sample each; or pass `counts`, samples per class.
        dim: dimension of the features; None if it is at least what the optimum needs.
        loss: cross_entropy, label_smoothing, focal or mse (half the squared error).
        weight_decay: (λ_W, λ_H), or one number λ for (λ, λ/n), which penalises the mean squared
            feature; with average="classes", λ means (λ, λ/C). 0 gives the limit of vanishing
            weight decay.
        norms: (α, β) instead of weight_decay: rms norms of the features and the classifier rows.
        bias: penalty of the bias; 0 for a bias without penalty, None for no bias.
        features: free, or relu for non-negative features.
        depth: number of linear maps after the features.
        smoothing: amount of label_smoothing, 0.1 by default.
        focal_gamma: exponent γ of focal, 2 by default.
        targets: (C, C) soft targets of cross_entropy, one column per class.
        average: whether feature norms average over samples or over classes.

    >>> result = target(10, weight_decay=5e-4)
    >>> result.geometry, round(result.loss, 9)
    ('simplex ETF', 0.001424038)
    """
    setting = check_setting(**locals())  # takes the same arguments
    return target_of(setting, solve_setting(setting))


def target_of(setting: Setting, solution: Solution) -> Target:
    """Build the target, including the Gram matrices of W and H, from a setting and its solution."""
    share = _share(setting, solution)
    penalised = setting.weight_decay is not None
    return Target(
        setting=setting,
        logits=solution.logits,
        bias=solution.bias,
        classifier_gram=solution.left * share,
        mean_gram=solution.right / share,
        loss=solution.loss,
        objective=solution.loss + solution.penalty if penalised else None,
        lower_bound=solution.lower,
        proof=solution.proof,
        geometry="zero" if logits_are_zero(setting, solution.logits) else solution.geometry,
        source=solution.source,
        weight=solution.weight,
        notes=solution.notes,
    )


def _share(setting: Setting, solution: Solution) -> float:
    """Return the ratio |W| / |H| at the optimum; `Setting.metric` defines |H|."""
    if setting.norms is not None:
        alpha, beta = setting.norms
        share = beta / alpha * math.sqrt(setting.num_classes / float(setting.metric.sum()))
        weights = float(solution.left.diagonal().sum())  # a search may end with unequal norms
        features = float((setting.metric * solution.right.diagonal()).sum())
        return share * (math.sqrt(features / weights) if weights > 0 else 1.0)
    assert setting.weight_decay is not None
    return setting.weight / setting.weight_decay[0] if setting.weight_decay[0] else 1.0


def solve_setting(setting: Setting) -> Solution:
    """Return the solution with the strongest available proof."""
    dim = setting.num_classes if setting.dim is None else setting.dim
    squared = setting.loss == "mse"
    if squared and setting.average == "classes":
        raise DataError("Expected average='samples' with loss='mse', got average='classes'.")
    if setting.weight_decay == (0.0, 0.0):
        return _limit(setting)
    if setting.weight_decay is not None:
        smallest = WEAKEST * float(setting.metric.max().sqrt()) / setting.samples
        if setting.weight < smallest:
            raise DataError(
                f"Expected weight_decay=0, for the limit, or t = sqrt(lambda_W lambda_H) >= "
                f"{smallest:.3g}, got t = {setting.weight:.3g}: the effect of a smaller weight "
                "decay is lost in rounding."
            )
    if setting.depth > 1:
        return _deep(setting)
    if setting.features == "relu":
        plain = setting.bias is None and dim >= setting.num_classes
        hard = setting.loss == "cross_entropy" and setting.targets is None
        if plain and (hard or squared):
            return _closed(solve_relu if hard else solve_squared, setting)
        return search(setting)
    if squared:
        if setting.bias and dim < setting.num_classes:
            return search(setting)
        return _closed(solve_squared, setting)
    if setting.balanced:
        weight = None if setting.norms is not None else setting.weight
        solution = solve_balanced(setting, weight)
        rank = setting.num_classes - 1
    else:
        solution = _program(setting)
        rank = int(torch.linalg.matrix_rank(solution.logits, rtol=1e-6))
    return solution if rank <= dim or not solution.norm > 0 else _crowded(setting)


def _closed(solver: Callable[[Setting, float], Solution], setting: Setting) -> Solution:
    """Return a closed-form solution, for the weight decays or for the norms of the setting."""
    if setting.norms is None:
        return solver(setting, setting.weight)
    largest = float((setting.counts / setting.metric.sqrt()).max()) / setting.samples * 2
    weight, _ = find_weight(lambda t: solver(setting, t).norm, setting.norm, largest, close=1e-13)
    slack = weight == 0
    if slack and setting.loss != "mse":
        raise DataError(
            f"Expected smaller norms, got alpha, beta = {setting.norms[0]:.4g}, "
            f"{setting.norms[1]:.4g}: the smallest loss they allow is lost in rounding."
        )
    solution = solver(setting, weight or 1e-12 * largest)
    note = ("smaller norms reach the same loss",) if slack else ()
    return solution._replace(lower=solution.loss, notes=solution.notes + note)


def _limit(setting: Setting) -> Solution:
    """Return the limit of vanishing weight decay, or raise if no limit is known."""
    plain = setting.loss == "cross_entropy" and setting.targets is None and setting.depth == 1
    if not plain or setting.features != "free":
        raise DataError(
            "Expected weight_decay above 0, got 0: the limit is known only for cross-entropy with "
            "hard labels, free features and one linear map."
        )
    C = setting.num_classes
    if setting.dim is None or setting.dim >= C - 1:
        return solve_limit(setting)
    if not setting.balanced:
        raise DataError(
            f"Expected equal counts= with weight_decay=0 and dim= below {C - 1}, got different "
            "counts."
        )
    code = softmax_code(C, setting.dim)
    means = code_means(code)
    known, reached = best_margin(C, setting.dim), softmax_margin(code)
    exact = known.exact and reached > known.upper - 1e-9
    margin_note = (
        f"softmax margin (smallest distance of a row to the convex hull of the others) "
        f"{reached:.9g}; the largest possible one is at most {known.upper:.9g} ({known.source})"
    )
    return Solution(
        logits=code @ means.T,
        bias=torch.zeros_like(setting.counts),
        loss=0.0,
        penalty=0.0,
        left=code @ code.T,
        right=means @ means.T,
        lower=0.0 if exact else None,
        proof=CLOSED if exact else "best code found: no proof",
        geometry="softmax code",
        source="docs/targets.md, few dimensions; cf. Jiang et al. 2024",
        norm=1.0,
        notes=(margin_note, "a limit: rows and features have norm 1, only directions matter"),
    )


def _deep(setting: Setting) -> Solution:
    weight = setting.weight
    if setting.features == "relu":
        raise DataError(
            f"Expected depth=1 with features relu, got depth={setting.depth}: the optimum of deep "
            "heads with ReLU is not known."
        )
    if setting.loss == "mse" and not setting.bias:
        return solve_squared(setting, weight)
    if setting.loss == "mse" or setting.bias is not None:
        return search(setting)
    return solve_deep_linear(setting, weight)


def _program(setting: Setting) -> Solution:
    """Return the optimum for any counts, from a convex program and a lower bound by duality."""
    weight = 0.0 if setting.norms is not None else setting.weight
    program, group = program_of_setting(setting, weight)
    if setting.focal_gamma:
        return _focal(setting, program, group)
    notes: tuple[str, ...] = ()
    if setting.norms is not None:
        point, weight, _, lower, _ = least_loss(program, setting.norm)
        notes = () if weight else ("smaller norms reach the same loss",)
    else:
        optimum = solve(program)
        point, lower = optimum.point, optimum.lower
        if weight >= (critical := critical_weight(program)):
            notes = (
                f"t = sqrt(lambda_W lambda_H) = {weight:.4g}; from t = {critical:.4g} on, "
                "the optimum is zero",
            )
    return _of_point(setting, program, point, group)._replace(
        lower=lower, proof="duality gap", weight=weight, notes=notes
    )


def _of_point(setting: Setting, program: Program, point: LogitPoint, group: Tensor) -> Solution:
    """Return the solution with the logits of `point`, an optimum of the program."""
    logits = class_logits(point, group)
    left, right, values = factor_grams(logits, setting.metric)
    penalty = program.weight * nuclear_norm(program, point) + bias_penalty(program, point)
    return Solution(
        logits=logits,
        bias=point.bias[group],
        loss=evaluate(program, point).loss,
        penalty=penalty,
        left=left,
        right=right,
        geometry="soft targets" if setting.targets is not None else "between simplex ETF and SELI",
        source=SPREAD,
        norm=float(values.sum()),
        weight=program.weight,
    )


def _focal(setting: Setting, program: Program, group: Tensor) -> Solution:
    """Return the best solution for the focal loss from several starts; the loss is not convex."""
    if setting.norms is not None:
        return search(setting)
    optima = [solve(program, initial_point(program, size)) for size in (1.0, 3.0, 6.0, 10.0)]
    best = min(optima, key=lambda optimum: optimum.objective)
    return _of_point(setting, program, best.point, group)._replace(
        proof=f"best of {len(optima)} starts: no proof", geometry="between simplex ETF and SELI"
    )


def _crowded(setting: Setting) -> Solution:
    """Return the solution if the features have fewer dimensions than the optimum needs."""
    solution = search(setting)
    if setting.dim is None or not setting.balanced:
        return solution
    margin = best_margin(setting.num_classes, setting.dim)
    values = f"{margin.lower:.6g}" if margin.exact else f"{margin.lower:.6g} to {margin.upper:.6g}"
    note = (
        f"as the weight decay goes to 0, the optimum becomes a softmax code with margin {values} "
        f"({margin.source})"
    )
    return solution._replace(notes=(*solution.notes, note))
