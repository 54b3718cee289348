"""Collapse: every metric of one layer at one moment, gathered in as few sweeps as there can be."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nclab import metrics
from nclab.errors import DataError
from nclab.metrics.catalogue import METRICS
from nclab.metrics.cosine import largest_inter, unit_rows
from nclab.metrics.nc1_variability import between_whitening, trace_through
from nclab.metrics.nc2_simplex_etf import (
    centred_rows,
    cosine_deviation,
    norm_variation,
    simplex_deviation,
)
from nclab.metrics.pairs import NormalisedVariance, reduce_pairs
from nclab.statistics import ClassMoments, LogitStatistics, SecondLook
from nclab.theory.certificate import Certificate, certify

PAIRS_SHOWN = 100
"""Up to this many classes `to_dict` includes the C x C cosines."""


@dataclass(frozen=True, eq=False)
class Collapse:
    """A measurement of one layer: scalars, the arrays behind them, and what is missing and why.

    A scalar that could not be measured is None and `notes` gives the reason under its name.
    Per-class arrays follow the order of `classes`.

    >>> import nclab
    >>> collapse = nclab.measure_features([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> collapse.max_inter, collapse.loss, collapse.notes["loss"]
    (0.0, None, 'no classifier weights were given')
    """

    layer: str | None
    """Name of the layer, if it has one."""
    num_classes: int
    dim: int
    samples: int
    classes: tuple[int, ...]
    """The classes measured; shorter than the label range where classes without samples were
    left out."""
    zero_features: int
    """Feature vectors that are exactly zero and so have no direction."""
    ignored: int
    """Rows skipped because of their label."""
    bias_norm: float
    """Norm of the classifier's bias around its mean; 0 without a bias."""

    min_intra: float | None
    mean_intra: float | None
    max_inter: float | None
    mean_inter: float | None
    centred_min_intra: float | None
    centred_mean_intra: float | None
    centred_max_inter: float | None
    centred_mean_inter: float | None
    nc1_trace_pinv: float | None
    nc1_trace_ratio: float | None
    cdnv: float | None
    nc1_within_variation: float | None
    nc2_norm_variation_means: float | None
    nc2_norm_variation_weights: float | None
    nc2_equiangularity_means: float | None
    nc2_equiangularity_weights: float | None
    nc2_cosine_std_means: float | None
    nc2_cosine_std_weights: float | None
    nc3_self_duality: float | None
    nc3_alignment_min: float | None
    nc3_alignment_mean: float | None
    nc3_frobenius: float | None
    nc4_ncc_accuracy: float | None
    nc4_agreement: float | None
    nc4_cosine_accuracy: float | None
    nc4_cosine_agreement: float | None
    accuracy: float | None
    loss: float | None
    balanced_loss: float | None
    optimal_loss: float | None
    excess_loss: float | None
    alpha: float | None
    beta: float | None
    margin: float | None
    normalised_margin: float | None

    max_inter_pair: tuple[int, int]
    """The two classes with the largest inter-class cosine."""
    counts: Tensor = field(repr=False)
    """(C,) samples per class."""
    intra_cosine: Tensor = field(repr=False)
    """(C,) intra-class cosine."""
    variances: Tensor = field(repr=False)
    """(C,) mean squared distance to the class mean."""
    class_alpha: Tensor = field(repr=False)
    """(C,) rms feature norm."""
    class_beta: Tensor | None = field(repr=False)
    """(C,) norm of the centred classifier row."""
    class_loss: Tensor | None = field(repr=False)
    """(C,) mean cross-entropy."""
    nc3_alignment: Tensor | None = field(repr=False)
    """(C,) cosine of the centred classifier row and the class mean."""
    notes: Mapping[str, str]
    """Metric -> why it is None or infinite."""
    warnings: tuple[str, ...]
    """What a reader of the numbers should know."""
    moments: ClassMoments = field(repr=False)
    """The statistics the numbers come from."""
    look: SecondLook | None = field(repr=False)

    @cached_property
    def inter_cosine(self) -> Tensor:
        """(C, C) inter-class cosines, intra-class on the diagonal; made when asked for."""
        return metrics.inter_cosine(self.moments)

    @cached_property
    def centred_inter_cosine(self) -> Tensor:
        """(C, C) the same for features centred by the global mean; made when asked for."""
        if self.look is None:
            raise DataError(f"Expected a second look, got none: {self.notes['centred_max_inter']}")
        return metrics.inter_cosine(self.look)

    @cached_property
    def cdnv_pairs(self) -> Tensor:
        """(C, C) class-distance normalised variances; made when asked for."""
        return metrics.cdnv_pairs(self.moments)

    @cached_property
    def snr_spectrum(self) -> Tensor:
        """Signal-to-noise ratios of the modes of the class means; made when asked for."""
        return metrics.snr_spectrum(self.moments)

    def certificate(self, delta: float | None = None) -> Certificate:
        """What norms and losses of this layer guarantee, with a bound for every single class.

        Needs a classifier and samples of every class. Costs milliseconds, and up to seconds for
        the bound on pairs of classes.

        >>> import nclab
        >>> features = [[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]
        >>> weight = [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1, 0, 1], weight=weight)
        >>> promised = collapse.certificate().class_intra_lower
        >>> bool((promised <= collapse.intra_cosine.numpy()).all())
        True
        """
        for name in ("balanced_loss", "optimal_loss"):
            if getattr(self, name) is None:
                raise DataError(
                    f"Expected a measurement with classifier and loss, but {name} is missing: "
                    f"{self.notes[name]}."
                )
        assert self.alpha is not None
        assert self.beta is not None
        assert self.balanced_loss is not None
        assert self.class_loss is not None
        assert self.class_beta is not None
        return certify(
            self.num_classes,
            self.alpha,
            self.beta,
            self.balanced_loss,
            delta,
            class_losses=self.class_loss.cpu().numpy(),
            class_alphas=self.class_alpha.cpu().numpy(),
            class_betas=self.class_beta.cpu().numpy(),
            bias_norm=self.bias_norm,
        )

    def scalars(self) -> dict[str, float | None]:
        """The scalar metrics by name, in the order of the tables."""
        return {metric.name: getattr(self, metric.name) for metric in METRICS}

    def to_row(self) -> dict[str, Any]:
        """One flat row for a DataFrame: the layer, its sizes and every scalar."""
        head = {"layer": self.layer, "dim": self.dim, "samples": self.samples}
        tail = {
            "zero_features": self.zero_features,
            "ignored": self.ignored,
            "bias_norm": self.bias_norm,
        }
        return {**head, "num_classes": self.num_classes, **self.scalars(), **tail}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; what is not finite is None with a note."""
        pairs = self.inter_cosine.tolist() if self.num_classes <= PAIRS_SHOWN else None
        notes = dict(self.notes)
        if pairs is None:
            notes["inter_cosine"] = f"more than {PAIRS_SHOWN} classes; use .inter_cosine"
        arrays = {
            name: None if value is None else _finite_list(value)
            for name, value in (
                ("intra_cosine", self.intra_cosine),
                ("nc3_alignment", self.nc3_alignment),
                ("class_loss", self.class_loss),
                ("class_alpha", self.class_alpha),
                ("class_beta", self.class_beta),
                ("class_variance", self.variances),
                ("class_counts", self.counts),
            )
        }
        scalars = {name: _finite(value) for name, value in self.scalars().items()}
        return {
            **self.to_row(),
            **scalars,
            "max_inter_pair": list(self.max_inter_pair),
            "classes": list(self.classes),
            **arrays,
            "inter_cosine": pairs,
            "notes": notes,
            "warnings": list(self.warnings),
        }

    def __rich__(self) -> Any:
        from nclab.measurement.table import side_by_side

        return side_by_side([self])

    def __str__(self) -> str:
        from nclab.measurement.table import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from nclab.measurement.table import as_html

        return as_html([self])


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
    spread = NormalisedVariance(centred, moments.variances)
    directions = unit_rows(centred)
    no_direction = bool(directions.isnan().any())
    reduce_pairs(directions.nan_to_num_(0.0), angles, spread)
    values: dict[str, Any] = {
        "intra_cosine": intra,
        "min_intra": float(intra.min()),
        "mean_intra": float(intra.mean()),
        "max_inter": closest.value,
        "max_inter_pair": closest.pair,
        "mean_inter": metrics.mean_inter(moments),
        "nc1_trace_ratio": metrics.nc1_trace_ratio(moments),
        "cdnv": spread.total / spread.pairs,
        "nc2_norm_variation_means": norm_variation(centred),
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
    angles = cosine_deviation(centred_rows(weight))
    # A class left out keeps its row for the centring but has no mean to be compared with.
    rows = weight if len(classes) == len(weight) else centred_rows(weight)[classes]
    alignment = metrics.nc3_alignment(moments, rows)
    return {
        "nc2_norm_variation_weights": metrics.nc2_norm_variation_weights(weight),
        "nc2_equiangularity_weights": angles.mean_absolute,
        "nc2_cosine_std_weights": angles.standard_deviation,
        "nc3_self_duality": metrics.nc3_self_duality(moments, rows),
        "nc3_alignment": alignment,
        "nc3_alignment_min": float(alignment.min()),
        "nc3_alignment_mean": float(alignment.mean()),
        "nc3_frobenius": metrics.nc3_frobenius(moments, rows),
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
            notes[metric.name] = "undefined: a class mean or classifier row has no direction"
            value = None
        elif math.isinf(value):
            notes[metric.name] = "infinite: class means coincide while features vary around them"
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


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _finite_list(values: Tensor) -> list[float | None]:
    if not values.dtype.is_floating_point:
        return [int(value) for value in values]
    return [_finite(float(value)) for value in values.to(torch.float64)]
