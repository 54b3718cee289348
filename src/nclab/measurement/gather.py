"""gather: every metric that given statistics allow, in as few sweeps as there can be."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nclab import metrics
from nclab.measurement.collapse import Collapse
from nclab.metrics.catalogue import METRICS
from nclab.metrics.cosine import cosines, largest_inter
from nclab.metrics.nc1_variability import between_whitening, trace_through
from nclab.metrics.nc2_simplex_etf import (
    centred_rows,
    cosine_deviation,
    norm_variation,
    simplex_deviation,
)
from nclab.metrics.nc3_self_duality import direction_gap
from nclab.metrics.pairs import NormalisedVariance, reduce_pairs
from nclab.statistics import ClassMoments, LogitStatistics, SecondLook

NO_DIRECTION = "undefined: a class mean or classifier row has no direction"
COINCIDE = "infinite: class means coincide while features vary around them"
UNDEFINED = {
    "NC1": "undefined: 0/0, class means coincide and nothing varies around them",
    "NC4": "undefined: all class means coincide",
}


def gather(
    moments: ClassMoments,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    logits: LogitStatistics | None = None,
    look: SecondLook | None = None,
    layer: str | None = None,
    reasons: Mapping[str, str] | None = None,
) -> Collapse:
    """Every metric that the given statistics allow.

    Args:
        moments: may lack classes; they are left out and a warning says so.
        weight: (C, d) classifier of all classes, with its bias (C,) if it has one.
        logits: statistics of this classifier's outputs.
        reasons: for each of "scatter", "second look" and "weight" that is missing, why.

    Costs half a C x C x d GEMM for each of: unit means, centred means, weights, second look.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> gather(moments).max_inter
    -1.0
    """
    missing, all_counts = moments.missing, moments.counts
    classes = (all_counts > 0).nonzero().flatten()
    if missing and len(classes) >= 2:
        moments = moments.select(classes)
    values, warnings = _feature_metrics(moments)
    if weight is not None:
        values |= _weight_metrics(moments, weight, classes)
        if logits is not None:
            values |= _logit_metrics(moments, logits, weight, classes, complete=not missing)
    if look is not None:
        values |= _second_look_metrics(look)
    if missing:
        warnings.insert(0, f"Left out {len(missing)} classes without samples: {missing[:10]}.")
    pair = values.pop("max_inter_pair")
    per_class = ("intra_cosine", "class_beta", "class_loss", "nc3_alignment")
    arrays: dict[str, Any] = {name: values.pop(name, None) for name in per_class}
    scalars, notes = _explain(values, reasons or {}, missing=bool(missing))
    return Collapse(
        layer=layer,
        num_classes=moments.num_classes,
        dim=moments.dim,
        samples=moments.total,
        classes=tuple(int(c) for c in classes),
        zero_features=int(moments.zero_counts.sum()),
        ignored=moments.ignored,
        bias_norm=0.0 if bias is None else float((bias - bias.mean()).norm()),
        **scalars,
        max_inter_pair=(int(classes[pair[0]]), int(classes[pair[1]])),
        counts=moments.counts,
        variances=moments.variances,
        class_alpha=metrics.class_alpha(moments),
        **arrays,
        notes=notes,
        warnings=tuple(warnings),
        moments=moments,
        look=look,
    )


def _feature_metrics(moments: ClassMoments) -> tuple[dict[str, Any], list[str]]:
    warnings = list(_cautions(moments))
    intra = metrics.intra_cosine(moments)
    closest = largest_inter(moments)
    centred = moments.centred_means
    angles = simplex_deviation(moments.num_classes)
    norms = torch.linalg.vector_norm(centred, dim=1)
    no_direction = not bool(norms.all())
    spread = NormalisedVariance(norms, moments.means, moments.variances)
    directions = centred * norms.masked_fill(norms == 0, 1.0).reciprocal_()[:, None]
    reduce_pairs(directions, angles, spread)
    values: dict[str, Any] = {
        "intra_cosine": intra,
        "min_intra": float(intra.min()),
        "mean_intra": float(intra.mean()),
        "max_inter": closest.value,
        "max_inter_pair": closest.pair,
        "mean_inter": metrics.mean_inter(moments),
        "nc1_trace_ratio": metrics.nc1_trace_ratio(moments),
        "cdnv": spread.total / spread.pairs,
        "nc2_norm_variation_means": norm_variation(norms),
        "nc2_equiangularity_means": math.nan if no_direction else angles.mean_absolute,
        "nc2_cosine_std_means": math.nan if no_direction else angles.standard_deviation,
        "alpha": metrics.alpha(moments),
    }
    if moments.has_scatter:
        between = between_whitening(moments)
        values["nc1_trace_pinv"] = trace_through(between, moments)
        warnings.extend([between.warning] if between.warning else [])
    return values, warnings


def _weight_metrics(moments: ClassMoments, weight: Tensor, classes: Tensor) -> dict[str, Any]:
    centred = centred_rows(weight)
    angles = cosine_deviation(centred)
    # A class left out keeps its row for the centring but has no mean to be compared with.
    alignment = cosines(centred[classes], moments.means)
    return {
        "nc2_norm_variation_weights": norm_variation(torch.linalg.vector_norm(centred, dim=1)),
        "nc2_equiangularity_weights": angles.mean_absolute,
        "nc2_cosine_std_weights": angles.standard_deviation,
        "nc3_self_duality": direction_gap(moments.centred_means, centred[classes]),
        "nc3_alignment": alignment,
        "nc3_alignment_min": float(alignment.min()),
        "nc3_alignment_mean": float(alignment.mean()),
        "nc3_frobenius": metrics.nc3_frobenius(moments, weight[classes]),
        "beta": metrics.beta(weight),
        "class_beta": metrics.class_beta(weight)[classes],
    }


def _logit_metrics(
    moments: ClassMoments,
    logits: LogitStatistics,
    weight: Tensor,
    classes: Tensor,
    *,
    complete: bool,
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "accuracy": metrics.accuracy(logits),
        "loss": metrics.loss(logits),
        "balanced_loss": float(metrics.class_loss(logits)[classes].mean()),
        "class_loss": metrics.class_loss(logits)[classes],
        "margin": metrics.margin(logits),
    }
    if complete:
        product = metrics.alpha(moments) * metrics.beta(weight)
        values["optimal_loss"] = metrics.optimal_loss(moments.num_classes, product)
        values["excess_loss"] = metrics.excess_loss(logits, moments, weight)
        values["normalised_margin"] = metrics.normalised_margin(logits, moments, weight)
    return values


def _second_look_metrics(look: SecondLook) -> dict[str, Any]:
    return {
        "centred_min_intra": metrics.min_intra(look),
        "centred_mean_intra": metrics.mean_intra(look),
        "centred_max_inter": metrics.max_inter(look),
        "centred_mean_inter": metrics.mean_inter(look),
        "nc1_within_variation": metrics.nc1_within_variation(look),
        "nc4_ncc_accuracy": metrics.nc4_ncc_accuracy(look),
        "nc4_cosine_accuracy": metrics.nc4_cosine_accuracy(look),
        **(
            {
                "nc4_agreement": metrics.nc4_agreement(look),
                "nc4_cosine_agreement": metrics.nc4_cosine_agreement(look),
            }
            if look.predictions
            else {}
        ),
    }


def _explain(
    values: dict[str, Any], reasons: Mapping[str, str], *, missing: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Every metric by name, None where there is no number, and a reason for each of those."""
    scalars: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for metric in METRICS:
        value = values.get(metric.name)
        if value is None:
            both = [reasons[need] for need in ("weight", "second look") if need in reasons]
            reason = both[0] if metric.needs == "both" and both else reasons.get(metric.needs)
            if reason is None and missing:
                reason = "defined only when every class has samples"
            notes[metric.name] = reason or f"needs {metric.needs}, which was not given"
        elif math.isnan(value):
            notes[metric.name] = UNDEFINED.get(metric.group, NO_DIRECTION)
            value = None
        elif math.isinf(value):
            notes[metric.name] = COINCIDE if metric.group == "NC1" else "infinite: out of range"
        scalars[metric.name] = value
    return scalars, notes


def _cautions(moments: ClassMoments) -> list[str]:
    cautions = []
    if zeros := int(moments.zero_counts.sum()):
        cautions.append(
            f"{zeros} feature vectors are zero: they have no direction and count as cosine 0."
        )
    if moments.dim < moments.num_classes - 1:
        cautions.append(
            f"Dimension {moments.dim} holds no simplex ETF of {moments.num_classes} classes; "
            "full collapse is impossible."
        )
    if singles := int((moments.counts == 1).sum()):
        cautions.append(
            f"{singles} classes have one sample: they show no spread, collapsed or not."
        )
    if not moments.centred_means.any():
        cautions.append("All class means coincide: the features do not tell the classes apart.")
    return cautions
