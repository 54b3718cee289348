"""`target`: choose the formula or solver of a setting and return its optimum."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.targets.closed_forms import solve_balanced, solve_relu
from nclab.theory.targets.deep_linear import solve_deep_linear
from nclab.theory.targets.deep_relu import solve_deep_relu
from nclab.theory.targets.given_norms import WEAKEST, least_loss, root
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
    program_of_counts,
)
from nclab.theory.targets.program_solver import first, solve
from nclab.theory.targets.result import Target, _is_zero
from nclab.theory.targets.search import program_of_classes, search
from nclab.theory.targets.setting import CLOSED, Setting, Solution, check_setting, factor_grams
from nclab.theory.targets.squared_error import solve_squared

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
    r"""The optimum of a network whose features are free, and the proof of it.

    $$\min_{W,H,b}\; \tfrac1n\sum_i \ell(Wh_i+b, y_i) + \tfrac{\lambda_W}2\|W\|^2
    + \tfrac{\lambda_H}2\|H\|^2 + \tfrac{\lambda_b}2\|b\|^2$$

    docs/targets.md has every formula. For balanced classes and cross-entropy it is the simplex ETF.

    Args:
        num_classes: C with one sample each; or `counts`, the samples of every class.
        dim: dimension of the features; None for as many as the optimum wants.
        loss: cross_entropy, label_smoothing, focal or mse (half the squared error).
        weight_decay: (λ_W, λ_H); one number λ is a penalty of the mean squared feature, that is
            (λ, λ/n), or (λ, λ/C) where classes count once; 0 is the limit.
        norms: (α, β) instead: root mean square norm of all features, and of the classifier's rows.
        bias: penalty of the bias, 0 for a free one, None for no bias.
        features: free, or relu for features that are not negative.
        depth: linear maps behind the features; with relu features and mse, ReLU between them, and
            the features before the first map are free.
        smoothing: of label_smoothing, 0.1 unless given.
        focal_gamma: the exponent of focal, 2 unless given.
        targets: (C, C) soft targets of cross_entropy, a column for each class.
        average: norms of features by samples, or by classes (a class counts once).

    >>> found = target(10, weight_decay=5e-4)
    >>> found.geometry, round(found.loss, 9)
    ('simplex ETF', 0.001424038)
    """
    setting = check_setting(
        num_classes,
        counts,
        dim=dim,
        loss=loss,
        weight_decay=weight_decay,
        norms=norms,
        bias=bias,
        features=features,
        depth=depth,
        smoothing=smoothing,
        focal_gamma=focal_gamma,
        targets=targets,
        average=average,
    )
    return target_of(setting, solve_setting(setting))


def target_of(setting: Setting, found: Solution) -> Target:
    """A solved setting, with the norms shared out between classifier and features."""
    share = _share(setting, found)
    penalised = setting.weight_decay is not None
    return Target(
        setting=setting,
        logits=found.logits,
        bias=found.bias,
        classifier_gram=found.left * share,
        mean_gram=found.right / share,
        loss=found.loss,
        objective=found.loss + found.penalty if penalised else None,
        lower_bound=found.lower,
        proof=found.proof,
        geometry="zero" if _is_zero(setting, found.logits) else found.geometry,
        source=found.source,
        weight=found.weight,
        notes=found.notes,
    )


def _share(setting: Setting, found: Solution) -> float:
    """How much of the norm is the classifier's: |W|^2 = share |W||H|."""
    if setting.norms is not None:
        alpha, beta = setting.norms
        share = beta / alpha * math.sqrt(setting.num_classes / float(setting.metric.sum()))
        weights = float(found.left.diagonal().sum())  # a search may end with unequal halves
        features = float((setting.metric * found.right.diagonal()).sum())
        return share * (math.sqrt(features / weights) if weights > 0 else 1.0)
    assert setting.weight_decay is not None
    return setting.weight / setting.weight_decay[0] if setting.weight_decay[0] else 1.0


def solve_setting(setting: Setting) -> Solution:
    """The optimum by the best proof there is."""
    room = setting.num_classes if setting.dim is None else setting.dim
    squared = setting.loss == "mse"
    if squared and setting.average == "classes":
        raise DataError("Expected average samples with loss mse, got classes.")
    if setting.weight_decay == (0.0, 0.0):
        return _limit(setting)
    if setting.weight_decay is not None:
        least = WEAKEST * float(setting.metric.max().sqrt()) / setting.samples
        if setting.weight < least:
            raise DataError(
                f"Expected weight_decay=0, for the limit, or t = sqrt(lambda_W lambda_H) from "
                f"{least:.3g} on, got {setting.weight:.3g}: smaller ones are lost in rounding."
            )
    if setting.depth > 1:
        return _deep(setting)
    if setting.features == "relu":
        plain = setting.bias is None and room >= setting.num_classes
        hard = setting.loss == "cross_entropy" and setting.targets is None
        if plain and (hard or squared):
            return _closed(solve_relu if hard else solve_squared, setting)
        return search(setting)
    if squared:
        if setting.bias and room < setting.num_classes:
            return search(setting)
        return _closed(solve_squared, setting)
    if setting.balanced:
        weight = None if setting.norms is not None else setting.weight
        found = solve_balanced(setting, weight)
        rank = setting.num_classes - 1
    else:
        found = _program(setting)
        rank = int(torch.linalg.matrix_rank(found.logits, rtol=1e-6))
    return found if rank <= room or not found.norm > 0 else _crowded(setting)


