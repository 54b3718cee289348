"""gather: every metric of the catalogue that given statistics allow."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from nclab import metrics
from nclab.measurement.collapse import ClassPair, Collapse
from nclab.measurement.contradictions import contradictions
from nclab.measurement.rare import Rare
from nclab.measurement.rounding import lost_to_rounding
from nclab.metrics.catalogue import METRICS, Metric, plugin_metrics
from nclab.metrics.cosine import closest_inter
from nclab.metrics.view import View, parameters
from nclab.statistics import ClassMoments, DirectionalSpread, LogitStatistics, SecondPass

NO_DIRECTION = "undefined: a class mean or classifier row has no direction"
COINCIDE = "infinite: class means coincide while features vary around them"
UNDEFINED = {
    "NC1": "undefined: 0/0, class means coincide and nothing varies around them",
    "NC4": "undefined: all class means coincide",
    "minority_cosine": "undefined: fewer than two classes have at most half the samples of the "
    "largest",
    "lidar": "undefined: nothing varies within classes",
}
"""By name or group."""


class Extras(NamedTuple):
    """Metrics that were asked for beyond those of every measurement, and what they need."""

    metrics: tuple[Metric, ...] = ()
    spread: DirectionalSpread | None = None
    rare: Rare | None = None
    """Classes with too few samples, which are no longer in the statistics."""

    @property
    def directional(self) -> bool:
        """Whether they need a `DirectionalSpread`."""
        return any("spread" in parameters(metric.function) for metric in self.metrics)


NO_EXTRAS = Extras()


def gather(
    moments: ClassMoments,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    logits: LogitStatistics | None = None,
    look: SecondPass | None = None,
    layer: str | None = None,
    reasons: Mapping[str, str] | None = None,
    extras: Extras = NO_EXTRAS,
) -> Collapse:
    """Every metric that the given statistics allow.

    Args:
        moments: may lack classes; they are left out and a warning says so.
        weight: (C, d) classifier of all classes, with its bias (C,) if it has one.
        logits: statistics of this classifier's outputs.
        reasons: for each of "scatter", "second pass" and "weight" that is missing, why.
        extras: metrics beyond those of every measurement; rare classes that are left out.

    Costs half a C x C x d GEMM for each of: unit means (of many classes the next one serves them,
    see `BoundedClosestPairs`), centred means, weights, second pass.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> gather(moments).max_inter
    -1.0
    """
    missing, all_counts = moments.missing, moments.counts
    classes = (all_counts > 0).nonzero().flatten()
    if missing and len(classes) >= 2:
        moments = moments.select(classes)
    cautions = _cautions(moments)
    rare = extras.rare
    left_out = () if rare is None else tuple(rare.classes.tolist())
    if rare is not None:
        cautions.insert(0, str(rare))
    known = set(left_out)
    if absent := [own for own in missing if own not in known]:
        cautions.insert(0, f"Left out {len(absent)} classes without samples: {absent[:10]}.")
    logits = None if weight is None else logits
    view = View(moments, classes, weight, logits, look, extras.spread)
    given: dict[str | None, bool] = {
        "scatter": moments.has_scatter,
        "both": look is not None and look.predictions > 0,
    }
    values: dict[str, float | None] = {}
    notes: dict[str, str] = {}
    foreign = plugin_metrics()
    for metric in (*METRICS, *foreign, *extras.metrics):
        measured = given.get(metric.also, True) and view.allows(metric.function)
        value, why = None, ""
        if measured and metric in foreign:
            value, why = _foreign(view, metric)
        elif measured:
            value = view(metric.function)
        if why:
            notes[metric.name] = why
        elif value is None:
            notes[metric.name] = _why_missing(metric, reasons or {}, incomplete=bool(missing))
        elif math.isnan(value):
            notes[metric.name] = UNDEFINED.get(metric.name) or UNDEFINED.get(
                metric.group, NO_DIRECTION
            )
            value = None
        elif math.isinf(value):
            notes[metric.name] = COINCIDE if metric.group == "NC1" else "infinite: out of range"
        values[metric.name] = value
    said = [*view.remarks, *lost_to_rounding(view, values)]
    closest = tuple(
        ClassPair(int(classes[pair.row]), int(classes[pair.col]), pair.value)
        for pair in view(closest_inter).pairs
    )
    return Collapse(
        layer=layer,
        num_classes=moments.num_classes,
        dim=moments.dim,
        samples=moments.total,
        classes=tuple(int(c) for c in classes),
        zero_features=int(moments.zero_counts.sum()),
        ignored=moments.ignored,
        bias_norm=0.0 if bias is None else float((bias - bias.mean()).norm()),
        values=values,
        max_inter_pair=closest[0][:2],
        closest_pairs=closest,
        counts=moments.counts,
        variances=moments.variances,
        intra_cosine=view(metrics.intra_cosine),
        class_alpha=view(metrics.class_alpha),
        class_beta=None if view.weight is None else metrics.class_beta(view.weight)[classes],
        class_loss=None if view.logits is None else metrics.class_loss(view.logits)[classes],
        nc3_alignment=None if view.weight is None else view(metrics.nc3_alignment),
        notes=notes,
        warnings=(*cautions, *said, *contradictions(view, values)),
        moments=moments,
        look=look,
        weight=None if weight is None else weight[classes],
        class_accuracy=None if view.logits is None else _shares(view.logits, classes),
        left_out=left_out,
        residuals=None if missing or left_out or view.logits is None else view.logits.residuals,
    )


def _foreign(view: View, metric: Metric) -> tuple[float | None, str]:
    """The value of a plugin's metric, or why there is none: it must not end a measurement."""
    try:
        return float(view(metric.function)), ""
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything
        return None, f"its plugin failed: {type(error).__name__}: {error}".splitlines()[0]


def _shares(logits: LogitStatistics, classes: Tensor) -> Tensor:
    """(C,) how often the classifier is right about every class."""
    return logits.correct[classes].double() / logits.counts[classes]


def _why_missing(metric: Metric, reasons: Mapping[str, str], *, incomplete: bool) -> str:
    needs = metric.needs
    for need in ("weight", "second pass") if needs == "both" else (needs,):
        if need in reasons:
            return reasons[need]
    if incomplete:
        return "defined only when every class has samples"
    return f"needs {needs}, which was not given"


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
