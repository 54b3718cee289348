"""Metrics of a layer, computed from its statistics after rare classes are left out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab import metrics
from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.diagnosis import (
    UNEVEN,
    contradictions,
    reference_rounding_warnings,
    rounding_warnings,
    summarise,
)
from nclab.measurement.results import ClassPair, strata
from nclab.metrics.catalogue import METRICS, REFERENCE_METRICS, Metric, plugin_metrics
from nclab.metrics.cosine import closest_inter
from nclab.metrics.view import View, parameters
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass
from nclab.statistics.second_pass import ReferencePass
from nclab.text import counted, listed

NO_WEIGHT = "no classifier weights were given"
NO_DIRECTION = "undefined: a class mean or classifier row has no direction"
COINCIDE = "infinite: class means coincide while features vary around them"
UNDEFINED = {
    "NC1": "undefined: 0/0, class means coincide and nothing varies around them",
    "NC4": "undefined: all class means coincide",
    "minority_cosine": "undefined: fewer than two classes have at most half the samples of the "
    "largest",
}
"""Name or group of a metric -> why its value is nan."""
REFERENCE_ERROR_UNKNOWN = "the sampling error of the reference is unknown"
NO_REFERENCE_SPREAD = "undefined: the reference has no spread to compare with"
FEWEST_CLASSES = 20
"""Tables show groups of classes if there are at least this many classes of `UNEVEN` sizes."""


@dataclass
class RareClasses:
    """Classes with too few samples, which are removed from the sums after the first pass."""

    classes: Tensor
    """(k,) class numbers in increasing order."""
    samples: int
    """Number of samples of all these classes together."""
    min_count: int
    loss: float | None = None
    """Mean cross-entropy of their samples, if it is known."""
    means: Tensor | None = None
    """(k, d) class means; None if their rows were skipped from the start."""
    scatter: Tensor | None = None
    """(d, d) scatter of their samples around these means, added up in the second pass; None if the
    measurement keeps no scatter."""

    @classmethod
    def among(cls, counts: Tensor, min_count: int) -> "RareClasses | None":
        """Find classes with fewer than `min_count` samples; raise if fewer than two others remain.

        >>> RareClasses.among(torch.tensor([5, 0, 1, 3]), 2).classes.tolist()
        [2]
        """
        classes = ((counts > 0) & (counts < min_count)).nonzero().flatten()
        if not len(classes):
            return None
        if int((counts >= min_count).sum()) < 2:
            raise DataError(
                f"Expected at least 2 classes with min_count={min_count} samples, the largest "
                f"class has {int(counts.max())}. Use more data, or a smaller min_count."
            )
        return cls(classes, int(counts[classes].sum()), min_count)

    @classmethod
    def removed_from(
        cls, moments: ClassMoments, logits: LogitStatistics | None, min_count: int, *, scatter: bool
    ) -> "RareClasses | None":
        """Find the rare classes, and remove their samples from `moments` and `logits`.

        The d x d scatter of the moments still contains them. If `scatter` is true, `filter` adds up
        their scatter in the second pass, so that it can be subtracted.
        """
        rare = cls.among(moments.counts, min_count)
        if rare is None:
            return None
        if logits is not None:
            samples = int(logits.counts[rare.classes].sum())
            if samples:
                rare.loss = float(logits.loss_sums[rare.classes].sum()) / samples
            for sums in (logits.counts, logits.correct, logits.loss_sums):
                sums[rare.classes] = 0
            logits.margins[rare.classes] = torch.inf
        rare.means = moments.remove_classes(rare.classes)
        if scatter:
            rare.scatter = rare.means.new_zeros(moments.dim, moments.dim)
        return rare

    def filter(
        self, rows: Tensor, labels: Tensor, predicted: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a second-pass batch without these classes; add their scatter to `scatter`."""
        labels = labels.to(self.classes.device)
        index = torch.searchsorted(self.classes, labels).clamp_max(len(self.classes) - 1)
        is_rare = self.classes[index] == labels
        if not bool(is_rare.any()):
            return rows, labels, predicted
        rare_rows = is_rare.to(rows.device)
        if self.scatter is not None and self.means is not None:
            centred = rows[rare_rows].to(self.means) - self.means[index[is_rare]]
            self.scatter.addmm_(centred.T, centred)
        if predicted is not None:
            predicted = predicted[~is_rare.to(predicted.device)]
        return rows[~rare_rows], labels[~is_rare], predicted

    def warning(self, names: Sequence[str] | None) -> str:
        """Return a warning that lists the classes and counts their samples."""
        loss = "" if self.loss is None else f", mean loss {self.loss:.4g}"
        return (
            f"Left out {counted(len(self.classes), 'class')} with fewer than {self.min_count} "
            f"samples ({counted(self.samples, 'sample')}{loss}): "
            f"{_listed(self.classes.tolist(), names)}."
        )


