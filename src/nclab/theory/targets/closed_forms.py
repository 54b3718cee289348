"""Closed-form optima: balanced classes, ReLU features, and mean squared error."""

import math

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from nclab.theory.targets.setting import CLOSED, Setting, Solution, factor_grams

GRID = 400
NEAR = 1e-4
"""Half-width of an interval around a minimum that was found on a grid; in this interval nclab
searches for the root of the derivative."""
STEPS = 20_000
SOURCE = "docs/targets.md, mean squared error"


def simplex_gap(num_classes: int, decay: float, smoothing: float = 0.0) -> float:
    r"""Return the correct logit minus any other logit at the optimum of balanced classes.

    $$\gamma = \log\frac{1-(C-1)p_0}{p_0},\qquad p_0 = \delta/C + \lambda/\sqrt C$$

    $\delta$ is the label smoothing, $\lambda$ the weight decay on weights and mean squared feature,
    and $p_0$ the probability of each wrong class. The product $\alpha\beta$ is $\gamma (C-1)/C$.
    Label smoothing acts as a larger weight decay, $\lambda + \delta/\sqrt C$. Derived in
    docs/targets.md.
    """
    p = smoothing / num_classes + decay / math.sqrt(num_classes)
    right = 1 - (num_classes - 1) * p
    return math.log(right / p) if right > p else 0.0


