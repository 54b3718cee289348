"""Optimum of the loss with weight decay, and the guarantees of a gap to it, without any norms."""

import math
from dataclasses import dataclass
from typing import Any

from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import Bound
from nclab.theory.certificates.one_class import jensen_intra
from nclab.theory.layer_peeled import g

SOURCE = "pan2023, Eq. (2.1)"


@dataclass(frozen=True)
class RegularisedOptimum:
    """Minimum of L + weight_decay/2 (C beta^2 + alpha^2) over features and weights."""

    num_classes: int
    weight_decay: float
    critical_weight_decay: float
    """Smallest weight decay at which the minimum is zero."""
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


@dataclass(frozen=True)
class RegularisedGap:
    """Guarantees of an objective that is above its minimum by `gap`."""

    gap: float
    deviation_upper: Bound
    """Bound on sum_c mean_i |w_c - h_ci / sqrt C|^2 + C |mean w|^2, w_c centred; any bias."""
    alignment_lower: Bound
    """Bound on cos(w_c, h_c) of every class, for a classifier without bias."""
    intra_lower: Bound
    """Bound on the intra-class cosine of every class, for a classifier without bias."""


def regularised_optimum(num_classes: int, weight_decay: float) -> RegularisedOptimum:
    r"""Return norms and losses at the minimum of the regularised layer-peeled objective.

    $$A^* = \tfrac{C-1}{C}\Bigl[\log(C-1)+\log\tfrac{1-q}{q}\Bigr],\quad
    q = \tfrac{\lambda(C-1)}{\sqrt C},\quad m^* = -\log(1-q),\quad \lambda_{crit}=1/\sqrt C$$

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
    product, objective = _tilted(num_classes, weight_decay * root)
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


def regularised_gap(num_classes: int, weight_decay: float, objective: float) -> RegularisedGap:
    r"""Return what the penalised objective alone guarantees; no norms need to be measured.

    $$J-J^* \ge \tfrac\lambda2\sum_c\tfrac1N\sum_i\|\dot w_c-h_{c,i}/\sqrt C\|^2
    +\tfrac\lambda2 C\|\bar w\|^2,\qquad
    J-J^* \ge \tfrac1C\bigl(j(\lambda\sqrt C/\rho_c)-j(\lambda\sqrt C)\bigr),\quad
    j(\eta) = \min_A g(A)+\eta A$$

    Source: pan2023, Eq. (2.1)
    Range: alignment in (0, 1], or -1 if a class may be lost entirely.

    >>> optimum = regularised_optimum(10, 5e-3)
    >>> gap = regularised_gap(10, 5e-3, optimum.objective + 1e-4)
    >>> round(gap.deviation_upper.value, 12), round(gap.alignment_lower.value, 3)
    (0.04, 0.989)
    """
    optimum = regularised_optimum(num_classes, weight_decay)
    if not math.isfinite(objective):
        raise DataError(f"Expected a finite objective, got {objective}.")
    gap = objective - optimum.objective
    if gap < -1e-6 * optimum.objective:
        raise DataError(
            f"Expected an objective of at least {optimum.objective:.6g}, the smallest possible for "
            f"{num_classes} classes and weight decay {weight_decay:g}, got {objective:.6g}. Pass "
            "the loss averaged over classes plus weight_decay/2 (|W|^2 + mean |h|^2)."
        )
    if weight_decay >= optimum.critical_weight_decay:
        reason = f"weight decay is at least 1/sqrt(C) = {optimum.critical_weight_decay:.4g}"
        nothing = Bound(None, reason, SOURCE)
        return RegularisedGap(max(gap, 0.0), nothing, nothing, nothing)
    gap = abs(gap) + 1e-14 * optimum.objective
    alignment, reason = -1.0, "the objective allows a class to be lost entirely"
    if optimum.objective + num_classes * gap < math.log(num_classes):
        tilt = weight_decay * math.sqrt(num_classes)
        alignment, reason = _solve_alignment(num_classes, tilt, num_classes * gap), ""
    return RegularisedGap(
        gap=gap,
        deviation_upper=Bound(2 * gap / weight_decay, "", SOURCE),
        alignment_lower=Bound(alignment, reason, SOURCE),
        intra_lower=Bound(float(jensen_intra(alignment)), reason, SOURCE),
    )


def _tilted(num_classes: int, tilt: float) -> tuple[float, float]:
    """Return the minimiser and the minimum of g(A) + tilt A over A >= 0."""
    if tilt >= 1:
        return 0.0, math.log(num_classes)
    others = num_classes - 1
    wrong = tilt * others / num_classes
    product = others / num_classes * (math.log(others) + math.log1p(-wrong) - math.log(wrong))
    product = max(product, 0.0)
    return product, -math.log1p(-wrong) + tilt * product


def _solve_alignment(num_classes: int, tilt: float, allowed: float) -> float:
    """Return the smallest rho with j(tilt / rho) <= j(tilt) + allowed, rounded down."""
    base = _tilted(num_classes, tilt)[1]
    low, high = tilt, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        inside = _tilted(num_classes, tilt / middle)[1] <= base + allowed
        low, high = (low, middle) if inside else (middle, high)
    return low * (1 - 1e-14)
