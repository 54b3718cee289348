r"""The optimum of a program by descent on factors, and the lower bound that proves it.

For distributions q of the samples with targets T, $\ell(z) \ge (q-T)^\top z + H(q)$. If
$G = (Q-T)/n$ has norm at most t, every (W, H) has
$J \ge \operatorname{mean} H(q) + \langle G, WH\rangle + t\|W\|\|H\| \ge \operatorname{mean} H(q)$.
A bias adds $r^\top b + \lambda_b\|b\|^2/2 \ge -\|r\|^2/2\lambda_b$ with r = G1.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.compute import one_thread
from nclab.theory.targets.descent import descend
from nclab.theory.targets.program import (
    GradientBlocks,
    LogitPoint,
    Program,
    bias_penalty,
    critical_weight,
    evaluate,
    mean_entropy,
    nuclear_norm,
    residuals,
    symmetric_program,
    zero,
)

BANDS = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.3)
"""Singular values of G this near to t, relatively, are tried as t: at the optimum they are."""


class Distributions(NamedTuple):
    """Distributions: (G, G) of other classes in each group, (G,) of the own class."""

    others: Tensor
    own: Tensor


def lower_bound(program: Program, point: LogitPoint) -> float:
    """No network of the program has an objective below this number.

    The probabilities of the point are made feasible in two ways: all are moved towards the targets
    until |G| <= t, and the singular values of G next to t are set to t. The second loses only the
    square of the point's distance to the optimum. Costs an SVD of G x G.
    """
    found = residuals(program, evaluate(program, point))
    even = (program.sizes * program.metric).sqrt()
    even = even / even.norm()
    level = found.common - torch.outer(found.common @ even, even)  # G 1 = 0
    if program.bias is None:
        return _feasible(program, found)
    if program.bias == 0:  # else a free bias could gain without end
        return _feasible(program, found._replace(common=level))
    return max(
        _feasible(program, found),
        _feasible(program, found._replace(common=level)),  # better where the penalty is tiny
    )


def _feasible(program: Program, found: GradientBlocks) -> float:
    """The best bound of residuals that are made feasible."""
    left, values, right = torch.linalg.svd(found.common)
    t = program.weight
    largest = max(float(values.max()), float(found.within.max()), 1e-300)
    shrink = min(1.0, t / largest) * (1 - 1e-15)
    base = _guess(program, GradientBlocks(found.common * shrink, found.within * shrink))
    best = _dual_value(program, base)
    for band in BANDS:
        common = (left * _rounded(values, t, band)) @ right
        guess = _guess(program, GradientBlocks(common, _rounded(found.within, t, band)))
        best = max(best, _dual_value(program, _mixed(base, guess)))
    return best


def _rounded(values: Tensor, t: float, band: float) -> Tensor:
    return torch.where(values > t * (1 - band), torch.full_like(values, t * (1 - 1e-15)), values)


def _guess(program: Program, residuals: GradientBlocks) -> Distributions:
    """The distributions that have these residuals."""
    slopes = residuals.common * program.scale / program.share
    total = slopes.diagonal()
    spread = residuals.within / program.steepness
    same = (total + spread) / program.sizes
    own = torch.where(program.sizes > 1, same - spread, total)
    others = (slopes + program.mass) / program.sizes[:, None]
    others.diagonal().copy_(torch.where(program.sizes > 1, same + program.same, 0.0))
    return Distributions(others, own + program.own)


def _mixed(base: Distributions, wanted: Distributions) -> Distributions:
    """As near to what is wanted as has no negative probability."""
    way = 1.0
    for old, new in zip(base, wanted, strict=True):
        below = new < 0
        if bool(below.any()):
            way = min(way, float((old[below] / (old[below] - new[below])).min()))
    way = max(0.0, way if way == 1.0 else way * (1 - 1e-9))
    return Distributions(*(old + way * (new - old) for old, new in zip(base, wanted, strict=True)))


def _dual_value(program: Program, guess: Distributions) -> float:
    if float(guess.others.min()) < -1e-15 or float(guess.own.min()) < -1e-15:
        return float("-inf")
    guess = Distributions(guess.others.clamp(min=0), guess.own.clamp(min=0))
    value = mean_entropy(guess.others, guess.own, program)
    if program.bias:
        mass = guess.others * program.sizes[:, None]
        mass.diagonal().copy_((program.sizes - 1) * guess.others.diagonal() + guess.own)
        rest = (mass - program.mass) @ program.share / program.sizes
        value -= float(program.sizes @ rest.square()) / (2 * program.bias)
    return value


GAP = 1e-10
"""Relative gap at which a small program is solved; from `MANY` groups on `COARSE_GAP`."""
COARSE_GAP = 2e-6
MANY = 150
CLUSTERS = 30
"""A program of many groups starts from one whose counts are averaged to so many."""


class Optimum(NamedTuple):
    """A solved program."""

    point: LogitPoint
    loss: float
    objective: float
    lower: float
    """What the dual proves of the objective."""


def solve(
    program: Program, start: LogitPoint | None = None, *, gap: float | None = None
) -> Optimum:
    """The optimum, by descent on factors A B = M D^{1/2} with penalty t (|A|^2 + |B|^2) / 2.

    Costs three products of G x G matrices a step; for a thousand distinct counts seconds.
    """
    with one_thread():
        if program.weight >= critical_weight(program) and not program.focal_gamma:
            return _optimum(program, zero(program))
        large = program.groups > MANY
        if start is None:
            start = _from_clusters(program) if large and _is_symmetric(program) else first(program)
        else:
            start = _perturbed(program, start)
        gap = gap or (COARSE_GAP if large else GAP)
        chunk, most = (8, 120) if large else (100, 6000)
        memory = 10 if large else 30
        best = _optimum(program, start)
        x, taken = _packed(program, start), 0
        while best.objective - best.lower > gap * best.objective and taken < most:
            found = descend(_Objective(program), x, steps=chunk, rest=1e-16, memory=memory)
            x, taken = found.point, taken + max(found.steps, 1)
            now = _optimum(program, _point(program, x))
            better = now.objective < best.objective
            lower = max(best.lower, now.lower)
            best = (now if better else best)._replace(lower=lower)
            if found.steps < chunk:
                break
        return best


def first(program: Program, size: float = 4.0) -> LogitPoint:
    """Logits proportional to the centred targets."""
    total = float(program.sizes.sum())
    single = program.sizes == 1
    b = program.mass / program.sizes[:, None] - 1 / total
    same = program.same - 1 / total
    b.diagonal().copy_(torch.where(single, b.diagonal(), same))
    lift = torch.where(single, torch.zeros_like(program.own), program.own - program.same)
    point = LogitPoint(b, torch.where(program.apart, lift, 0.0), torch.zeros_like(lift))
    return LogitPoint(size * point.common, size * point.lift, zero(program).bias)


def _perturbed(program: Program, start: LogitPoint, part: float = 0.1) -> LogitPoint:
    """A little of the first point: where factors are zero, descent would never leave them so."""
    fresh = first(program)
    common, lift = ((1 - part) * a + part * b for a, b in zip(start[:2], fresh[:2], strict=True))
    return LogitPoint(common, torch.where(program.apart, lift, 0.0), start.bias)


def _is_symmetric(program: Program) -> bool:
    made = _symmetric_like(program, program.counts, program.sizes, program.metric)
    return bool(torch.allclose(made.mass, program.mass, rtol=0, atol=1e-14))


def _symmetric_like(program: Program, counts: Tensor, sizes: Tensor, metric: Tensor) -> Program:
    total = float(program.sizes.sum())
    smoothing = (1 - float(program.own[0])) * total / (total - 1)
    made = symmetric_program(counts, sizes, program.weight, metric=metric, smoothing=smoothing)
    return replace(made, bias=program.bias, focal_gamma=program.focal_gamma)


def average_counts(program: Program) -> Program:
    """The program with its counts averaged to a few."""
    label, zeros = _labels(program), torch.zeros(CLUSTERS, dtype=torch.float64)
    sizes = zeros.index_add(0, label, program.sizes)
    counts = zeros.index_add(0, label, program.sizes * program.counts) / sizes
    metric = zeros.index_add(0, label, program.sizes * program.metric) / sizes
    return _symmetric_like(program, counts, sizes, metric)


def _labels(program: Program) -> Tensor:
    """(G,) the cluster of each group, by rank of its count."""
    order = program.counts.argsort(descending=True)
    label = torch.empty_like(order)
    label[order] = torch.arange(len(order)) * CLUSTERS // len(order)
    return label


def _from_clusters(program: Program) -> LogitPoint:
    """The optimum of averaged counts, as a start."""
    point, label = solve(average_counts(program), gap=1e-6).point, _labels(program)
    single = program.sizes == 1
    common, lift = point.common[label][:, label], point.lift[label]
    common.diagonal().add_(torch.where(single, lift, 0.0))
    lift = torch.where(single | ~program.apart, 0.0, lift)
    return LogitPoint(common, lift, point.bias[label])


def _optimum(program: Program, point: LogitPoint) -> Optimum:
    loss = evaluate(program, point).loss
    penalty = program.weight * nuclear_norm(program, point) + bias_penalty(program, point)
    lower = float("-inf") if program.focal_gamma else lower_bound(program, point)
    return Optimum(point, loss, loss + penalty, min(lower, loss + penalty))


def _packed(program: Program, point: LogitPoint) -> Tensor:
    left, values, right = torch.linalg.svd(point.rooted(program))
    roots = values.sqrt()
    parts = [(left * roots).flatten(), (roots[:, None] * right).flatten()]
    parts.append(point.lift.sqrt() / _lift_unit(program))
    return torch.cat(parts if program.bias is None else [*parts, point.bias / _bias_unit(program)])


def _lift_unit(program: Program) -> Tensor:
    """(G,) of the lifts' roots in the packed vector.

    A step there is then as long as in both factors of the whole C x C matrix, where a root stands
    k_g - 1 times; else those of large groups are so steep that descent crawls.
    """
    return 1 / (2 * (program.sizes - 1).clamp(min=1) * program.roots).sqrt()


def _bias_unit(program: Program) -> Tensor:
    """(G,) likewise of the bias, which k_g classes share; and a large penalty is not steep."""
    return 1 / (program.sizes * (1 + (program.bias or 0.0))).sqrt()


def _split(program: Program, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    many = program.groups
    square = many * many
    left, right = x[:square].view(many, many), x[square : 2 * square].view(many, many)
    root = x[2 * square : 2 * square + many] * _lift_unit(program)
    biased = program.bias is not None
    bias = x[2 * square + many :] * _bias_unit(program) if biased else torch.zeros_like(root)
    return left, right, root, bias


def _unpacked(program: Program, rooted: Tensor, root: Tensor, bias: Tensor) -> LogitPoint:
    lift = root.square()
    rooted.diagonal().sub_(lift * program.roots)
    return LogitPoint(rooted / program.scale, lift, bias)


def _point(program: Program, x: Tensor) -> LogitPoint:
    left, right, root, bias = _split(program, x)
    return _unpacked(program, left @ right, root, bias)


class _Objective:
    """Objective and slopes of packed factors."""

    def __init__(self, program: Program) -> None:
        self.program, self.scale, self.roots = program, program.scale, program.roots
        self.cost = program.weight * (program.sizes - 1) * program.roots
        self.apart = program.apart
        self.lift_unit, self.bias_unit = _lift_unit(program), _bias_unit(program)

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        program, t = self.program, self.program.weight
        left, right, root, bias = _split(program, x)
        value = evaluate(program, _unpacked(program, left @ right, root, bias))
        slope = value.common / self.scale
        lift = value.lift - self.roots * slope.diagonal() + self.cost
        parts = [
            torch.addmm(left, slope, right.T, beta=t).flatten(),
            torch.addmm(right, left.T, slope, beta=t).flatten(),
            torch.where(self.apart, 2 * root * lift * self.lift_unit, 0.0),
        ]
        penalty = t / 2 * float(left.flatten() @ left.flatten() + right.flatten() @ right.flatten())
        penalty += float(self.cost @ root.square())
        if program.bias is not None:
            slope = value.common.sum(1) + program.bias * program.sizes * bias
            parts.append(slope * self.bias_unit)
            penalty += program.bias / 2 * float(program.sizes @ bias.square())
        return value.loss + penalty, torch.cat(parts)
