r"""Convex program for the logits of a target, for any class counts.

M is the C x C matrix of logits without bias, with one column per class. Classes with equal counts
form a group and are interchangeable. So an optimum has the blocks
$M_{gg} = a_g I + b_{gg} 11^\top$ within a group g and $M_{gh} = b_{gh} 11^\top$ between two groups.
G different counts need only G + G^2 numbers: `lift` holds a, and `common` holds b.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Program:
    r"""Minimisation problem over the logits M and the bias b, for G groups of classes.

    $$\sum_c \tfrac{n_c}{n}\ell_c(m_c+b) + t\,\|M D^{1/2}\|_* + \tfrac{\lambda_b}{2}\|b\|^2$$

    Class c has $n_c$ of n samples, the logits $m_c$ and the loss $\ell_c$. The nuclear norm stands
    for the penalties of weights and features (docs/targets.md); `metric` is the diagonal of D.
    """

    counts: Tensor
    """(G,) number of samples of each class of a group."""
    sizes: Tensor
    """(G,) number of classes of a group."""
    mass: Tensor
    """(G, G) total target probability of all classes in the row's group, for a sample of the
    column's group."""
    own_target: Tensor
    """(G,) target probability of the correct class."""
    metric: Tensor
    """(G,) weight D of a class in the norm of the features: its count, or 1."""
    weight: float
    """Penalty weight t, the geometric mean of the two weight decays."""
    bias: float | None = None
    """Penalty of the bias: 0 for a bias without penalty, None for no bias."""
    focal_gamma: float = 0.0
    """Exponent of the focal loss; 0 is cross-entropy."""

    @property
    def groups(self) -> int:
        return len(self.counts)

    @property
    def samples(self) -> float:
        return float(self.counts @ self.sizes)

    @property
    def share(self) -> Tensor:
        """(G,) share of the samples in a group."""
        return self.counts * self.sizes / self.samples

    @property
    def scale(self) -> Tensor:
        """(G, G) factors of the logits between groups in the matrix whose nuclear norm counts."""
        return torch.outer(self.sizes, self.metric * self.sizes).sqrt()

    @property
    def roots(self) -> Tensor:
        return self.metric.sqrt()

    @property
    def steepness(self) -> Tensor:
        """(G,) factors from probabilities minus targets to derivatives with respect to M D^{1/2}.

        They are sqrt(n_g) / n if D holds the counts $n_g$.
        """
        return self.counts / self.samples / self.roots

    @property
    def peer_target(self) -> Tensor:
        """(G,) target probability of each other class of the same group."""
        remaining = self.mass.diagonal() - self.own_target
        return torch.where(self.sizes > 1, remaining / (self.sizes - 1).clamp(min=1), 0.0)

    @property
    def distinct(self) -> Tensor:
        r"""(G,) whether the classes of a group have different means at the optimum.

        With hard targets, and the counts $n_g$ in D, the means differ if and only if
        $n_g > (nt)^2$. The reason: if $a_g > 0$, then
        $\tfrac{n_g}{n}(T_{own}-T_{same}-p_{own}+p_{same}) = t\sqrt{n_g}$, with T the targets and p
        the probabilities of the correct class and of another class of the group.
        """
        spread = (self.own_target - self.peer_target) * self.steepness
        if self.focal_gamma:  # the condition below holds for cross-entropy only
            return self.sizes > 1
        return (spread > self.weight) & (self.sizes > 1)


class LogitPoint(NamedTuple):
    """Logits and bias at one point of the search, stored once for each group or pair of groups."""

    common: Tensor
    """(G, G) logits b: the logit of a class in the row's group, for a sample of another class in
    the column's group."""
    lift: Tensor
    """(G,) correct logit minus the others of its group, the number a; 0 in groups of one class."""
    bias: Tensor
    """(G,) bias of every class in the group."""

    def rooted(self, program: Program) -> Tensor:
        """Return the (G, G) block of M D^{1/2} that acts on vectors constant on every group.

        Its singular values, and the lifts times the roots of D, are the singular values of
        M D^{1/2}.
        """
        return self.common * program.scale + (self.lift * program.roots).diag()


class GradientBlocks(NamedTuple):
    """Gradient of the loss with respect to M D^{1/2}, a (C, C) matrix, as blocks for G groups."""

    common: Tensor
    """(G, G) block that acts on vectors whose entries are equal within every group."""
    within: Tensor
    """(G,) eigenvalues of the negative gradient: entry g is for vectors that are nonzero only in
    group g and sum to 0."""


class LossAndGradient(NamedTuple):
    """Loss of a point and its derivatives."""

    loss: float
    lift: Tensor
    """(G,) derivative of the loss with respect to `LogitPoint.lift`."""
    common: Tensor
    """(G, G) derivative of the loss with respect to `LogitPoint.common`."""


def symmetric_program(
    counts: Tensor,
    sizes: Tensor,
    weight: float,
    *,
    metric: Tensor | None = None,
    smoothing: float = 0.0,
    bias: float | None = None,
    focal_gamma: float = 0.0,
) -> Program:
    """Return the program for hard or smoothed labels, where classes differ only in their counts."""
    total = float(sizes.sum())
    own_target = torch.full_like(counts, 1 - smoothing + smoothing / total)
    mass = (1 - smoothing) * torch.eye(len(counts)).to(counts)
    mass = mass + (smoothing / total) * sizes[:, None]
    metric = counts if metric is None else metric
    return Program(counts, sizes, mass, own_target, metric, weight, bias, focal_gamma)


