r"""The program behind every target of a softmax: logits of classes with a nuclear norm.

Classes of equal count are alike, so an optimum has logits $M_{gg} = a_g I + b_{gg} 11^\top$ and
$M_{gh} = b_{gh} 11^\top$ in blocks of groups g, h: G + G^2 numbers for G distinct counts.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Program:
    r"""Minimise over logits of groups of classes, `sizes` many with `counts` samples each,

    $$\sum_c \tfrac{n_c}{n}\ell_c(m_c+b) + t\,\|M D^{1/2}\|_* + \tfrac{\lambda_b}{2}\|b\|^2.$$
    """

    counts: Tensor
    """(G,) samples of each class of a group."""
    sizes: Tensor
    """(G,) classes of a group."""
    mass: Tensor
    """(G, G) what targets of the classes of a column give to the groups of the rows."""
    own: Tensor
    """(G,) what the targets of a class give to itself."""
    metric: Tensor
    """(G,) D, the weight of a class in the norm of the features: its count, or 1."""
    weight: float
    """t, the geometric mean of the two weight decays."""
    bias: float | None = None
    """Penalty of a bias, 0 for a free one; None for no bias."""
    focal_gamma: float = 0.0
    """The exponent of the focal loss; 0 is cross-entropy."""

    @property
    def groups(self) -> int:
        """G."""
        return len(self.counts)

    @property
    def samples(self) -> float:
        """n."""
        return float(self.counts @ self.sizes)

    @property
    def share(self) -> Tensor:
        """(G,) share of the samples in a group."""
        return self.counts * self.sizes / self.samples

    @property
    def scale(self) -> Tensor:
        """(G, G) from b to the part of M D^{1/2} that is constant on groups."""
        return torch.outer(self.sizes, self.metric * self.sizes).sqrt()

    @property
    def roots(self) -> Tensor:
        """(G,) D^{1/2}."""
        return self.metric.sqrt()

    @property
    def steepness(self) -> Tensor:
        """(G,) from probabilities of a class to slopes by M D^{1/2}: sqrt n_g / n if D is n."""
        return self.counts / self.samples / self.roots

    @property
    def same(self) -> Tensor:
        """(G,) what targets give to each other class of the own group."""
        rest = self.mass.diagonal() - self.own
        return torch.where(self.sizes > 1, rest / (self.sizes - 1).clamp(min=1), 0.0)

    @property
    def apart(self) -> Tensor:
        r"""(G,) whether the classes of a group differ: unless $n_g \le (nt)^2$ (for D = n) they do.

        While $a_g > 0$, $\tfrac{n_g}{n}(T_{own}-T_{same}-p_{own}+p_{same}) = t\sqrt{n_g}$.
        """
        spread = (self.own - self.same) * self.steepness
        if self.focal_gamma:  # the condition below holds for cross-entropy only
            return self.sizes > 1
        return (spread > self.weight) & (self.sizes > 1)


class LogitPoint(NamedTuple):
    """Logits of a program."""

    common: Tensor
    """(G, G) b, the logits of the rows' groups for classes of the columns' groups."""
    lift: Tensor
    """(G,) a, how much larger a class's own logit is than those of its group; 0 for single ones."""
    bias: Tensor
    """(G,)."""

    def rooted(self, program: Program) -> Tensor:
        """(G, G) M D^{1/2} on vectors that are constant on groups."""
        return self.common * program.scale + (self.lift * program.roots).diag()


class GradientBlocks(NamedTuple):
    """Probabilities minus targets, as they act on M D^{1/2}."""

    common: Tensor
    """(G, G) on what is constant on groups."""
    within: Tensor
    """(G,) on what sums to 0 in a group, with the opposite sign."""


class LossAndGradient(NamedTuple):
    """Loss of a point, and what its slopes are."""

    loss: float
    lift: Tensor
    """(G,) by the lift."""
    common: Tensor
    """(G, G) by the common logits."""


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
    """The program of hard or smoothed targets, of classes that only their counts tell apart."""
    total = float(sizes.sum())
    own = torch.full_like(counts, 1 - smoothing + smoothing / total)
    mass = (1 - smoothing) * torch.eye(len(counts)).to(counts)
    mass = mass + (smoothing / total) * sizes[:, None]
    return Program(
        counts, sizes, mass, own, counts if metric is None else metric, weight, bias, focal_gamma
    )