class Extras(NamedTuple):
    """Optional parts of a measurement: additional metrics, rare classes, and class names."""

    metrics: tuple[Metric, ...] = ()
    rare: RareClasses | None = None
    class_names: tuple[str, ...] | None = None
    """Names of all classes, in the order of the class numbers."""
    has_reference: bool = False
    """Whether `with_reference` adds the metrics that compare the data with a reference."""


NO_EXTRAS = Extras()


def gather(
    moments: ClassMoments,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    logits: LogitStatistics | None = None,
    second_pass: SecondPass | None = None,
    layer: str | None = None,
    reasons: Mapping[str, str] | None = None,
    extras: Extras = NO_EXTRAS,
) -> Collapse:
    """Compute every metric that the given statistics allow.

    Args:
        moments: statistics of the features; classes without samples are left out with a warning.
        weight: (C, d) classifier of all classes, with its bias (C,) if it has one.
        logits: statistics of this classifier's outputs.
        reasons: why each of "scatter", "second pass" and "weight" is missing.
        extras: additional metrics, and the rare classes that were left out.

    Costs half a C x C x d matrix product for each of four sets of rows: unit means, centred means,
    weights, and the centred unit means of the second pass.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> gather(moments).max_inter
    -1.0
    """
    missing, names = moments.missing, extras.class_names
    view = view_of(moments, weight, logits, second_pass)
    moments, classes = view.moments, view.classes
    left_out = () if extras.rare is None else tuple(extras.rare.classes.tolist())
    cautions = [] if extras.rare is None else [extras.rare.warning(names)]
    if absent := [number for number in missing if number not in set(left_out)]:
        count = counted(len(absent), "class")
        cautions.insert(0, f"Left out {count} without samples: {_listed(absent, names)}.")
    cautions += _cautions(moments)
    values, notes = scalars(view, extras.metrics, reasons or {}, incomplete=bool(missing))
    if extras.has_reference:  # `with_reference` computes their values
        values |= dict.fromkeys(metric.name for metric in REFERENCE_METRICS)
    closest = tuple(
        ClassPair(int(classes[pair.row]), int(classes[pair.col]), pair.value)
        for pair in view(closest_inter)
    )
    rounding = rounding_warnings(view, values)
    complete = not missing and not left_out
    used = view.logits
    collapse = Collapse(
        layer=layer,
        num_classes=moments.num_classes,
        dim=moments.dim,
        samples=moments.total,
        classes=tuple(classes.tolist()),
        zero_features=int(moments.zero_counts.sum()),
        ignored=moments.ignored,
        bias_norm=0.0 if bias is None else float((bias - bias.mean()).norm()),
        values=values,
        closest_pairs=closest,
        counts=moments.counts,
        variances=moments.variances,
        intra_cosine=view(metrics.intra_cosine),
        class_alpha=view(metrics.class_alpha),
        class_beta=None if weight is None else metrics.class_beta(weight)[classes],
        class_loss=None if used is None else metrics.class_loss(used)[classes],
        nc3_alignment=None if weight is None else view(metrics.nc3_alignment),
        notes=notes,
        warnings=(*cautions, *view.remarks, *rounding, *contradictions(view, values)),
        moments=moments,
        second_pass=second_pass,
        class_names=None if names is None else tuple(names[number] for number in classes.tolist()),
        weight=None if weight is None else weight[classes],
        class_accuracy=(
            None if used is None else used.correct[classes].double() / used.counts[classes]
        ),
        left_out=left_out,
        residuals=None if used is None or not complete else used.residual_sums,
        non_negative=bool((moments.unit_means >= 0).all()),
        sentences=summarise(view, values, closest, names),
    )
    most, least = int(moments.counts.max()), int(moments.counts.min())
    if len(classes) >= FEWEST_CLASSES and most >= UNEVEN * least:
        collapse = replace(collapse, frequency_groups=strata(collapse))
    return collapse


