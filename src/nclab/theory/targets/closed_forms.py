"""Closed-form optima under cross-entropy: balanced classes and ReLU features."""

import math

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from nclab.theory.targets.setting import CLOSED, Setting, Solution

GRID = 400
NEAR = 1e-4
"""Half-width of the interval around the scanned minimum in which the root of the slope lies."""


def simplex_gap(num_classes: int, decay: float, smoothing: float = 0.0) -> float:
    r"""Return how much larger the correct logit is than the others at the balanced optimum.

    $$\gamma = \log\frac{1-(C-1)p_0}{p_0},\qquad p_0 = \delta/C + \lambda/\sqrt C$$

    With $\lambda = t\sqrt n$; alpha beta is $\gamma (C-1)/C$; label smoothing acts as a larger
    weight decay, $\lambda + \delta/\sqrt C$. Derived in docs/targets.md.

    >>> round(simplex_gap(4, 0.01, 0.1) * 3 / 4, 9)  # alpha beta
    2.559185413
    """
    p = smoothing / num_classes + decay / math.sqrt(num_classes)
    right = 1 - (num_classes - 1) * p
    return math.log(right / p) if right > p else 0.0


def focal_gap(num_classes: int, cost: float, focal_gamma: float) -> float:
    r"""Return the gap that minimises focal loss plus `cost` times the gap.

    $$\min_\gamma\; (1-p)^{\gamma_f}\,(-\log p) + c\gamma,\qquad p = 1/(1+(C-1)e^{-\gamma})$$

    The objective is not convex: a scan finds the region, a root finder refines the gap.

    >>> round(focal_gap(4, 0.01 * 3 / 4 * 2, 2.0) * 3 / 4, 9)  # alpha beta
    1.988561044
    """
    others = num_classes - 1

    def objective(gap: float) -> float:
        return focal(gap, num_classes, focal_gamma) + cost * gap

    largest = math.log(others) + math.log(max(1 / cost, 2.0)) + 5
    grid = [largest * k / GRID for k in range(GRID + 1)]
    best = min(grid, key=objective)
    low, high = max(0.0, best - largest / GRID), best + largest / GRID
    minimum = minimize_scalar(objective, bounds=(low, high), options={"xatol": 1e-12})
    low, high = (max(0.0, minimum.x - NEAR), minimum.x + NEAR)
    slopes = (_slope(low, others, focal_gamma) + cost, _slope(high, others, focal_gamma) + cost)
    gap = float(minimum.x)
    if slopes[0] < 0 < slopes[1]:  # the minimiser is exact to 1e-8, the root of the slope to 1e-14
        gap = float(brentq(lambda x: _slope(x, others, focal_gamma) + cost, low, high, xtol=1e-14))
    return gap if objective(gap) < objective(0.0) else 0.0


def focal(gap: float, num_classes: int, focal_gamma: float) -> float:
    """Return the focal loss of a class whose correct logit is larger by `gap`.

    >>> round(focal(0.0, 2, 0.0), 6)
    0.693147
    """
    loss = math.log1p((num_classes - 1) * math.exp(-gap))
    return (-math.expm1(-loss)) ** focal_gamma * loss


def _slope(gap: float, others: int, focal_gamma: float) -> float:
    """Return the derivative of the focal loss by the gap."""
    loss = math.log1p(others * math.exp(-gap))
    wrong, p = -math.expm1(-loss), math.exp(-loss)
    return -(wrong**focal_gamma) * (wrong + focal_gamma * p * loss)


