r"""Solve a convex program by descent on matrix factors, and prove its optimum by a lower bound.

The lower bound: a sample with target T and logits z has the cross-entropy
$\ell(z) \ge (q-T)^\top z + \operatorname{entropy}(q)$ for any class probabilities q. Choose q for
each sample and let $G = (Q-T)/n$. If the spectral norm of G is at most t, every (W, H) has the
objective
$J \ge E + \langle G, WH\rangle + t\|W\|\|H\| \ge E$, with E the mean entropy of q. A bias adds
$r^\top b + \lambda_b\|b\|^2/2 \ge -\|r\|^2/2\lambda_b$ with r = G1.
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
"""Relative widths of a band below the penalty weight t. Singular values of G in this band or above
are set to t, their value at the optimum; nclab tries every width."""


class Distributions(NamedTuple):
    """Class probabilities q of the lower bound, which depend only on the groups of the classes."""

    others: Tensor
    """(G, G) probability of a wrong class in the row's group, for samples of the column's group."""
    correct: Tensor
    """(G,) probability of the correct class."""


def lower_bound(program: Program, point: LogitPoint) -> float:
    """Return a lower bound on the objective of every network of the program.

    It is computed from the class probabilities of the point (see the module docstring). They must
    satisfy |G| <= t, which nclab ensures in two ways: all probabilities are moved towards the
    targets, or the singular values of G close to t are set to t. The second bound is more accurate:
    its error is proportional to the squared distance of the point from the optimum. The cost is the
    singular value decomposition of a matrix with one row and column per group.
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
    """Return the best lower bound on the optimum that the gradient of the loss at a point proves.

    The dual needs a gradient whose spectral norm is at most t; larger gradients are shrunk.
    """
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
    """Return the class probabilities q for which (q - targets) / n is this gradient."""
    slopes = blocks.common * program.scale / program.share
    total = slopes.diagonal()
    spread = blocks.within / program.steepness
    peers = (total + spread) / program.sizes
    correct = torch.where(program.sizes > 1, peers - spread, total)
    others = (slopes + program.mass) / program.sizes[:, None]
    others.diagonal().copy_(torch.where(program.sizes > 1, peers + program.peer_target, 0.0))
    return Distributions(others, correct + program.own_target)


def _mixed(base: Distributions, wanted: Distributions) -> Distributions:
    """Return `base`, moved towards `wanted` as far as no probability becomes negative."""
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
    """Return the lower bound that these probabilities give; -inf if one is negative."""
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
"""A program counts as solved if its relative duality gap is at most this number; with more than
`MANY` groups, the limit is `COARSE_GAP`."""
COARSE_GAP = 2e-6
MANY = 150
CLUSTERS = 30
"""A program with many groups starts from the optimum for this number of averaged counts."""


class Optimum(NamedTuple):
    """Optimum of a convex program, with a proved lower bound."""

    point: LogitPoint
    loss: float
    objective: float
    lower: float
    """Proved lower bound on the objective; -inf for the focal loss."""


def solve(
    program: Program, start: LogitPoint | None = None, *, gap: float | None = None
) -> Optimum:
    """Return the optimum of a program for the logits M.

    nclab writes M D^{1/2} = A B and descends on A and B with the penalty t (|A|^2 + |B|^2) / 2. For
    G groups, a step costs three products of G x G matrices; a thousand different counts take
    seconds.
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
    """Return a mixture of the start and a small share of the initial point.

    Where the start is zero, descent on the factors alone would stay at zero.
    """
    fresh = initial_point(program)
    common, lift = ((1 - share) * a + share * b for a, b in zip(start[:2], fresh[:2], strict=True))
    return LogitPoint(common, torch.where(program.distinct, lift, 0.0), start.bias)


def _is_symmetric(program: Program) -> bool:
    """Whether the classes of the program differ in their counts only."""
    similar = _symmetric_like(program, program.counts, program.sizes, program.metric)
    return bool(torch.allclose(similar.mass, program.mass, rtol=0, atol=1e-14))


def _symmetric_like(program: Program, counts: Tensor, sizes: Tensor, metric: Tensor) -> Program:
    """Return a program for other counts, with the smoothing, bias and weight of `program`."""
    total = float(program.sizes.sum())
    smoothing = (1 - float(program.own_target[0])) * total / (total - 1)
    similar = symmetric_program(counts, sizes, program.weight, metric=metric, smoothing=smoothing)
    return replace(similar, bias=program.bias, focal_gamma=program.focal_gamma)


def average_counts(program: Program) -> Program:
    """Return a smaller program in which similar counts are replaced by their average.

    The smaller program has `CLUSTERS` groups.
    """
    label, zeros = _labels(program), torch.zeros(CLUSTERS, dtype=torch.float64)
    sizes = zeros.index_add(0, label, program.sizes)
    counts = zeros.index_add(0, label, program.sizes * program.counts) / sizes
    metric = zeros.index_add(0, label, program.sizes * program.metric) / sizes
    return _symmetric_like(program, counts, sizes, metric)


def _labels(program: Program) -> Tensor:
    """Return (G,) the cluster index of each group; groups with similar counts share a cluster."""
    order = program.counts.argsort(descending=True)
    label = torch.empty_like(order)
    label[order] = torch.arange(len(order)) * CLUSTERS // len(order)
    return label


def _from_clusters(program: Program) -> LogitPoint:
    """Return the optimum for averaged counts, as a start for all groups."""
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
    """Return a point as one vector for the descent.

    The vector holds the factors A and B (see `solve`), the square roots of the lifts, and the
    bias, in scaled units.
    """
    left, values, right = torch.linalg.svd(point.rooted(program))
    roots = values.sqrt()
    parts = [(left * roots).flatten(), (roots[:, None] * right).flatten()]
    parts.append(point.lift.sqrt() / _lift_unit(program))
    return torch.cat(parts if program.bias is None else [*parts, point.bias / _bias_unit(program)])


def _lift_unit(program: Program) -> Tensor:
    """Return (G,) units in which the descent vector holds the square roots of the lifts.

    In these units, a step has the same length as in the factors of the full C x C matrix, where
    the root of a group with k classes occurs k - 1 times. Without these units, descent is slow for
    large groups.
    """
    return 1 / (2 * (program.sizes - 1).clamp(min=1) * program.roots).sqrt()


def _bias_unit(program: Program) -> Tensor:
    """Return (G,) units in which the descent vector holds the bias.

    The units account for the number of classes that share a bias, and for a large penalty.
    """
    return 1 / (program.sizes * (1 + (program.bias or 0.0))).sqrt()


def _split(program: Program, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the factors A and B, the roots of the lifts, and the bias from a `_packed` vector."""
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
    """Function that returns the objective of a `_packed` vector and its gradient."""

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