def _closed(solver: Callable[[Setting, float], Solution], setting: Setting) -> Solution:
    """A formula in t, at the t of the weight decays or the one that gives the norms."""
    if setting.norms is None:
        return solver(setting, setting.weight)
    most = float((setting.counts / setting.metric.sqrt()).max()) / setting.samples * 2
    weight, _ = root(lambda t: solver(setting, t).norm, setting.norm, most, close=1e-13)
    slack = weight == 0
    if slack and setting.loss != "mse":
        raise DataError(
            "Expected norms of which the least loss can be computed, got "
            f"alpha, beta = {setting.norms[0]:.4g}, {setting.norms[1]:.4g}: too large."
        )
    found = solver(setting, weight or 1e-12 * most)
    note = ("smaller norms have the same loss",) if slack else ()
    return found._replace(lower=found.loss, notes=found.notes + note)


def _limit(setting: Setting) -> Solution:
    plain = setting.loss == "cross_entropy" and setting.targets is None and setting.depth == 1
    if not plain or setting.features != "free":
        raise DataError(
            "Expected weight_decay above 0, got 0: only hard cross-entropy with free features "
            "and one linear map has a known limit."
        )
    C = setting.num_classes
    if setting.dim is None or setting.dim >= C - 1:
        return solve_limit(setting)
    if not setting.balanced:
        raise DataError(f"Expected equal counts= with dim= below {C - 1}, got others.")
    code = softmax_code(C, setting.dim)
    means = code_means(code)
    known, reached = best_margin(C, setting.dim), softmax_margin(code)
    exact = known.exact and reached > known.upper - 1e-9
    words = f"softmax margin {reached:.9g}, at most {known.upper:.9g} ({known.source})"
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
        weight=0.0,
        notes=(words, "a limit for unit rows and features: only directions mean something"),
    )


def _deep(setting: Setting) -> Solution:
    weight = setting.weight
    if setting.features == "relu":
        if setting.loss != "mse":
            raise DataError(f"Expected loss mse for deep ReLU heads, got {setting.loss}.")
        return solve_deep_relu(setting, weight)
    if setting.loss == "mse" and not setting.bias:
        return solve_squared(setting, weight)
    if setting.loss == "mse" or setting.bias is not None:
        return search(setting)
    return solve_deep_linear(setting, weight)


def _program(setting: Setting) -> Solution:
    """Any counts: the convex program, proved by its dual."""
    weight = 0.0 if setting.norms is not None else setting.weight
    if setting.targets is None:
        options = {
            "smoothing": setting.smoothing,
            "bias": setting.bias,
            "focal_gamma": setting.focal_gamma,
        }
        program, place = program_of_counts(setting.counts, weight, metric=setting.metric, **options)
    else:
        program = program_of_classes(setting, weight)
        place = torch.arange(setting.num_classes)
    if setting.focal_gamma:
        return _focal(setting, program, place)
    notes: tuple[str, ...] = ()
    if setting.norms is not None:
        least = least_loss(program, setting.norm)
        point, lower, weight = least.point, least.lower, least.weight
        notes += () if weight else ("smaller norms have the same loss",)
    else:
        optimum = solve(program)
        point, lower = optimum.point, optimum.lower
        if weight >= (most := critical_weight(program)):
            notes = (f"zero: t = {weight:.4g} is at least the critical {most:.4g}",)
    return _of_point(setting, program, point, place)._replace(
        lower=lower, proof="duality gap", weight=weight, notes=notes
    )


def _of_point(setting: Setting, program: Program, point: LogitPoint, place: Tensor) -> Solution:
    logits = class_logits(point, place)
    left, right, values = factor_grams(logits, setting.metric)
    penalty = program.weight * nuclear_norm(program, point) + bias_penalty(program, point)
    return Solution(
        logits=logits,
        bias=point.bias[place],
        loss=evaluate(program, point).loss,
        penalty=penalty,
        left=left,
        right=right,
        lower=None,
        proof="",
        geometry="soft targets" if setting.targets is not None else "between simplex ETF and SELI",
        source=SPREAD,
        norm=float(values.sum()),
        weight=program.weight,
    )


def _focal(setting: Setting, program: Program, place: Tensor) -> Solution:
    """Not convex: the lowest of some starts."""
    if setting.norms is not None:
        return search(setting)
    found = [solve(program, first(program, size)) for size in (1.0, 3.0, 6.0, 10.0)]
    best = min(found, key=lambda one: one.objective)
    return _of_point(setting, program, best.point, place)._replace(
        proof=f"best of {len(found)} starts: no proof", geometry="between simplex ETF and SELI"
    )


def _crowded(setting: Setting) -> Solution:
    """Fewer dimensions than the optimum wants."""
    found = search(setting)
    if setting.dim is None or not setting.balanced:
        return found
    margin = best_margin(setting.num_classes, setting.dim)
    words = f"{margin.lower:.6g}" if margin.exact else f"{margin.lower:.6g} to {margin.upper:.6g}"
    note = f"as the weight decay goes to 0: a softmax code of margin {words} ({margin.source})"
    return found._replace(notes=(*found.notes, note))
