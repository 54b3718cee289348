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
    gradient_blocks,
    mean_entropy,
    nuclear_norm,
    symmetric_program,
    zero_point,
)

BANDS = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.3)
"""Relative widths below t within which singular values of G are set to t, as at the optimum."""


class Distributions(NamedTuple):
    """Class probabilities by groups: (G, G) of other classes, (G,) of the correct class."""

    others: Tensor
    correct: Tensor


def lower_bound(program: Program, point: LogitPoint) -> float:
    """Return a lower bound on the objective of every network of the program.

    The probabilities of the point are made feasible in two ways: all are moved towards the targets
    until |G| <= t, and the singular values of G next to t are set to t. The second bound is
    below the optimum by the square of the point's distance only. The cost is an SVD of G x G.
    """
    blocks = gradient_blocks(program, evaluate(program, point))
    even = (program.sizes * program.metric).sqrt()
    even = even / even.norm()
    level = blocks.common - torch.outer(blocks.common @ even, even)  # G 1 = 0
    candidates = []
    if program.bias != 0:  # a free bias would make this bound -inf
        candidates.append(blocks)
    if program.bias is not None:  # better if the penalty is tiny
        candidates.append(blocks._replace(common=level))
    return max(_feasible(program, candidate) for candidate in candidates)


def _feasible(program: Program, blocks: GradientBlocks) -> float:
    """Return the best dual bound of gradients that are made feasible."""
    left, values, right = torch.linalg.svd(blocks.common)
    t = program.weight
    largest = max(float(values.max()), float(blocks.within.max()), 1e-300)
    shrink = min(1.0, t / largest) * (1 - 1e-15)
    base = _distributions(program, GradientBlocks(blocks.common * shrink, blocks.within * shrink))
    best = _dual_value(program, base)
    for band in BANDS:
        common = (left * _rounded(values, t, band)) @ right
        guess = _distributions(program, GradientBlocks(common, _rounded(blocks.within, t, band)))
        best = max(best, _dual_value(program, _mixed(base, guess)))
    return best


def _rounded(values: Tensor, t: float, band: float) -> Tensor:
    return torch.where(values > t * (1 - band), torch.full_like(values, t * (1 - 1e-15)), values)


def _distributions(program: Program, blocks: GradientBlocks) -> Distributions:
    """Return the class probabilities whose distance from the targets gives this gradient."""
    slopes = blocks.common * program.scale / program.share
    total = slopes.diagonal()
    spread = blocks.within / program.steepness
    peers = (total + spread) / program.sizes
    correct = torch.where(program.sizes > 1, peers - spread, total)
    others = (slopes + program.mass) / program.sizes[:, None]
    others.diagonal().copy_(torch.where(program.sizes > 1, peers + program.peer_target, 0.0))
    return Distributions(others, correct + program.own_target)


def _mixed(base: Distributions, wanted: Distributions) -> Distributions:
    """Return the last point without negative probabilities on the line from `base` to `wanted`."""
    share = 1.0
    for old, new in zip(base, wanted, strict=True):
        below = new < 0
        if bool(below.any()):
            share = min(share, float((old[below] / (old[below] - new[below])).min()))
    share = max(0.0, share if share == 1.0 else share * (1 - 1e-9))
    return Distributions(
        *(old + share * (new - old) for old, new in zip(base, wanted, strict=True))
    )


def _dual_value(program: Program, guess: Distributions) -> float:
    """Return the dual objective; -inf for negative probabilities."""
    if float(guess.others.min()) < -1e-15 or float(guess.correct.min()) < -1e-15:
        return float("-inf")
    guess = Distributions(guess.others.clamp(min=0), guess.correct.clamp(min=0))
    value = mean_entropy(guess.others, guess.correct, program)
    if program.bias:
        mass = guess.others * program.sizes[:, None]
        mass.diagonal().copy_((program.sizes - 1) * guess.others.diagonal() + guess.correct)
        residual = (mass - program.mass) @ program.share / program.sizes
        value -= float(program.sizes @ residual.square()) / (2 * program.bias)
    return value