def evaluate(program: Program, point: LogitPoint) -> LossAndGradient:
    """Loss and slopes; right to rounding however small the loss is."""
    b, a = point.common + point.bias[:, None], point.lift
    own = a + b.diagonal()
    gaps = b - own
    top = gaps.amax(0).clamp(min=0)
    others = (gaps - top).exp_() * program.sizes[:, None]
    others.diagonal().mul_((program.sizes - 1) / program.sizes)
    rest = others.sum(0)
    loss = torch.where(top > 0, top + ((-top).exp() + rest).clamp(min=TINY).log(), rest.log1p())
    others /= (-top).exp() + rest
    wrong = others.sum(0)  # 1 - p of the own class
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
    extra = (own - torch.einsum("gh,gh->h", program.mass, b)) - program.own * a
    total = float(share @ (loss + extra))
    lift = share * (1 - program.own - wrong)
    others -= program.mass
    others.diagonal().add_(1 - wrong)
    others *= share
    return LossAndGradient(total, lift, others)


def residuals(program: Program, value: LossAndGradient) -> GradientBlocks:
    """How the slopes of the loss act on M D^{1/2}: the optimum has norm at most t."""
    common = value.common / program.scale
    own = value.lift / program.share  # p - T of the own class
    same = (value.common.diagonal() / program.share - own) / (program.sizes - 1).clamp(min=1)
    within = torch.where(program.sizes > 1, (same - own) * program.steepness, torch.zeros_like(own))
    return GradientBlocks(common, within)


def nuclear_norm(program: Program, point: LogitPoint) -> float:
    """|M D^{1/2}|_*."""
    values = torch.linalg.svdvals(point.rooted(program))
    return float(values.sum() + ((program.sizes - 1) * program.roots * point.lift.abs()).sum())


def bias_penalty(program: Program, point: LogitPoint) -> float:
    """What the bias costs."""
    return (program.bias or 0.0) / 2 * float(program.sizes @ point.bias.square())


def zero(program: Program) -> LogitPoint:
    """Logits 0, with the best bias if there is one."""
    nothing = torch.zeros_like(program.mass)
    point = LogitPoint(nothing, torch.zeros_like(program.own), torch.zeros_like(program.own))
    if program.bias is None or program.focal_gamma:
        return point
    wanted = (program.mass @ program.share) / program.sizes  # mean target of a class
    best = wanted.clamp(min=TINY).log()
    best = best - best @ program.sizes / program.sizes.sum()
    for _ in range(200 if program.bias else 0):  # Newton's steps, halved until they go down
        p = (best - best.max()).exp()
        p = p / (p @ program.sizes)
        slope = p - wanted + program.bias * best
        hessian = (p + program.bias).diag() - torch.outer(p, p * program.sizes)
        step = torch.linalg.solve(hessian, slope)
        if float(step.abs().max()) < 1e-15:
            break
        best = best - step / max(1.0, float(step.abs().max()))
    return point._replace(bias=best)


def critical_weight(program: Program) -> float:
    """The weight t from which on all logits but the bias are zero."""
    rest = residuals(program, evaluate(program, zero(program)))
    largest = float(torch.linalg.matrix_norm(rest.common, 2))
    return max(largest, float(rest.within.max()))


def with_weight(program: Program, weight: float) -> Program:
    """The same with another t."""
    return replace(program, weight=weight)


def class_logits(point: LogitPoint, place: Tensor) -> Tensor:
    """(C, C) the logits without bias of every class for every class, by the groups they are in."""
    logits = point.common[place][:, place]
    logits.diagonal().add_(point.lift[place])
    return logits


def mean_entropy(probabilities: Tensor, own: Tensor, program: Program) -> float:
    """Of columns of probabilities, those of single classes in each group; averaged over samples."""
    many = program.sizes[:, None].repeat(1, program.groups)
    many.diagonal().sub_(1)
    each = -torch.special.xlogy(probabilities, probabilities) * many
    return float(program.share @ (each.sum(0) - _own_term(own)))


def _own_term(own: Tensor) -> Tensor:
    """p log p, right to rounding where p is next to 1."""
    return torch.where(own > 0.5, own * torch.log1p(own - 1), torch.special.xlogy(own, own))


def is_zero(point: LogitPoint) -> bool:
    """Whether all logits are zero but for rounding."""
    return max(float(point.common.abs().max()), float(point.lift.abs().max())) < 1e-12


def program_of_counts(
    counts: Tensor, weight: float, *, metric: Tensor | None = None, **options: Any
) -> tuple[Program, Tensor]:
    """The program of symmetric targets, and (C,) the group of each class.

    >>> program, place = program_of_counts(torch.tensor([5.0, 9.0, 5.0]), 0.1)
    >>> program.sizes.tolist(), place.tolist()
    ([1.0, 2.0], [1, 0, 1])
    """
    distinct, place, sizes = (-counts).unique(return_inverse=True, return_counts=True)
    mean = None
    if metric is not None:
        mean = torch.zeros_like(distinct).index_add(0, place, metric) / sizes
    return symmetric_program(-distinct, sizes.double(), weight, metric=mean, **options), place