def view_of(
    moments: ClassMoments,
    weight: Tensor | None,
    logits: LogitStatistics | None,
    second_pass: SecondPass | None,
) -> View:
    """Return a `View` of these statistics, without the classes that have no samples."""
    classes = (moments.counts > 0).nonzero().flatten()
    if moments.missing and len(classes) >= 2:
        moments = moments.select(classes)
    used = None if weight is None else logits
    return View(moments, classes, weight, used, second_pass)


def scalars(
    view: View, extra_metrics: tuple[Metric, ...], reasons: Mapping[str, str], *, incomplete: bool
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the metrics by name, and the reason for each that is missing."""
    second_pass = view.second_pass
    available: dict[str | None, bool] = {
        "scatter": view.moments.has_scatter,
        "both": second_pass is not None and second_pass.predictions > 0,
    }
    values: dict[str, float | None] = {}
    notes: dict[str, str] = {}
    from_plugins = plugin_metrics()
    for metric in (*METRICS, *from_plugins, *extra_metrics):
        measured = available.get(metric.also, True) and view.allows(metric.function)
        value, why = None, _why_missing(metric, reasons, incomplete=incomplete)
        if measured and metric in from_plugins:
            try:
                value = float(view(metric.function))
            except Exception as error:  # noqa: BLE001 - foreign code must not end a measurement
                why = f"its plugin failed: {type(error).__name__}: {error}".splitlines()[0]
        elif measured:
            value = view(metric.function)
        if value is None:
            notes[metric.name] = why
        elif math.isnan(value):
            by_group = UNDEFINED.get(metric.group, NO_DIRECTION)
            notes[metric.name] = UNDEFINED.get(metric.name) or by_group
            value = None
        elif math.isinf(value):
            notes[metric.name] = COINCIDE if metric.group == "NC1" else "infinite: out of range"
        values[metric.name] = value
    return values, notes


def _why_missing(metric: Metric, reasons: Mapping[str, str], *, incomplete: bool) -> str:
    needs = metric.needs
    for need in ("weight", "second pass") if needs == "both" else (needs,):
        if need in reasons:
            return reasons[need]
    if incomplete:
        return "defined only when every class has samples"
    return f"needs {needs}, which was not given"


def _cautions(moments: ClassMoments) -> list[str]:
    """Return warnings about the data that concern all metrics."""
    cautions = []
    if zeros := int(moments.zero_counts.sum()):
        cautions.append(
            f"{counted(zeros, 'feature vector')} of length 0: without a direction, all their "
            "cosines count as 0."
        )
    if moments.dim < moments.num_classes - 1:
        cautions.append(
            f"Dimension {moments.dim} holds no simplex ETF of {moments.num_classes} classes; "
            "full collapse is impossible."
        )
    if singles := int((moments.counts == 1).sum()):
        cautions.append(
            f"{counted(singles, 'class')} with a single sample, whose spread is 0 with or without "
            "collapse."
        )
    if not moments.centred_means.any():
        cautions.append("All class means coincide: the features do not separate the classes.")
    return cautions


def with_reference(collapse: Collapse, reference_pass: ReferencePass) -> Collapse:
    """Return the measurement with the metrics that compare it with a reference."""
    statistics: Mapping[str, Any] = {"reference": reference_pass, "moments": collapse.moments}
    values, notes, no_interval = {**collapse.values}, {**collapse.notes}, {**collapse.no_interval}
    for metric in REFERENCE_METRICS:
        arguments = [statistics[name] for name in parameters(metric.function)]
        value: float | None = metric.function(*arguments)
        if value is None or not math.isfinite(value):
            no_weight = metric.name == "reference_ncc_agreement" and not reference_pass.predictions
            notes[metric.name] = NO_WEIGHT if no_weight else NO_REFERENCE_SPREAD
            value = None
        elif collapse.intervals is not None:
            no_interval[metric.name] = REFERENCE_ERROR_UNKNOWN
        values[metric.name] = value
    rounding = reference_rounding_warnings(reference_pass, collapse.moments, values)
    warnings = (*collapse.warnings, *rounding)
    return replace(collapse, values=values, notes=notes, no_interval=no_interval, warnings=warnings)


def _listed(numbers: Sequence[int], names: Sequence[str] | None) -> str:
    """Return a text that lists the first classes, by name if they have names."""
    return listed(numbers if names is None else [names[number] for number in numbers])