GAP = 1e-10
"""Relative gap at which a small program is solved; `COARSE_GAP` from `MANY` groups on."""
COARSE_GAP = 2e-6
MANY = 150
CLUSTERS = 30
"""Number of averaged counts of the start for a program with many groups."""


class Optimum(NamedTuple):
    """A solved program."""

    point: LogitPoint
    loss: float
    objective: float
    lower: float
    """Dual bound on the objective."""


def solve(
    program: Program, start: LogitPoint | None = None, *, gap: float | None = None
) -> Optimum:
    """Return the optimum by descent on factors A B = M D^{1/2} with penalty t (|A|^2 + |B|^2) / 2.

    A step costs three products of G x G matrices; a thousand distinct counts take seconds.
    """
    with one_thread():
        if program.weight >= critical_weight(program) and not program.focal_gamma:
            return _optimum(program, zero_point(program))
        large = program.groups > MANY
        if start is not None:
            start = _perturbed(program, start)
        elif large and _is_symmetric(program):
            start = _from_clusters(program)
        else:
            start = initial_point(program)
        gap = gap or (COARSE_GAP if large else GAP)
        chunk, largest_steps = (8, 120) if large else (100, 6000)
        memory = 10 if large else 30
        best = _optimum(program, start)
        x, steps_taken = _packed(program, start), 0
        while best.objective - best.lower > gap * best.objective and steps_taken < largest_steps:
            descent = descend(_Objective(program), x, steps=chunk, tolerance=1e-16, memory=memory)
            x, steps_taken = descent.point, steps_taken + max(descent.steps, 1)
            left, right, root, bias = _split(program, x)
            current = _optimum(program, _unpacked(program, left @ right, root, bias))
            better = current.objective < best.objective
            lower = max(best.lower, current.lower)
            best = (current if better else best)._replace(lower=lower)
            if descent.steps < chunk:
                break
        return best


def initial_point(program: Program, size: float = 4.0) -> LogitPoint:
    """Return logits proportional to the centred targets."""
    total = float(program.sizes.sum())
    b = program.mass / program.sizes[:, None] - 1 / total
    peers = program.peer_target - 1 / total
    b.diagonal().copy_(torch.where(program.sizes == 1, b.diagonal(), peers))
    lift = torch.where(program.distinct, program.own_target - program.peer_target, 0.0)
    return LogitPoint(size * b, size * lift, zero_point(program).bias)


def _perturbed(program: Program, start: LogitPoint, share: float = 0.1) -> LogitPoint:
    """Return the start mixed with a little of the initial point.

    Without it, descent would never leave factors that are zero.
    """
    fresh = initial_point(program)
    common, lift = ((1 - share) * a + share * b for a, b in zip(start[:2], fresh[:2], strict=True))
    return LogitPoint(common, torch.where(program.distinct, lift, 0.0), start.bias)


def _is_symmetric(program: Program) -> bool:
    """Whether the classes of the program differ in their counts only."""
    similar = _symmetric_like(program, program.counts, program.sizes, program.metric)
    return bool(torch.allclose(similar.mass, program.mass, rtol=0, atol=1e-14))


def _symmetric_like(program: Program, counts: Tensor, sizes: Tensor, metric: Tensor) -> Program:
    """Return a symmetric program with the smoothing, bias and weight of another."""
    total = float(program.sizes.sum())
    smoothing = (1 - float(program.own_target[0])) * total / (total - 1)
    similar = symmetric_program(counts, sizes, program.weight, metric=metric, smoothing=smoothing)
    return replace(similar, bias=program.bias, focal_gamma=program.focal_gamma)


def average_counts(program: Program) -> Program:
    """Return the program with its counts averaged in `CLUSTERS` clusters."""
    label, zeros = _labels(program), torch.zeros(CLUSTERS, dtype=torch.float64)
    sizes = zeros.index_add(0, label, program.sizes)
    counts = zeros.index_add(0, label, program.sizes * program.counts) / sizes
    metric = zeros.index_add(0, label, program.sizes * program.metric) / sizes
    return _symmetric_like(program, counts, sizes, metric)


