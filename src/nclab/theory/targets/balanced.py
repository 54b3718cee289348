"""Balanced classes under cross-entropy, label smoothing and focal loss: a simplex ETF."""

import math

import torch
from scipy.optimize import brentq, minimize_scalar

from nclab.theory.targets.setting import Setting
from nclab.theory.targets.solved import CLOSED, Solved

GRID = 400
NEAR = 1e-4
"""A search ends this near to the minimum at least."""


def simplex_gap(num_classes: int, decay: float, smoothing: float = 0.0) -> float:
    r"""How much larger a class's own logit is at the optimum of balanced classes.

    $$\gamma = \log\frac{1-(C-1)p_0}{p_0},\qquad p_0 = \delta/C + \lambda/\sqrt C$$

    With $\lambda = t\sqrt n$; alpha beta is $\gamma (C-1)/C$; label smoothing acts as a larger
    weight decay, $\lambda + \delta/\sqrt C$. Derived in docs/targets.md.

    >>> round(simplex_gap(4, 0.01, 0.1) * 3 / 4, 9)  # alpha beta
    2.559185413
    """
    p = smoothing / num_classes + decay / math.sqrt(num_classes)
    right = 1 - (num_classes - 1) * p
    return math.log(right / p) if right > p else 0.0


def focal_gap(num_classes: int, cost: float, focus: float) -> float:
    r"""The gap that minimises focal loss plus `cost` times the gap.

    $$\min_\gamma\; (1-p)^{\gamma_f}\,(-\log p) + c\gamma,\qquad p = 1/(1+(C-1)e^{-\gamma})$$

    It is not convex: a scan, then refined.

    >>> round(focal_gap(4, 0.01 * 3 / 4 * 2, 2.0) * 3 / 4, 9)  # alpha beta
    1.988561044
    """
    others = num_classes - 1

    def objective(gap: float) -> float:
        return focal(gap, num_classes, focus) + cost * gap

    most = math.log(others) + math.log(max(1 / cost, 2.0)) + 5
    grid = [most * k / GRID for k in range(GRID + 1)]
    best = min(grid, key=objective)
    low, high = max(0.0, best - most / GRID), best + most / GRID
    found = minimize_scalar(objective, bounds=(low, high), options={"xatol": 1e-12})
    low, high = (max(0.0, found.x - NEAR), found.x + NEAR)
    ends = (_slope(low, others, focus) + cost, _slope(high, others, focus) + cost)
    gap = float(found.x)
    if ends[0] < 0 < ends[1]:  # the search knows the gap to 1e-8 only, the root of its slope is it
        gap = float(brentq(lambda x: _slope(x, others, focus) + cost, low, high, xtol=1e-14))
    return gap if objective(gap) < objective(0.0) else 0.0


def focal(gap: float, num_classes: int, focus: float) -> float:
    """Focal loss of a class whose own logit is larger by `gap`.

    >>> round(focal(0.0, 2, 0.0), 6)
    0.693147
    """
    loss = math.log1p((num_classes - 1) * math.exp(-gap))
    return (-math.expm1(-loss)) ** focus * loss


def _slope(gap: float, others: int, focus: float) -> float:
    loss = math.log1p(others * math.exp(-gap))
    wrong, p = -math.expm1(-loss), math.exp(-loss)
    return -(wrong**focus) * (wrong + focus * p * loss)


def solve_balanced(setting: Setting, weight: float | None) -> Solved:
    """The simplex ETF of classes with equal counts, for a weight t or the norms of the setting."""
    C = setting.num_classes
    root = math.sqrt(float(setting.metric[0]))
    given = weight is None  # norms, which have no penalty
    if weight is None:
        gap = setting.norm / (root * (C - 1))
        if setting.smoothing:
            gap = min(gap, simplex_gap(C, 0.0, setting.smoothing))
        if setting.focus:
            slope = -_slope(gap, C - 1, setting.focus)
        else:
            slope = -math.expm1(-math.log1p((C - 1) * math.exp(-gap)))
            slope -= setting.smoothing * (C - 1) / C
        weight = slope / (root * (C - 1))
    else:
        gap = -1.0
    cost = weight * root * (C - 1)  # t |M D^{1/2}|_* of a gap of 1
    if setting.focus:
        gap = focal_gap(C, cost, setting.focus) if gap < 0 else gap
        loss = focal(gap, C, setting.focus)
        proof, lower = "best of the simplex ETFs: no proof that no other geometry is lower", None
    else:
        delta = setting.smoothing
        gap = simplex_gap(C, cost * math.sqrt(C) / (C - 1), delta) if gap < 0 else gap
        loss = math.log1p((C - 1) * math.exp(-gap)) + delta * (C - 1) / C * gap
        proof, lower = CLOSED, loss if given else loss + cost * gap
    centring = torch.eye(C, dtype=torch.float64) - 1 / C
    left, right = (gap * root * centring, gap / root * centring)
    return Solved(
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
