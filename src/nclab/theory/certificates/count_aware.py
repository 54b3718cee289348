"""Guarantees from the mean loss over samples, for any class counts and soft or hard targets."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import xlogy
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import TOLERANCE, Bound, as_number
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.targets.given_norms import find_weight
from nclab.theory.targets.program import (
    Program,
    critical_weight,
    evaluate,
    mean_entropy,
    nuclear_norm,
    zero_point,
)
from nclab.theory.targets.program_solver import MANY, Optimum, average_counts, lower_bound, solve

ROUNDING = 1e-15
"""Rounding error allowed for a mean entropy."""
GRID = 160
"""Number of factors k that `bounds_from_probabilities` tries, twenty per decade."""
PROBABILITIES = "the network's own probabilities"
SOURCE = "docs/certificates.md, any counts and targets"


@dataclass(frozen=True)
class CountAwareBounds:
    """Bounds from the mean loss over samples and the norms of features and classifier."""

    loss: float
    optimal_loss: float
    """Smallest mean loss that any network with these norms and counts can have."""
    excess_loss: float
    alignment_lower: Bound
    """Lower bound rho on the cosine of W and G H^T. It holds for at least one (C, n) matrix G of
    norm 1 whose columns are equal for all samples of a class; which G is not known."""
    within_upper: Bound
    """Upper bound 1 - rho^2 on the share of the features' squared norm that is within classes."""
    proof: str = "the optimum of these counts and targets"
    """Text that says which class probabilities the bounds were computed from."""
    soft: bool = False
    """Whether the loss is that of soft labels."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        bounds = {
            name: getattr(self, name).to_dict() for name in ("alignment_lower", "within_upper")
        }
        return {**plain, "proof": self.proof, **bounds}


def residual_bound(
    moment: ArrayLike | Tensor, mean_entropy: float, samples: int, product: float
) -> float:
    r"""Return a lower bound on the mean loss if |W|_F |H|_F is at most `product`.

    $$L \ge \operatorname{mean} H(q) - \tfrac1n\sqrt{\lambda_{\max}(S)}\,\|W\|_F\|H\|_F,\qquad
    S = \textstyle\sum_i (q_i-T_i)(q_i-T_i)^\top$$

    Sample i has the target $T_i$ and any class probabilities $q_i$, such as those of the network;
    H(q) is the entropy. The bound holds without a bias, for any counts, and for hard, soft or noisy
    targets. One pass over the data gives the C x C matrix S and the mean entropy.

    Args:
        moment: the matrix S.
        mean_entropy: mean of $H(q_i)$ over samples.
        samples: number of samples n.
        product: the bound on |W|_F |H|_F.
    """
    S = torch.as_tensor(moment, dtype=torch.float64)
    if S.ndim != 2 or S.shape[0] != S.shape[1] or samples < 1:
        raise DataError(
            f"Expected a square moment matrix and at least 1 sample, got shape {tuple(S.shape)} "
            f"and {samples} samples."
        )
    largest = math.sqrt(max(float(torch.linalg.eigvalsh(S)[-1]), 0.0))
    return mean_entropy - largest / samples * product


def bounds_from_probabilities(
    counts: Any, residuals: Any, product: float, loss: float, *, bias_norm: float = 0.0
) -> CountAwareBounds:
    r"""Return the bounds for hard labels from the network's mean probabilities in each class.

    No optimisation problem is solved, so this is faster than `count_aware_bounds`.

    $$L \ge \operatorname{mean}H(q^k) - k\Bigl(\tfrac1n\|(\bar Q - I)D^{1/2}\|_2\|W\|_F\|H\|_F
    + \|\bar r\|\,\|b\|\Bigr)$$

    Here $\bar q_c$, column c of $\bar Q$, are the mean probabilities of class c, $e_c$ is the
    one-hot label, $q^k_c = e_c + k(\bar q_c - e_c)$, D holds the counts on its diagonal, $\bar r$
    is the mean of $\bar q_c - e_c$ over samples, and H(q) is the entropy. The bound holds for
    every k that makes no entry of $q^k_c$ negative; nclab takes the best k of a grid. The bound is
    never worse than `residual_bound`, because averaging raises entropies and lowers norms. It is
    tight at the optimum; far from the optimum, `count_aware_bounds` is better.

    Args:
        counts: (C,) samples of each class.
        residuals: (C, C) sums of q - e_c over the samples of class c, in row c.
        product: alpha beta, with alpha the root mean square norm of all features.
        loss: mean loss over samples.
        bias_norm: norm of the centred bias; the bound covers all biases up to this norm.

    The cost is the eigenvalues of one C x C matrix.
    """
    sizes = torch.as_tensor(counts, dtype=torch.float64).detach().cpu()
    sums = torch.as_tensor(residuals, dtype=torch.float64).detach().cpu()
    residual = sums.T / sizes  # (C, C) columns
    n, C, share = float(sizes.sum()), len(sizes), sizes / sizes.sum()
    wrong_classes = residual.clone()
    wrong_classes.diagonal().zero_()
    wrong_classes = wrong_classes.clamp(min=0)
    wrong = wrong_classes.sum(0)
    residual = wrong_classes - wrong.diag()
    scaled = residual * sizes.sqrt() / n
    slope = math.sqrt(max(float(torch.linalg.eigvalsh(scaled @ scaled.T)[-1]), 0.0)) * (1 + 1e-12)
    norm = math.sqrt(C * n) * product
    cost = slope * norm + float((residual @ share).norm()) * bias_norm
    logs = torch.special.xlogy(wrong_classes, wrong_classes).sum(0)

    def entropy(k: float) -> float:
        correct = -(1 - k * wrong) * torch.log1p(-(k * wrong).clamp(max=1 - 1e-16))
        return float(share @ (correct - k * (logs + math.log(k) * wrong)))

    largest = min(1 / max(float(wrong.max()), 1e-300), 1e300)
    grid = [1.0, *(largest * 10 ** (-8 * step / GRID) for step in range(GRID + 1))]
    entropies = [entropy(k) for k in grid]
    slack = ROUNDING * (1 + math.log(C))
    lowest = max(h - k * cost for h, k in zip(entropies, grid, strict=True))
    lowest = max(0.0, lowest - slack)
    allowed = _widened(loss, lowest, product) + slack
    reached = max((h - allowed) / k for h, k in zip(entropies, grid, strict=True))
    reached -= float((residual @ share).norm()) * bias_norm
    ratio = reached / (slope * norm) if slope * norm > 0 else 0.0
    reason = f"vacuous: {PROBABILITIES} prove nothing at its loss"
    return replace(_bounds(loss, lowest, ratio, reason), proof=PROBABILITIES)


def count_aware_bounds(
    counts: Any, product: float, loss: float, *, bias: bool = False, targets: Any = None
) -> CountAwareBounds:
    r"""Return the bounds that a mean loss over samples guarantees, for any class counts.

    $$\cos(W, GH^\top)\ge\rho,\qquad
    \frac{\sum_i\|h_i-\mu_{c(i)}\|^2}{\sum_i\|h_i\|^2} \le 1-\rho^2$$

    Let $N(L)$ be the smallest $\|W\|_F\|H\|_F$ with which any network reaches the loss L. Then
    $\rho = N(L)/(\|W\|_F\|H\|_F)$. The first bound holds for at least one (C, n) matrix G of norm 1
    whose columns are equal for all samples of a class. $h_i$ is a feature and $\mu_{c(i)}$ the mean
    of its class. Proof in docs/certificates.md. The cost is that of about a dozen calls of
    `nclab.target`.

    Args:
        counts: (C,) samples of each class.
        product: alpha beta, with alpha the root mean square norm of all features.
        bias: whether the classifier has a bias, of any norm.
        targets: (C, C) columns of soft targets; hard targets by default.
    """
    from nclab.theory.targets.search import program_of_setting
    from nclab.theory.targets.setting import check_setting

    for name, value in (("alpha * beta", product), ("loss", loss)):
        if as_number(name, value) <= 0:
            raise DataError(f"Expected a positive {name}, got {value}.")
    setting = check_setting(
        None, counts, norms=(1.0, product), bias=0.0 if bias else None, targets=targets
    )
    program, _ = program_of_setting(setting, 0.0)
    norm = setting.norm
    lowest = _least(program, norm)
    if loss < lowest * (1 - TOLERANCE * (1 + product)):
        raise DataError(
            f"Loss {loss:.6g} contradicts the norms: alpha * beta = {product:.6g} and these counts "
            f"allow no mean loss below {lowest:.6g}. Are alpha and loss means over all samples?"
        )
    needed = _needed(program, _widened(loss, lowest, product))
    zero_loss = evaluate(program, zero_point(program)).loss
    why = "features that are zero reach this loss"
    why = why if loss >= zero_loss else "the norm that this loss needs is too large to compute"
    bounds = _bounds(loss, lowest, needed / norm, f"vacuous: {why}")
    return replace(bounds, optimal_loss=lowest, soft=targets is not None)


def _bounds(loss: float, lowest: float, ratio: float, reason: str) -> CountAwareBounds:
    # A ratio above 1 means that the loss is below the optimum, by an error that goes both ways.
    rho = max(min(ratio, 2 - ratio), 0.0)
    reason = "" if rho > 0 else reason
    return CountAwareBounds(
        loss=float(loss),
        optimal_loss=max(min(lowest, float(loss)), 0.0),
        excess_loss=max(float(loss) - lowest, 0.0),
        alignment_lower=Bound(rho, reason, SOURCE),
        within_upper=Bound(1 - rho**2, reason, SOURCE),
    )


def least_soft_losses(hard: FloatArray, targets: FloatArray) -> FloatArray:
    r"""Return (C,) the smallest mean soft-label loss of each class for a given hard-label loss x.

    $$F_c(x) = \tau x - (1-\tau)\log(1-e^{-x})
    - \sum_{j\ne c}T_{jc}\log\tfrac{T_{jc}}{1-\tau},\qquad \tau = T_{cc}$$

    T_c, column c of `targets`, is the soft label of class c.

    Range: at least the entropy of the targets, reached at x = -log tau.

    Proof in docs/certificates.md, soft labels.
    """
    own = targets.diagonal()
    others = targets - np.diag(own)
    rest = others.sum(0)  # 1 - tau, exact where the others are tiny
    entropy = xlogy(rest, rest) - xlogy(others, others).sum(0)
    return np.asarray(own * hard - xlogy(rest, -np.expm1(-hard)) + entropy)


def hard_loss_upper(counts: FloatArray, targets: FloatArray, loss: float) -> float:
    r"""Return the largest hard-label loss, averaged over classes, that a mean soft loss L allows.

    $$\max_x \tfrac1C\sum_c x_c \quad\text{s.t.}\quad \sum_c\tfrac{n_c}n F_c(x_c)\le L$$

    Class c has $n_c$ of n samples, the hard-label loss $x_c$ and the target probability $\tau_c$
    of its label; F is explained at `least_soft_losses`. The problem is concave; with the multiplier
    $\mu$ its maximiser is $e^{x_c}-1 = (1-\tau_c)/(\tau_c-\tfrac{n}{\mu Cn_c})$; proof in
    docs/certificates.md, soft labels.

    Range: [0, inf]; inf if the soft label of a class gives that class probability 0.
    """
    own, shares = targets.diagonal(), counts / counts.sum()
    rest = (targets - np.diag(own)).sum(0)
    if own.min() <= 0:
        return math.inf
    weights = len(own) * shares
    smallest = float((1 / (weights * own)).max())
    above = own - 1 / (weights * smallest)
    above = np.where(above < 1e-14 * own, 0.0, above)
    entropy = float(shares @ least_soft_losses(-np.log(own), targets))
    loss = max(loss, entropy)
    loss += 8 * float(np.finfo(float).eps) * (1 + math.log(len(own)) + loss)

    def losses(log_share: float) -> tuple[float, float, float]:
        """Return a multiplier mu, and the mean soft-label and hard-label loss of its maximiser."""
        share = math.exp(log_share)
        # tau - n/(mu C n_c) with mu = smallest (1 + share), without cancellation at small shares.
        x = np.log1p(rest / (above + share / (1 + share) / (weights * smallest)))
        mean = float(shares @ least_soft_losses(x, targets))
        return smallest * (1 + share), mean, float(x.mean())

    low, high = -80.0, 80.0  # the mean soft loss falls as the multiplier grows
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if losses(middle)[1] >= loss else (low, middle)
    multiplier, reached, average = losses(low)
    return average + multiplier * max(loss - reached, 0.0)


def _widened(loss: float, lowest: float, product: float) -> float:
    """Return the loss plus its possible rounding error.

    If the loss is below the optimum, the difference counts as rounding error.
    """
    padding = 4 * float(np.finfo(float).eps) * (1 + product) * lowest
    return max(loss, lowest) + max(lowest - loss, 0.0) + padding


def _least(program: Program, norm: float) -> float:
    """Return a lower bound on the loss if |W|_F |H|_F is at most `norm`, by duality."""
    solved = _at(program, lambda weighted, optimum: nuclear_norm(weighted, optimum.point), norm)
    if solved is None and bool((program.own_target == 1).all()):
        return 0.0  # hard targets: the loss is below the smallest computable one
    if solved is None:  # the entropy of the targets is reached at smaller norms
        sizes = program.sizes[:, None]
        return mean_entropy(program.mass / sizes, program.own_target, program) - ROUNDING
    solved_program, optimum = solved
    return max(0.0, _proved(solved_program, optimum) - solved_program.weight * norm)


def _needed(program: Program, loss: float) -> float:
    """Return a lower bound on the |W|_F |H|_F that is needed to reach the loss, by duality."""
    zero_loss = evaluate(program, zero_point(program)).loss
    if loss >= zero_loss:
        return 0.0
    solved = _at(program, lambda _, optimum: zero_loss / optimum.loss - 1, zero_loss / loss - 1)
    if solved is None:
        return 0.0
    solved_program, optimum = solved
    return (_proved(solved_program, optimum) - loss) / solved_program.weight


def _proved(program: Program, optimum: Optimum) -> float:
    bound = max(optimum.lower, lower_bound(program, optimum.point))
    return bound * (1 - 1e-14) - ROUNDING * (1 + math.log(float(program.sizes.sum())))


def _at(program: Program, measure: Any, value: float) -> tuple[Program, Optimum] | None:
    """Return the program with the penalty weight for which `measure` is `value`, and its optimum.

    The result is None if no positive weight is small enough. `measure`, a function of program and
    optimum, must fall as the weight grows. If there are many different counts, nclab finds the
    weight with averaged counts; the bounds are valid for any weight.
    """
    averaged = program.groups > MANY and bool((program.own_target == 1).all())
    rough = average_counts(program) if averaged else None
    solved: list[tuple[Program, Optimum]] = []

    def measure_at(weight: float) -> float:
        weighted = replace(program if rough is None else rough, weight=weight)
        start = solved[-1][1].point if solved else None
        solved.append((weighted, solve(weighted, start, gap=1e-9)))
        return float(measure(*solved[-1]))

    weight, _ = find_weight(measure_at, value, critical_weight(rough or program), close=1e-6)
    if not weight:
        return None
    if rough is None:
        return solved[-1]
    weighted = replace(program, weight=weight)
    return weighted, solve(weighted)
