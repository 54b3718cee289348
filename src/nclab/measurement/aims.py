"""Where a measured layer and its classifier should end, and how far from there they are."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nclab import metrics
from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import as_number
from nclab.theory.targets.dispatch import target
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.result import Target

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse


def target_of(
    collapse: "Collapse",
    weight_decay: float | tuple[float, float] | None,
    *,
    loss: str,
    **options: Any,
) -> Target:
    """See `Collapse.target`."""
    rows = _square_norm(collapse)
    setting: dict[str, Any] = {"counts": collapse.counts.cpu(), "dim": collapse.dim, "loss": loss}
    setting |= {"bias": 0.0 if collapse.bias_norm > 0 else None, **options}
    if weight_decay is None:
        alpha, beta = math.sqrt(mean_square_norm(collapse)), math.sqrt(rows / collapse.num_classes)
        return target(**setting, norms=(alpha, beta))
    if isinstance(weight_decay, tuple | list):
        return target(**setting, weight_decay=weight_decay)
    inferred = _inferred(collapse, as_number("weight_decay", weight_decay))
    found = target(**setting, weight_decay=(weight_decay, inferred))
    note = f"weight decay of the features inferred from the balance of norms: {inferred:.4g}"
    return replace(found, notes=(note, *found.notes))


def distance_of(collapse: "Collapse", target: Target) -> TargetDistance:
    """See `Collapse.distance_to`."""
    if not isinstance(target, Target):
        raise DataError(f"Expected a Target of nclab.target, got a {type(target).__name__}.")
    setting = target.setting
    soft_there = setting.targets is not None or setting.loss == "label_smoothing"
    soft_here = collapse.residuals is not None and collapse.residuals.soft is not None
    alike = setting.loss in ("cross_entropy", "label_smoothing") and soft_here == soft_there
    loss = collapse.loss if alike else None
    return distance_to(
        target, collapse.moments.means, collapse.weight, loss, counts=collapse.counts
    )


def map_point(collapse: "Collapse", weight_decay: float, state: str | None) -> dict[str, Any]:
    """See `Collapse.map_point`."""
    t = math.sqrt(weight_decay * _inferred(collapse, weight_decay))
    cosine = metrics.minority_cosine(collapse.moments, _classifier(collapse))
    return {
        "imbalance": float(collapse.counts.max() / collapse.counts.min()),
        "weight_decay": t * math.sqrt(collapse.samples),
        "minority_cosine": cosine if math.isfinite(cosine) else None,
        **({} if state is None else {"state": state}),
    }


def over_samples(collapse: "Collapse", values: Tensor) -> float:
    """The mean over samples of what is known of every class."""
    return float((values * collapse.counts).sum() / collapse.counts.sum())


def mean_square_norm(collapse: "Collapse") -> float:
    """Of the features, over samples."""
    return over_samples(collapse, collapse.class_alpha.square())


def _classifier(collapse: "Collapse") -> Tensor:
    if collapse.weight is None:
        raise DataError("Expected a measurement with a classifier, got none. Pass weight=.")
    return collapse.weight


def _square_norm(collapse: "Collapse") -> float:
    return float(_classifier(collapse).double().square().sum())


def _inferred(collapse: "Collapse", weight_decay: float) -> float:
    """That of the features at an optimum, where both penalties are equal."""
    rows, features = _square_norm(collapse), mean_square_norm(collapse) * collapse.samples
    if weight_decay and not min(rows, features) > 0:
        raise DataError(
            "Expected features and a classifier that are not zero, whose norms tell the weight "
            "decay of the features, got zeros. Pass weight_decay=(weights, features)."
        )
    return weight_decay * rows / features if features else 0.0