def focal_gap(num_classes: int, cost: float, focal_gamma: float) -> float:
    r"""Return the logit gap that minimises focal loss plus `cost` times the gap.

    $$\min_\gamma\; (1-p)^{\gamma_f}\,(-\log p) + c\gamma,\qquad p = 1/(1+(C-1)e^{-\gamma})$$

    $\gamma$ is the correct logit minus any other logit, p the probability of the correct class,
    $\gamma_f$ the exponent of the focal loss and c the cost. The objective is not convex: a scan
    over a grid finds the region of the minimum, and a root finder refines it.
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
    """Return the focal loss of a class whose correct logit is larger than the others by `gap`."""
    loss = math.log1p((num_classes - 1) * math.exp(-gap))
    return (-math.expm1(-loss)) ** focal_gamma * loss


def _slope(gap: float, others: int, focal_gamma: float) -> float:
    """Return the derivative of the focal loss with respect to the logit gap."""
    loss = math.log1p(others * math.exp(-gap))
    wrong, p = -math.expm1(-loss), math.exp(-loss)
    return -(wrong**focal_gamma) * (wrong + focal_gamma * p * loss)


def solve_balanced(setting: Setting, weight: float | None) -> Solution:
    """Return the simplex ETF that is the optimum of balanced classes.

    Its size follows from the penalty weight t, or from the norms of the setting if t is None.
    """
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
    r"""Return (C,) the correct logit minus any other one, for each class at the optimum for H >= 0.

    $$p_c = \frac{n t\sqrt{d_c}}{n_c\sqrt{C(C-1)}},\qquad
    \gamma_c = \max\Bigl(0, \log\frac{1-(C-1)p_c}{p_c}\Bigr)$$

    Class c has $n_c$ of n samples, the probability $p_c$ of each wrong class, and the weight $d_c$
    in the norm of the features (`metric`); t is the geometric mean of the weight decays. If
    $d_c = n_c$, the mean of class c is zero if and only if $n_c \le (nt)^2 C/(C-1)$. Derived in
    docs/targets.md.
    """
    C = len(counts)
    p = weight * counts.sum() * metric.sqrt() / (counts * (C * (C - 1)) ** 0.5)
    right = 1 - (C - 1) * p
    return torch.where(right > p, (right.clamp(min=1e-300) / p).log(), 0.0)


def solve_relu(setting: Setting, weight: float) -> Solution:
    """Return the optimum for features H >= 0: the class means are orthogonal.

    The classifier is W = P diag(omega), with P = I - 11^T/C and a positive number omega per class.
    """
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


def shrunk(values: Tensor, samples: float, decay: float, factors: int) -> Tensor:
    r"""Return the singular value that replaces each value s at the optimum of the squared error.

    $$\arg\min_\sigma \tfrac{(s-\sigma)^2}{2n} + \tfrac F2\lambda\sigma^{2/F}$$

    n is the number of samples, F the number of matrices whose product has these singular values,
    and $\lambda$ the weight decay of each matrix. For F = 2 the result is $(s - n\lambda)_+$. For
    larger F it jumps from $s(F-2)/(F-1)$ to 0 when the weight decay reaches
    $s^{2-2/F}/(n(F-1))\cdot((F-2)/(F-1))^{1-2/F}$. Derived in docs/targets.md.

    >>> shrunk(torch.tensor([3.0, 1.0]), 2.0, 1.0, 2).tolist()
    [1.0, 0.0]
    """
    if factors == 2:
        return (values - samples * decay).clamp(min=0)
    top = values.clamp(min=1e-300)
    power = 1 - 2 / factors
    low, high = top * (factors - 2) / (2 * factors - 2), top.clone()
    for _ in range(200):  # the larger root of s - x = n decay x^(2/F - 1)
        middle = (low + high) / 2
        above = top - middle < samples * decay * middle**-power
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    x = (low + high) / 2
    objective = (top - x).square() / (2 * samples) + factors / 2 * decay * x ** (2 / factors)
    return torch.where(objective < top.square() / (2 * samples), x, 0.0)


def solve_squared(setting: Setting, weight: float) -> Solution:
    """Return the optimum of the squared error: no bias, bias without penalty or penalised bias."""
    counts, n, C = setting.counts, setting.samples, setting.num_classes
    roots, share = counts.sqrt(), counts / setting.samples
    labels = roots.diag()
    lower, proof, geometry = None, CLOSED, "orthogonal frame"
    bias = torch.zeros_like(counts)
    if setting.bias is None or setting.bias == 0:
        rank = min(setting.dim or C, C)
        if setting.bias == 0:
            labels = labels - torch.outer(share, roots)
            bias, geometry, rank = share, "centred labels", min(rank, C - 1)
        left, values, right = torch.linalg.svd(labels)
        values = shrunk(values, n, weight, setting.factors)
        values = torch.where(torch.arange(C) < rank, values, 0.0)  # rounding would be penalised
        fit = (left * values) @ right
        residual, cost = fit - labels, 0.0
    else:
        fit, lower = _with_bias(setting, weight)
        values = torch.linalg.svdvals(fit)
        if not setting.balanced:
            proof = "duality gap"
        bias = (labels - fit) @ roots / n / (1 + setting.bias)
        residual = fit + torch.outer(bias, roots) - labels
        cost = setting.bias / 2 * float(bias.square().sum())
        geometry = "between simplex ETF and orthogonal frame"
    value = _value(residual, values, cost, n, weight, setting.factors)
    logits = fit / roots
    outer, inner, values = factor_grams(logits, counts, setting.factors)
    residual = fit + torch.outer(bias, roots) - (roots.diag())
    loss = float(residual.square().sum()) / (2 * n)
    if setting.balanced and setting.bias == 0:
        geometry = "simplex ETF"
    return Solution(
        logits=logits,
        bias=bias,
        loss=loss,
        penalty=value - loss,
        left=outer,
        right=inner,
        lower=value if lower is None else min(lower, value),
        proof=proof,
        geometry=geometry,
        source=SOURCE,
        norm=float(values.sum()),
        weight=weight,
    )


def _value(
    residual: Tensor, values: Tensor, cost: float, samples: float, weight: float, factors: int
) -> float:
    penalty = factors / 2 * weight * float((values ** (2 / factors)).sum())
    return float(residual.square().sum()) / (2 * samples) + penalty + cost


def without_best_bias(residual: Tensor, roots: Tensor, penalty: float) -> Tensor:
    """Return n times the gradient of the squared error when the bias is the best for the logits.

    `residual` is (logits - labels) times D^{1/2}, with D the counts, and `roots` is D^{1/2} 1.
    """
    direction = roots / roots.norm()
    return residual - torch.outer(residual @ direction, direction) / (1 + penalty)


def _with_bias(setting: Setting, weight: float) -> tuple[Tensor, float]:
    """Return the logits times D^{1/2} at the optimum with a penalised bias, and a lower bound.

    D holds the class counts. Balanced classes have a closed form. Otherwise nclab uses accelerated
    proximal gradient descent with restarts.
    """
    counts, n, C = setting.counts, setting.samples, setting.num_classes
    assert setting.bias is not None
    penalty = setting.bias
    roots = counts.sqrt()
    labels = roots.diag()
    if setting.balanced:
        m = float(counts[0])
        others = max(math.sqrt(m) - n * weight, 0.0)
        common = max(math.sqrt(m) - n * weight * (1 + penalty) / penalty, 0.0)
        flat = torch.full((C, C), 1 / C, dtype=torch.float64)
        return others * (torch.eye(C).double() - flat) + common * flat, math.inf
    direction = roots / roots.norm()
    fit = extrapolated = torch.zeros_like(labels)
    speed, lower = 1.0, -math.inf
    for step in range(STEPS):
        slope = without_best_bias(extrapolated - labels, roots, penalty)
        left, values, right = torch.linalg.svd(extrapolated - slope)
        new = (left * (values - n * weight).clamp(min=0)) @ right
        overshoots = float(((extrapolated - new) * (new - fit)).sum()) > 0
        next_speed = 1.0 if overshoots else (1 + math.sqrt(1 + 4 * speed**2)) / 2
        extrapolated = new if overshoots else new + (speed - 1) / next_speed * (new - fit)
        fit, speed = new, next_speed
        if step % 10 == 9:
            residual = without_best_bias(fit - labels, roots, penalty)
            size = float(torch.linalg.matrix_norm(residual, 2)) / n
            slope = residual / n * min(1.0, weight / max(size, 1e-300))
            level = slope - torch.outer(slope @ direction, direction)
            for dual in (slope, level):  # the second is better if the penalty is tiny
                bound = -float((dual * labels).sum()) - n / 2 * float(dual.square().sum())
                bound -= n / (2 * penalty) * float((dual @ direction).square().sum())
                lower = max(lower, bound)
            shift = (labels - fit) @ roots / n / (1 + penalty)
            cost = penalty / 2 * float(shift.square().sum())
            residual = fit + torch.outer(shift, roots) - labels
            value = _value(residual, torch.linalg.svdvals(fit), cost, n, weight, 2)
            if value - lower <= 1e-11 * value:
                break
    return fit, lower
