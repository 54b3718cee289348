"""Which formula or solver a setting goes to."""

from collections.abc import Callable

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.targets.balanced import solve_balanced
from nclab.theory.targets.deep_linear import solve_deep_linear
from nclab.theory.targets.deep_relu import solve_deep_relu
from nclab.theory.targets.given_norms import WEAKEST, least_loss, root
from nclab.theory.targets.grouped import program_of
from nclab.theory.targets.program import (
    LogitPoint,
    Program,
    bias_penalty,
    evaluate,
    expanded,
    nuclear_norm,
    threshold,
)
from nclab.theory.targets.relu_features import solve_relu
from nclab.theory.targets.search import program_of_classes, search
from nclab.theory.targets.seli import solve_limit
from nclab.theory.targets.setting import Setting
from nclab.theory.targets.softmax_code import best_margin, code_means, softmax_code, softmax_margin
from nclab.theory.targets.solve import first, solve
from nclab.theory.targets.solved import CLOSED, Solved, shared_out
from nclab.theory.targets.squared_error import solve_squared

SPREAD = "docs/targets.md, any counts"


def solve_setting(setting: Setting) -> Solved:
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


def _closed(solver: Callable[[Setting, float], Solved], setting: Setting) -> Solved:
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


def _limit(setting: Setting) -> Solved:
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
    return Solved(
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


def _deep(setting: Setting) -> Solved:
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


def _program(setting: Setting) -> Solved:
    """Any counts: the convex program, proved by its dual."""
    weight = 0.0 if setting.norms is not None else setting.weight
    if setting.targets is None:
        options = {"smoothing": setting.smoothing, "bias": setting.bias, "focus": setting.focus}
        program, place = program_of(setting.counts, weight, metric=setting.metric, **options)
    else:
        program = program_of_classes(setting, weight)
        place = torch.arange(setting.num_classes)
    if setting.focus:
        return _focal(setting, program, place)
    notes: tuple[str, ...] = ()
    if setting.norms is not None:
        least = least_loss(program, setting.norm)
        point, lower, weight = least.point, least.lower, least.weight
        notes += () if weight else ("smaller norms have the same loss",)
    else:
        optimum = solve(program)
        point, lower = optimum.point, optimum.lower
        if weight >= (most := threshold(program)):
            notes = (f"zero: t = {weight:.4g} is at least the critical {most:.4g}",)
    return _of_point(setting, program, point, place)._replace(
        lower=lower, proof="duality gap", weight=weight, notes=notes
    )


def _of_point(setting: Setting, program: Program, point: LogitPoint, place: Tensor) -> Solved:
    logits = expanded(point, place)
    left, right, values = shared_out(logits, setting.metric)
    penalty = program.weight * nuclear_norm(program, point) + bias_penalty(program, point)
    return Solved(
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


def _focal(setting: Setting, program: Program, place: Tensor) -> Solved:
    """Not convex: the lowest of some starts."""
    if setting.norms is not None:
        return search(setting)
    found = [solve(program, first(program, size)) for size in (1.0, 3.0, 6.0, 10.0)]
    best = min(found, key=lambda one: one.objective)
    return _of_point(setting, program, best.point, place)._replace(
        proof=f"best of {len(found)} starts: no proof", geometry="between simplex ETF and SELI"
    )


def _crowded(setting: Setting) -> Solved:
    """Fewer dimensions than the optimum wants."""
    found = search(setting)
    if setting.dim is None or not setting.balanced:
        return found
    margin = best_margin(setting.num_classes, setting.dim)
    words = f"{margin.lower:.6g}" if margin.exact else f"{margin.lower:.6g} to {margin.upper:.6g}"
    note = f"as the weight decay goes to 0: a softmax code of margin {words} ({margin.source})"
    return found._replace(notes=(*found.notes, note))