def _labels(program: Program) -> Tensor:
    """Return (G,) the cluster of each group, by rank of its count."""
    order = program.counts.argsort(descending=True)
    label = torch.empty_like(order)
    label[order] = torch.arange(len(order)) * CLUSTERS // len(order)
    return label


def _from_clusters(program: Program) -> LogitPoint:
    """Return the optimum of averaged counts as a start."""
    point, label = solve(average_counts(program), gap=1e-6).point, _labels(program)
    single = program.sizes == 1
    common, lift = point.common[label][:, label], point.lift[label]
    common.diagonal().add_(torch.where(single, lift, 0.0))
    lift = torch.where(single | ~program.distinct, 0.0, lift)
    return LogitPoint(common, lift, point.bias[label])


def _optimum(program: Program, point: LogitPoint) -> Optimum:
    loss = evaluate(program, point).loss
    penalty = program.weight * nuclear_norm(program, point) + bias_penalty(program, point)
    lower = float("-inf") if program.focal_gamma else lower_bound(program, point)
    return Optimum(point, loss, loss + penalty, min(lower, loss + penalty))


def _packed(program: Program, point: LogitPoint) -> Tensor:
    """Return a point as one vector: both factors, square roots of lifts, and bias."""
    left, values, right = torch.linalg.svd(point.rooted(program))
    roots = values.sqrt()
    parts = [(left * roots).flatten(), (roots[:, None] * right).flatten()]
    parts.append(point.lift.sqrt() / _lift_unit(program))
    return torch.cat(parts if program.bias is None else [*parts, point.bias / _bias_unit(program)])


def _lift_unit(program: Program) -> Tensor:
    """Return (G,) units of the square roots of lifts in the packed vector.

    In these units a step is as long as in both factors of the full C x C matrix, where each root
    occurs k_g - 1 times. Without them descent is slow for large groups.
    """
    return 1 / (2 * (program.sizes - 1).clamp(min=1) * program.roots).sqrt()


def _bias_unit(program: Program) -> Tensor:
    """Return (G,) units of the bias in the packed vector.

    They account for the k_g classes that share a bias, and for a large penalty.
    """
    return 1 / (program.sizes * (1 + (program.bias or 0.0))).sqrt()


def _split(program: Program, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the factors, square roots of lifts, and bias of a packed vector."""
    groups = program.groups
    square = groups * groups
    left, right = x[:square].view(groups, groups), x[square : 2 * square].view(groups, groups)
    root = x[2 * square : 2 * square + groups] * _lift_unit(program)
    biased = program.bias is not None
    bias = x[2 * square + groups :] * _bias_unit(program) if biased else torch.zeros_like(root)
    return left, right, root, bias


def _unpacked(program: Program, rooted: Tensor, root: Tensor, bias: Tensor) -> LogitPoint:
    lift = root.square()
    rooted.diagonal().sub_(lift * program.roots)
    return LogitPoint(rooted / program.scale, lift, bias)


class _Objective:
    """Objective of packed factors and its gradient."""

    def __init__(self, program: Program) -> None:
        self.program, self.scale, self.roots = program, program.scale, program.roots
        self.cost = program.weight * (program.sizes - 1) * program.roots
        self.distinct = program.distinct
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
            torch.where(self.distinct, 2 * root * lift * self.lift_unit, 0.0),
        ]
        penalty = t / 2 * float(left.flatten() @ left.flatten() + right.flatten() @ right.flatten())
        penalty += float(self.cost @ root.square())
        if program.bias is not None:
            slope = value.common.sum(1) + program.bias * program.sizes * bias
            parts.append(slope * self.bias_unit)
            penalty += program.bias / 2 * float(program.sizes @ bias.square())
        return value.loss + penalty, torch.cat(parts)