def evaluate(program: Program, point: LogitPoint) -> LossAndGradient:
    """Return loss and derivatives, exact to rounding for losses of any size."""
    b, a = point.common + point.bias[:, None], point.lift
    correct = a + b.diagonal()
    gaps = b - correct
    top = gaps.amax(0).clamp(min=0)
    others = (gaps - top).exp_() * program.sizes[:, None]
    others.diagonal().mul_((program.sizes - 1) / program.sizes)
    sum_of_others = others.sum(0)
    loss = torch.where(
        top > 0, top + ((-top).exp() + sum_of_others).clamp(min=TINY).log(), sum_of_others.log1p()
    )
    others /= (-top).exp() + sum_of_others
    wrong = others.sum(0)  # 1 - p of the correct class
    share = program.share
    if program.focal_gamma:
        p = (1 - wrong).clamp(min=TINY)
        power = wrong.clamp(min=TINY) ** (program.focal_gamma - 1)
        factor = power * (wrong + program.focal_gamma * p * loss)  # -p log p = p loss
        total = float(share @ (power * wrong * loss))
        others *= share * factor
        lift = -share * factor * wrong
        others.diagonal().add_(lift)
        return LossAndGradient(total, lift, others)
    extra = (correct - torch.einsum("gh,gh->h", program.mass, b)) - program.own_target * a
    total = float(share @ (loss + extra))
    lift = share * (1 - program.own_target - wrong)
    others -= program.mass
    others.diagonal().add_(1 - wrong)
    others *= share
    return LossAndGradient(total, lift, others)


def gradient_blocks(program: Program, value: LossAndGradient) -> GradientBlocks:
    """Return the gradient of the loss with respect to M D^{1/2} (M logits, D from `metric`).

    At the optimum, its spectral norm is at most t.
    """
    common = value.common / program.scale
    correct = value.lift / program.share  # p - T of the correct class
    peers = (value.common.diagonal() / program.share - correct) / (program.sizes - 1).clamp(min=1)
    within = torch.where(program.sizes > 1, (peers - correct) * program.steepness, 0.0)
    return GradientBlocks(common, within)


def nuclear_norm(program: Program, point: LogitPoint) -> float:
    """Return the nuclear norm of M D^{1/2}, with M the logits and D = diag(`metric`)."""
    values = torch.linalg.svdvals(point.rooted(program))
    return float(values.sum() + ((program.sizes - 1) * program.roots * point.lift.abs()).sum())


def bias_penalty(program: Program, point: LogitPoint) -> float:
    return (program.bias or 0.0) / 2 * float(program.sizes @ point.bias.square())


def zero_point(program: Program) -> LogitPoint:
    """Return the point with all logits 0, and the best bias if the program has a bias."""
    zeros = torch.zeros_like(program.own_target)
    point = LogitPoint(torch.zeros_like(program.mass), zeros, zeros)
    if program.bias is None or program.focal_gamma:
        return point
    mean_target = (program.mass @ program.share) / program.sizes  # mean target of a class
    best = mean_target.clamp(min=TINY).log()
    best = best - best @ program.sizes / program.sizes.sum()
    for _ in range(200 if program.bias else 0):  # Newton's steps of at most 1
        p = (best - best.max()).exp()
        p = p / (p @ program.sizes)
        slope = p - mean_target + program.bias * best
        hessian = (p + program.bias).diag() - torch.outer(p, p * program.sizes)
        step = torch.linalg.solve(hessian, slope)
        if float(step.abs().max()) < 1e-15:
            break
        best = best - step / max(1.0, float(step.abs().max()))
    return point._replace(bias=best)


def critical_weight(program: Program) -> float:
    """Return the smallest penalty weight t at which all logits except the bias are zero."""
    blocks = gradient_blocks(program, evaluate(program, zero_point(program)))
    largest = float(torch.linalg.matrix_norm(blocks.common, 2))
    return max(largest, float(blocks.within.max()))


def class_logits(point: LogitPoint, group: Tensor) -> Tensor:
    """Return the (C, C) logits without bias; `group` (C,) is the group of each class."""
    logits = point.common[group][:, group]
    logits.diagonal().add_(point.lift[group])
    return logits


def mean_entropy(probabilities: Tensor, correct: Tensor, program: Program) -> float:
    """Return the mean entropy over samples; the class probabilities are given by groups."""
    repeats = program.sizes[:, None].repeat(1, program.groups)
    repeats.diagonal().sub_(1)
    terms = -torch.special.xlogy(probabilities, probabilities) * repeats
    # p log p, exact to rounding for p next to 1
    near_one = correct * torch.log1p(correct - 1)
    own_term = torch.where(correct > 0.5, near_one, torch.special.xlogy(correct, correct))
    return float(program.share @ (terms.sum(0) - own_term))


def program_of_counts(
    counts: Tensor, weight: float, *, metric: Tensor | None = None, **options: Any
) -> tuple[Program, Tensor]:
    """Return the program for hard or smoothed labels, and (C,) the group of each class."""
    distinct, group, sizes = (-counts).unique(return_inverse=True, return_counts=True)
    mean = None
    if metric is not None:
        mean = torch.zeros_like(distinct).index_add(0, group, metric) / sizes
    return symmetric_program(-distinct, sizes.double(), weight, metric=mean, **options), group
