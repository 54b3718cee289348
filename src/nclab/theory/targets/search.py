"""Search over all weights and features from random starts, for settings without a proof."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from nclab.compute import one_thread
from nclab.progress import track
from nclab.theory.targets.closed_forms import shrunk, solve_squared, without_best_bias
from nclab.theory.targets.descent import Function, descend
from nclab.theory.targets.program import Program, program_of_counts
from nclab.theory.targets.program_solver import solve
from nclab.theory.targets.setting import Setting, Solution, factor_grams

STARTS = 24
"""Number of starts for up to `SMALL` classes; fewer for more classes, down to `FEWEST`."""
SMALL, FEWEST = 12, 6
STEPS = 4000
SMOOTHED = (1e-1, 1e-4, 1e-8)
"""Smoothing constants s, used in this order. The penalty sigma^(2/F) of a singular value is not
smooth at 0, so descent first replaces sigma^2 by sigma^2 + s mean(D); see `Setting.metric`."""
RANK = 1e-3
"""Singular values below this size, relative to the largest one, are set to zero."""
SHRINKAGES = 200
"""Number of proximal steps that prepare a start for the squared error with a penalised bias."""


def search(setting: Setting, *, starts: int | None = None, seed: int = 0) -> Solution:
    """Return the best solution that descent from random starts finds.

    The variables are the classifier, the bias and one feature per class; for losses that are convex
    in the logits, different features within a class cannot be better. Non-negative features are
    written as squares. With unequal counts and few dimensions, nclab then exchanges pairs of
    classes in the best solution as long as an exchange improves it.
    """
    C, starts = setting.num_classes, starts or number_of_starts(setting)
    with one_thread():
        seeds = track(range(starts), "random starts")
        ends = [_random_start(setting, seed + k) for k in seeds]
        ends += [_descended(setting, start) for start in _shrunk_starts(setting)]
        point = min(ends, key=lambda end: end[0])[1]
        exchanged = setting.dim is not None and setting.dim < C - 1 and not setting.balanced
        if exchanged := exchanged and C <= SMALL:
            point = _exchanged(setting, point)
        suffix = " and exchanges of classes" if exchanged else ""
        return _solution_at(setting, point)._replace(
            lower=_relaxed(setting), proof=f"best of {len(ends)} starts{suffix}: no proof"
        )


def number_of_starts(setting: Setting) -> int:
    return max(FEWEST, STARTS * SMALL // max(setting.num_classes, SMALL))


def _relaxed(setting: Setting) -> float | None:
    """Return a lower bound on the objective, or None if no bound is known.

    The bound is the optimum without the limits on dimension and sign of the features; for the
    squared error, also without the penalty of the bias.
    """
    if setting.norms is not None:
        return None
    if setting.loss == "mse":
        free = None if setting.bias is None else 0.0
        return solve_squared(replace(setting, bias=free), setting.weight).lower
    if setting.depth > 1 or setting.focal_gamma:
        return None
    return solve(program_of_classes(setting, setting.weight)).lower


def program_of_setting(setting: Setting, weight: float) -> tuple[Program, Tensor]:
    """Return the program of a setting, and (C,) the group of each class.

    Classes with equal counts form a group; with soft targets, every class is a group.
    """
    if setting.targets is not None:
        return program_of_classes(setting, weight), torch.arange(setting.num_classes)
    return program_of_counts(
        setting.counts,
        weight,
        metric=setting.metric,
        smoothing=setting.smoothing,
        bias=setting.bias,
        focal_gamma=setting.focal_gamma,
    )


def program_of_classes(setting: Setting, weight: float) -> Program:
    """Return the program of a setting with every class as a group."""
    mass = setting.targets
    if mass is None:
        hard = torch.eye(setting.num_classes, dtype=torch.float64)
        mass = (1 - setting.smoothing) * hard + setting.smoothing * (1 / setting.num_classes)
    return Program(
        counts=setting.counts,
        sizes=torch.ones_like(setting.counts),
        mass=mass,
        own_target=mass.diagonal().clone(),
        metric=setting.metric,
        weight=weight,
        bias=setting.bias,
        focal_gamma=setting.focal_gamma,
    )


def _random_start(setting: Setting, seed: int) -> tuple[float, Tensor]:
    """Return the objective and the end point of the descent from one random start.

    For deep heads, the starts have different ranks.
    """
    C, dim, generator = setting.num_classes, _dim(setting), torch.Generator().manual_seed(seed)
    start = 0.5 * torch.randn(2 * C * dim, generator=generator).double()
    if setting.bias is not None:
        start = torch.cat([start, torch.zeros(C).double()])
    if setting.depth > 1:
        # Centring the logits of a class lowers their singular values, but changes squared errors.
        largest = min(dim, C if setting.loss == "mse" else C - 1)
        # On a line, only a bias or a very small class allows classes between two others.
        smallest = 1 if setting.bias is not None or not setting.balanced else min(2, largest)
        rank = largest - seed % (largest - smallest + 1)
        start[: C * dim].view(C, dim)[:, rank:] = 0.0
        start[C * dim : 2 * C * dim].view(dim, C)[rank:] = 0.0
        for smoothed in SMOOTHED:
            function = _objective(setting, smoothed)
            start = descend(function, start, steps=STEPS // 20, tolerance=1e-9, memory=30).point
    return _descended(setting, start)


def _descended(setting: Setting, start: Tensor) -> tuple[float, Tensor]:
    """Return objective and end point of the descent from `start`.

    For deep heads, small singular values of the logits are first set to zero.
    """
    if setting.depth > 1:
        start = _without_small(setting, start)
    end = descend(_objective(setting), start, steps=STEPS, tolerance=1e-14, memory=30)
    return end.value, end.point


def _without_small(setting: Setting, point: Tensor) -> Tensor:
    """Return a point after its small singular values are set to zero, which descent cannot do."""
    weight, features, bias = _split(setting, point)
    roots = setting.metric.sqrt()
    return _factored(setting, weight @ features * roots, bias, RANK * float(roots.max()))


def _factored(setting: Setting, rooted: Tensor, bias: Tensor, smallest: float) -> Tensor:
    """Return the point with given logits times D^{1/2}, without its small singular values.

    Singular values are removed if they are at most `smallest` or `RANK` times the largest one.
    """
    roots, width = setting.metric.sqrt(), _dim(setting)
    left, values, right = torch.linalg.svd(rooted)
    threshold = max(smallest, RANK * float(values.max()))
    factors = torch.where(values > threshold, values, 0.0).sqrt()[:width]
    parts = [left[:, :width] * factors, factors[:, None] * right[:width] / roots]
    parts += [] if setting.bias is None else [bias]
    return torch.cat([part.flatten() for part in parts])


def _shrunk_starts(setting: Setting) -> Iterator[Tensor]:
    """Yield starts for the squared error with a penalised bias; none for other settings.

    A start is found by proximal steps from simple logits: the labels, the centred labels, the
    labels without those of one class, or zero. A step subtracts the gradient and then shrinks the
    singular values, which never raises the objective.
    """
    if setting.loss != "mse" or not setting.bias or setting.features != "free" or setting.norms:
        return
    C, n, roots = setting.num_classes, setting.samples, setting.counts.sqrt()
    labels = roots.diag()
    first = [labels, without_best_bias(labels, roots, 0.0)]
    if C <= SMALL:
        first += [labels * (torch.arange(C) != k) for k in range(C)]
    inside = torch.arange(C) < _dim(setting)
    for Z in first:
        for _ in range(SHRINKAGES):
            slope = without_best_bias(Z - labels, roots, setting.bias)
            left, values, right = torch.linalg.svd(Z - slope)
            values = shrunk(values, n, setting.weight, setting.factors)
            Z = (left * torch.where(inside, values, 0.0)) @ right
        yield _factored(setting, Z, (labels - Z) @ roots / n / (1 + setting.bias), 0.0)
    zero = torch.zeros_like(labels)
    yield _factored(setting, zero, setting.counts / n / (1 + setting.bias), 0.0)


def _exchanged(setting: Setting, point: Tensor) -> Tensor:
    """Return the best point after exchanging pairs of classes while this improves the objective.

    A descent follows every exchange.
    """
    value, better = _objective(setting)(point)[0], True
    while better:
        better = False
        for start in _neighbours(setting, point):
            new_value, new = _descended(setting, start)
            if new_value < value * (1 - 1e-9):
                value, point, better = new_value, new, True
                break
    return point


def _neighbours(setting: Setting, point: Tensor) -> Iterator[Tensor]:
    """Yield, for each pair of classes with different counts, the point with the two exchanged."""
    C, dim = setting.num_classes, _dim(setting)
    for a, b in combinations(range(C), 2):
        if setting.targets is None and setting.counts[a] == setting.counts[b]:
            continue
        order = torch.arange(C)
        order[a], order[b] = b, a
        parts = [
            point[: C * dim].view(C, dim)[order],
            point[C * dim : 2 * C * dim].view(dim, C)[:, order],
        ]
        parts += [] if setting.bias is None else [point[2 * C * dim :][order]]
        yield torch.cat([part.flatten() for part in parts])


def _solution_at(setting: Setting, point: Tensor) -> Solution:
    weight, features, bias = _split(setting, point)
    logits = weight @ features
    loss, penalty = _costs(setting, (weight, features, bias))
    if setting.depth == 1:
        scale = 1.0 if setting.weight_decay is None else setting.weight / setting.weight_decay[0]
        left, right = weight @ weight.T / scale, features.T @ features * scale
    else:
        left, right, _ = factor_grams(logits, setting.metric, setting.factors)
    norm = math.sqrt(float(left.trace()) * float(right.diagonal() @ setting.metric))
    return Solution(
        logits=logits,
        bias=bias,
        loss=float(loss),
        penalty=float(penalty),
        left=left,
        right=right,
        geometry="found by search",
        source="docs/targets.md, search",
        norm=norm,
        weight=0.0 if setting.weight_decay is None else setting.weight,
    )


def _dim(setting: Setting) -> int:
    return min(setting.dim or setting.num_classes, setting.num_classes)


Parts = tuple[Tensor, Tensor, Tensor]
"""Classifier (C, d), class means (d, C) and bias (C,)."""


def _split(setting: Setting, x: Tensor) -> Parts:
    """Return classifier, features and bias from the vector of all variables.

    If the setting gives norms, classifier and features are scaled to these norms.
    """
    C, dim = setting.num_classes, _dim(setting)
    weight, features = x[: C * dim].view(C, dim), x[C * dim : 2 * C * dim].view(dim, C)
    bias = x[2 * C * dim :] if setting.bias is not None else x.new_zeros(C)
    if setting.features == "relu":
        features = features.square()
    if setting.norms is not None:
        alpha, beta = setting.norms
        total = float(setting.metric.sum())
        size = (features.square() @ setting.metric).sum().sqrt()
        weight = weight * (beta * math.sqrt(C) / weight.norm())
        features = features * (alpha * math.sqrt(total) / size)
    return weight, features, bias


def _objective(setting: Setting, smoothed: float = 0.0) -> Function:

    def function(x: Tensor) -> tuple[float, Tensor]:
        x = x.detach().requires_grad_()
        loss, penalty = _costs(setting, _split(setting, x), smoothed)
        value = loss + penalty
        (slope,) = torch.autograd.grad(value, x)
        return float(value.detach()), slope

    return function


def _costs(setting: Setting, parts: Parts, smoothed: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return loss and penalty.

    For deep heads, the penalty is F/2 lambda sum of sigma^(2/F), with sigma the singular values of
    the logits times D^{1/2}. `smoothed` makes it smooth, see `SMOOTHED`.
    """
    weight, features, bias = parts
    product = weight @ features
    logits = product + bias[:, None]
    penalty = logits.new_zeros(()) + (setting.bias or 0.0) / 2 * bias.square().sum()
    if setting.depth > 1:
        rooted = product * setting.metric.sqrt()
        squares = torch.linalg.eigvalsh(rooted @ rooted.T)
        if smoothed:
            squares = squares.clamp(min=0) + smoothed * setting.metric.mean()
        else:
            squares = squares[squares > 1e-12 * squares.detach()[-1]]
        scale = setting.factors / 2 * setting.weight
        penalty = penalty + scale * (squares ** (1 / setting.factors)).sum()
    elif setting.weight_decay is not None:
        on_weights, on_features = setting.weight_decay
        penalty = penalty + on_weights / 2 * weight.square().sum()
        penalty = penalty + on_features / 2 * (features.square() @ setting.metric).sum()
    return (setting.counts * losses(setting, logits)).sum() / setting.samples, penalty


def losses(setting: Setting, logits: Tensor) -> Tensor:
    """Return (C,) the loss of each class, whose logits are a column of `logits`."""
    C = setting.num_classes
    if setting.loss == "mse":
        return (logits - torch.eye(C).to(logits)).square().sum(0) / 2
    log_p = torch.log_softmax(logits, 0)
    if setting.focal_gamma:
        correct = log_p.diagonal()
        return (1 - correct.exp()).clamp(min=1e-300) ** setting.focal_gamma * -correct
    if setting.targets is not None:
        return -(setting.targets * log_p).sum(0)
    return -(1 - setting.smoothing) * log_p.diagonal() - setting.smoothing * log_p.mean(0)
