"""Mean squared error: each singular value of the targets shrinks separately."""

import math

import torch
from torch import Tensor

from nclab.theory.targets.setting import CLOSED, Setting, Solution, factor_grams

STEPS = 20_000
SOURCE = "docs/targets.md, mean squared error"


def shrunk(values: Tensor, samples: float, decay: float, factors: int) -> Tensor:
    r"""Return each singular value s after the penalty of F factors.

    $$\arg\min_\sigma \tfrac{(s-\sigma)^2}{2n} + \tfrac F2\lambda\sigma^{2/F}$$

    For F = 2 the result is $(s - n\lambda)_+$. For larger F it jumps from $s(F-2)/(F-1)$ to 0 when
    the decay reaches
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
    """Return the optimum without bias, with a free bias, or with a penalised bias."""
    counts, n, C = setting.counts, setting.samples, setting.num_classes
    roots, share = counts.sqrt(), counts / setting.samples
    labels = roots.diag()
    lower, proof, geometry = None, CLOSED, "orthogonal frame"
    bias = torch.zeros_like(counts)
    if setting.bias is None or setting.bias == 0:
        if setting.bias == 0:
            labels = labels - torch.outer(share, roots)
            bias, geometry = share, "centred labels"
        left, values, right = torch.linalg.svd(labels)
        values = shrunk(values, n, weight, setting.factors)
        if setting.dim is not None:
            values = torch.where(torch.arange(C) < setting.dim, values, 0.0)
        fit = (left * values) @ right
        value = _value(fit - labels, fit, 0.0, n, weight, setting.factors)
        lower = value
    else:
        fit, lower = _with_bias(setting, weight)
        if not setting.balanced:
            proof = "duality gap"
        mean = (labels - fit) @ roots / n
        bias = mean / (1 + setting.bias)
        residual = fit + torch.outer(bias, roots) - labels
        cost = setting.bias / 2 * float(bias.square().sum())
        value = _value(residual, fit, cost, n, weight, 2)
        lower = value if setting.balanced else min(lower, value)
        geometry = "between simplex ETF and orthogonal frame"
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
        lower=lower,
        proof=proof,
        geometry=geometry,
        source=SOURCE,
        norm=float(values.sum()),
        weight=weight,
    )


def _value(
    residual: Tensor, fit: Tensor, cost: float, samples: float, weight: float, factors: int
) -> float:
    """Return the objective of a fit."""
    values = torch.linalg.svdvals(fit)
    penalty = factors / 2 * weight * float((values ** (2 / factors)).sum())
    return float(residual.square().sum()) / (2 * samples) + penalty + cost


def _with_bias(setting: Setting, weight: float) -> tuple[Tensor, float]:
    """Return logits times D^{1/2} for a penalised bias, and the dual bound.

    Accelerated proximal gradient with restarts.
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

    def without_bias(matrix: Tensor) -> Tensor:  # the residual after the best bias
        return matrix - torch.outer(matrix @ direction, direction) / (1 + penalty)

    fit = extrapolated = torch.zeros_like(labels)
    speed, lower = 1.0, -math.inf
    for step in range(STEPS):
        left, values, right = torch.linalg.svd(extrapolated - without_bias(extrapolated - labels))
        new = (left * (values - n * weight).clamp(min=0)) @ right
        overshoots = float(((extrapolated - new) * (new - fit)).sum()) > 0
        next_speed = 1.0 if overshoots else (1 + math.sqrt(1 + 4 * speed**2)) / 2
        extrapolated = new if overshoots else new + (speed - 1) / next_speed * (new - fit)
        fit, speed = new, next_speed
        if step % 10 == 9:
            residual = without_bias(fit - labels)
            size = float(torch.linalg.matrix_norm(residual, 2)) / n
            slope = residual / n * min(1.0, weight / max(size, 1e-300))
            level = slope - torch.outer(slope @ direction, direction)
            for dual in (slope, level):  # the second is better if the penalty is tiny
                bound = -float((dual * labels).sum()) - n / 2 * float(dual.square().sum())
                bound -= n / (2 * penalty) * float((dual @ direction).square().sum())
                lower = max(lower, bound)
            shift = (labels - fit) @ roots / n / (1 + penalty)
            cost = penalty / 2 * float(shift.square().sum())
            value = _value(fit + torch.outer(shift, roots) - labels, fit, cost, n, weight, 2)
            if value - lower <= 1e-11 * value:
                break
    return fit, lower