def solve_balanced(setting: Setting, weight: float | None) -> Solution:
    """Return the simplex ETF of balanced classes, for a weight t or for the setting's norms."""
    C = setting.num_classes
    root = math.sqrt(float(setting.metric[0]))
    fixed_norms = weight is None  # given norms have no penalty
    if weight is None:
        gap = setting.norm / (root * (C - 1))
        if setting.smoothing:
            gap = min(gap, simplex_gap(C, 0.0, setting.smoothing))
        if setting.focal_gamma:
            slope = -_slope(gap, C - 1, setting.focal_gamma)
        else:
            slope = -math.expm1(-math.log1p((C - 1) * math.exp(-gap)))
            slope -= setting.smoothing * (C - 1) / C
        weight = slope / (root * (C - 1))
    else:
        gap = -1.0
    cost = weight * root * (C - 1)  # t |M D^{1/2}|_* of a gap of 1
    if setting.focal_gamma:
        gap = focal_gap(C, cost, setting.focal_gamma) if gap < 0 else gap
        loss = focal(gap, C, setting.focal_gamma)
        proof, lower = "best of the simplex ETFs: no proof that no other geometry is lower", None
    else:
        delta = setting.smoothing
        gap = simplex_gap(C, cost * math.sqrt(C) / (C - 1), delta) if gap < 0 else gap
        loss = math.log1p((C - 1) * math.exp(-gap)) + delta * (C - 1) / C * gap
        proof, lower = CLOSED, loss if fixed_norms else loss + cost * gap
    centring = torch.eye(C, dtype=torch.float64) - 1 / C
    left, right = (gap * root * centring, gap / root * centring)
    return Solution(
        logits=gap * centring,
        bias=torch.zeros(C, dtype=torch.float64),
        loss=loss,
        penalty=cost * gap,
        left=left,
        right=right,
        lower=lower,
        proof=proof,
        geometry="simplex ETF",
        source="docs/targets.md, balanced classes",
        norm=gap * root * (C - 1),
        weight=weight,
    )


def relu_gaps(counts: Tensor, metric: Tensor, weight: float) -> Tensor:
    r"""Return (C,) how much larger the correct logit of each class is at the optimum with H >= 0.

    $$p_c = \frac{n t\sqrt{d_c}}{n_c\sqrt{C(C-1)}},\qquad
    \gamma_c = \log\frac{1-(C-1)p_c}{p_c} \text{ or } 0$$

    For D = n, $p_c = nt/\sqrt{n_cC(C-1)}$, and a class is lost iff
    $n_c \le (nt)^2 C/(C-1)$. Derived in docs/targets.md.

    >>> gaps = relu_gaps(torch.tensor([20.0, 5.0]).repeat(2), torch.tensor([20.0, 5.0]).repeat(2),
    ...                  0.002)
    >>> [round(float(gap), 3) for gap in gaps[:2]]
    [5.023, 4.31]
    """
    C = len(counts)
    p = weight * counts.sum() * metric.sqrt() / (counts * (C * (C - 1)) ** 0.5)
    right = 1 - (C - 1) * p
    return torch.where(right > p, (right.clamp(min=1e-300) / p).log(), 0.0)


def solve_relu(setting: Setting, weight: float) -> Solution:
    """Return the optimum with H >= 0: W = P diag(omega), and orthogonal means."""
    counts, metric, C = setting.counts, setting.metric, setting.num_classes
    gaps = relu_gaps(counts, metric, weight)
    losses = ((C - 1) * (-gaps).exp()).log1p()
    loss = float(counts @ losses / counts.sum())
    costs = gaps * (metric * (C - 1) / C).sqrt()
    norm = float(costs.sum())
    centring = torch.eye(C, dtype=torch.float64) - 1 / C
    rows = gaps * (metric * C / (C - 1)).sqrt()  # omega^2
    return Solution(
        logits=centring * gaps,
        bias=torch.zeros_like(gaps),
        loss=loss,
        penalty=weight * norm,
        left=(centring * rows) @ centring,
        right=(gaps * ((C - 1) / (C * metric)).sqrt()).diag(),
        lower=loss + weight * norm,
        proof=CLOSED,
        geometry="orthogonal means, centred classifier",
        source="docs/targets.md, features that are not negative; cf. Dang et al. 2024",
        norm=norm,
        weight=weight,
    )
