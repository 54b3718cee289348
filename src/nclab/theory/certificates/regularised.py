"""Optimum of the layer-peeled loss with weight decay."""

import math
from dataclasses import dataclass
from typing import Any

from nclab.errors import DataError
from nclab.theory.layer_peeled import g


@dataclass(frozen=True)
class RegularisedOptimum:
    """Minimum of L + weight_decay/2 (C beta^2 + alpha^2) over features and weights."""

    num_classes: int
    weight_decay: float
    critical_weight_decay: float
    """Smallest weight decay at which features and weights are zero at the minimum."""
    product: float
    """Product alpha * beta."""
    alpha: float
    beta: float
    optimal_loss: float
    """Loss m* without the penalty."""
    objective: float
    """Loss J* with the penalty."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def regularised_optimum(num_classes: int, weight_decay: float) -> RegularisedOptimum:
    r"""Return norms and losses at the minimum of the layer-peeled loss with weight decay $\lambda$.

    $$A^* = \tfrac{C-1}{C}\Bigl[\log(C-1)+\log\tfrac{1-q}{q}\Bigr],\quad
    q = \tfrac{\lambda(C-1)}{\sqrt C},\quad m^* = -\log(1-q),\quad \lambda_{crit}=1/\sqrt C$$

    $A^*$ is the product $\alpha\beta$, q the probability of the wrong classes and $m^*$ the loss
    without the penalty.

    Source: pan2023, Eq. (2.1)
    Range: zero norms for a weight decay of at least 1/sqrt C.

    >>> optimum = regularised_optimum(10, 5e-4)
    >>> round(optimum.product, 6), round(optimum.optimal_loss, 9)
    (7.875694, 0.001424038)
    >>> regularised_optimum(4, 0.5).product
    0.0
    """
    if num_classes < 2:
        raise DataError(f"Expected at least 2 classes, got {num_classes}.")
    if not (math.isfinite(weight_decay) and weight_decay > 0):
        raise DataError(f"Expected a positive finite weight decay, got {weight_decay}.")
    root = math.sqrt(num_classes)
    tilt, others = weight_decay * root, num_classes - 1  # the minimum of g(A) + tilt A
    product, objective = 0.0, math.log(num_classes)
    if tilt < 1:
        wrong = tilt * others / num_classes
        product = others / num_classes * (math.log(others) + math.log1p(-wrong) - math.log(wrong))
        product = max(product, 0.0)
        objective = -math.log1p(-wrong) + tilt * product
    return RegularisedOptimum(
        num_classes=num_classes,
        weight_decay=weight_decay,
        critical_weight_decay=1 / root,
        product=product,
        alpha=math.sqrt(root * product),
        beta=math.sqrt(product / root),
        optimal_loss=g(product, num_classes),
        objective=objective,
    )
