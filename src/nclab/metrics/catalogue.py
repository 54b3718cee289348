"""The catalogue of metrics: name, function, group, ideal value and a short meaning of each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from nclab import metrics, plugins
from nclab.errors import DataError
from nclab.metrics.cross_entropy import best_loss
from nclab.metrics.view import View, parameters
from nclab.metrics.view import simplex_cosine as _simplex
from nclab.statistics import SecondPass


class Metric(NamedTuple):
    """One scalar of `Collapse`."""

    function: Callable[..., float]
    """Computes the value from the statistics that its parameters name, see `View`."""
    group: str
    """Heading under which tables show the metric, such as NC1."""
    ideal: Callable[[int], float] | None
    """Function of C that returns the value at collapse, where class means and classifier rows are
    the same simplex ETF. None if the value depends on more than C."""
    meaning: str
    """A few words for tables."""
    also: Literal["scatter", "both"] | None = None
    """Required input that the parameters of `function` do not show: "scatter" for moments with a
    scatter, "both" for a second pass with the classifier's predictions."""
    alias: str | None = None
    """The name of the metric, if it differs from that of the function."""
    extreme: bool = False
    """Whether the metric is a minimum or maximum, whose error the jackknife cannot estimate."""

    @property
    def name(self) -> str:
        """Name of the metric in `Collapse`, in tables and in records."""
        return self.alias or self.function.__name__

    @property
    def needs(self) -> str:
        """Required input: features, scatter, second pass, weight, or both (the last two)."""
        names = parameters(self.function)
        by_name = "second pass" if "second_pass" in names else "features"
        return self.also or ("weight" if names & {"weight", "logits"} else by_name)

    @property
    def of_weights(self) -> bool:
        """Whether the metric depends only on the classifier."""
        return not parameters(self.function) - {"weight", "classes"}


def _zero(num_classes: int) -> float:
    return 0.0


def _one(num_classes: int) -> float:
    return 1.0


def _classes_minus_one(num_classes: int) -> float:
    return num_classes - 1.0


def _centred(cosine: Callable[[SecondPass], float]) -> Callable[[SecondPass], float]:
    """Return the metric `cosine` for the features minus their global mean."""

    def centred(second_pass: SecondPass) -> float:
        """Cosine metric of the features minus their global mean.

        Invariant to: rotation, translation, scale.
        """
        return cosine(second_pass)

    centred.__name__ = f"centred_{cosine.__name__}"
    return centred


_COSINES = (
    Metric(metrics.min_intra, "cosine", _one, "smallest mean cosine within a class", extreme=True),
    Metric(metrics.mean_intra, "cosine", _one, "mean cosine within classes"),
    Metric(metrics.max_inter, "cosine", _simplex, "largest cosine between classes", extreme=True),
    Metric(metrics.mean_inter, "cosine", _simplex, "mean cosine between classes"),
)
_CENTRED_COSINES = tuple(
    metric._replace(
        function=_centred(metric.function), meaning=f"{metric.name} of centred features"
    )
    for metric in _COSINES
)
METRICS: tuple[Metric, ...] = (
    *_COSINES,
    *_CENTRED_COSINES,
    Metric(metrics.nc1_trace_pinv, "NC1", _zero, "tr(Σ_W Σ_B†)/C", "scatter"),
    Metric(metrics.nc1_trace_ratio, "NC1", _zero, "tr Σ_W / tr Σ_B"),
    Metric(metrics.cdnv, "NC1", _zero, "variance / squared distance of means"),
    Metric(metrics.nc1_within_variation, "NC1", _zero, "distance to class mean / to global mean"),
    Metric(metrics.nc2_norm_variation_means, "NC2", _zero, "spread of the norms of class means"),
    Metric(
        metrics.nc2_norm_variation_weights, "NC2", _zero, "spread of the norms of classifier rows"
    ),
    Metric(
        metrics.nc2_equiangularity_means, "NC2", _zero, "deviation from equal angles (class means)"
    ),
    Metric(
        metrics.nc2_equiangularity_weights, "NC2", _zero, "deviation from equal angles (classifier)"
    ),
    Metric(metrics.nc2_cosine_std_means, "NC2", _zero, "spread of the cosines of class means"),
    Metric(
        metrics.nc2_cosine_std_weights, "NC2", _zero, "spread of the cosines of classifier rows"
    ),
    Metric(metrics.nc0_weight_mean, "NC2", _zero, "|sum of classifier rows| / its maximum"),
    Metric(metrics.nc3_self_duality, "NC3", _zero, "distance of mean and classifier directions"),
    Metric(
        metrics.nc3_alignment_min,
        "NC3",
        _one,
        "smallest cosine (classifier row, mean)",
        extreme=True,
    ),
    Metric(metrics.nc3_alignment_mean, "NC3", _one, "mean cosine (classifier row, mean)"),
    Metric(metrics.nc3_frobenius, "NC3", _zero, "|W/|W| - M/|M||²"),
    Metric(metrics.unc3_duality, "NC3", _zero, "variance of cosine (classifier row, mean)"),
    Metric(metrics.nc4_ncc_accuracy, "NC4", _one, "accuracy of the nearest class mean"),
    Metric(metrics.nc4_agreement, "NC4", _one, "nearest mean agrees with the network", "both"),
    Metric(metrics.nc4_cosine_accuracy, "NC4", _one, "accuracy of the nearest mean direction"),
    Metric(
        metrics.nc4_cosine_agreement, "NC4", _one, "nearest direction agrees with network", "both"
    ),
    Metric(metrics.accuracy, "loss", _one, "accuracy of the network"),
    Metric(metrics.loss, "loss", None, "mean cross-entropy"),
    Metric(metrics.balanced_loss, "loss", None, "mean of the losses of the classes"),
    Metric(best_loss, "loss", None, "m, smallest loss for these norms", alias="optimal_loss"),
    Metric(metrics.excess_loss, "loss", _zero, "ε = balanced_loss - m"),
    Metric(metrics.alpha, "loss", None, "α, rms feature norm"),
    Metric(metrics.beta, "loss", None, "β, rms norm of classifier rows"),
    Metric(metrics.margin, "loss", None, "q_min, smallest logit margin", extreme=True),
    Metric(
        metrics.normalised_margin,
        "loss",
        None,
        "margin / its maximum for these norms",
        extreme=True,
    ),
)
"""The metrics of every measurement, in the order of tables."""

EXTRAS: tuple[Metric, ...] = (
    Metric(metrics.nc2_gram_weights, "NC2", _zero, "distance of W Wᵀ from that of an ETF"),
    Metric(metrics.minority_cosine, "NC2", _simplex, "mean cosine of rows of small classes"),
    Metric(metrics.nc3_gram, "NC3", _zero, "distance of W Ṁᵀ from that of an ETF"),
    Metric(metrics.rankme, "rank", _classes_minus_one, "effective rank of the features", "scatter"),
    Metric(
        metrics.stable_rank_weights, "rank", _classes_minus_one, "stable rank of the classifier"
    ),
)
"""Metrics computed only on request: they cost more than a pass over C x d numbers, or apply only to
some data."""

REFERENCE_METRICS: tuple[Metric, ...] = (
    Metric(metrics.reference_ncc_accuracy, "test", _one, "accuracy of the nearest training mean"),
    Metric(
        metrics.reference_ncc_agreement, "test", _one, "nearest training mean agrees with network"
    ),
    Metric(metrics.strong_test_collapse, "test", _zero, "distance² to the training mean / spread"),
    Metric(metrics.weak_test_collapse, "test", _zero, "distance² to the nearest of C points"),
    Metric(metrics.reference_mean_shift, "test", _zero, "shift² of class means / spread"),
    Metric(metrics.reference_spread_ratio, "test", None, "variance within classes / training's"),
)
"""Metrics of a measurement with a reference, whose class means they compare with new data."""

BY_NAME = {metric.name: metric for metric in (*METRICS, *REFERENCE_METRICS)}
"""Metrics of every measurement and of measurements with a reference, by name."""
PARAMETERS = frozenset(View.__dataclass_fields__) - {"remarks", "_results"} | {"statistics"}
"""Parameter names that the function of a plugin's metric may have."""
TARGET_MEANINGS = {
    "target_distance": "distance of the class means to their target",
    "etf_distance": "distance of the class means to a simplex ETF",
    "target_distance_weights": "distance of the classifier to its target",
    "etf_distance_weights": "distance of the classifier to a simplex ETF",
    "target_excess_loss": "loss above that of the target, at most",
}
"""Meaning of each number that records and tables contain in addition to the metrics.
Distances compare centred and normalised Gram matrices."""
SAME_DISTANCE = 1e-3
"""Two distances that differ by less than this count as equal."""


@cache
def plugin_metrics() -> tuple[Metric, ...]:
    """Return the metrics of installed packages (entry point `nclab.metrics`).

    Every measurement computes them. A metric with a name that exists, or with an unknown
    parameter, is skipped with a warning.
    """
    accepted: dict[str, Metric] = {}
    for name, value in plugins.plugins("metrics").items():
        several = isinstance(value, (list, tuple)) and not isinstance(value, Metric)
        for metric in value if several else [value]:
            why = _why_rejected(metric, accepted)
            if why:
                plugins.skip_plugin("metrics", name, why)
            else:
                accepted[metric.name] = metric
    return tuple(accepted.values())


def every_metric() -> Mapping[str, Metric]:
    """Return all metrics by name: `METRICS`, plugins, `EXTRAS` and `REFERENCE_METRICS`."""
    return _by_name(plugin_metrics())


@cache
def _by_name(plugin_metrics: tuple[Metric, ...]) -> Mapping[str, Metric]:
    every = (*METRICS, *plugin_metrics, *EXTRAS, *REFERENCE_METRICS)
    return {metric.name: metric for metric in every}


def _why_rejected(metric: Any, accepted: Collection[str]) -> str:
    if not isinstance(metric, Metric):
        return f"expected a nclab.metrics.catalogue.Metric, got a {type(metric).__name__}"
    if metric.name in _by_name(()) or metric.name in accepted:
        return f"there is a metric {metric.name} already"
    unknown = sorted(set(parameters(metric.function)) - PARAMETERS)
    if unknown:
        return f"expected parameters among {', '.join(sorted(PARAMETERS))}, got {unknown[0]}"
    return ""


def selected_extras(names: str | Collection[str]) -> tuple[Metric, ...]:
    """Return the extra metrics for "default" (none), "all", or a list of names.

    >>> metrics = selected_extras(["rankme", "cdnv"])
    >>> [metric.name for metric in metrics], len(selected_extras("default"))
    (['rankme'], 0)
    """
    if names in ("default", "all"):
        return EXTRAS if names == "all" else ()
    if not isinstance(names, Collection):
        raise DataError(f"Expected metrics='default', 'all' or a list of names, got {names!r}.")
    requested = [names] if isinstance(names, str) else list(names)
    extras = {metric.name for metric in EXTRAS}
    for name in requested:
        if name not in extras and name not in every_metric():
            raise DataError(
                f"Expected metrics='default', 'all' or names among {', '.join(sorted(extras))}, "
                f"got {name!r}."
            )
    return tuple(metric for metric in EXTRAS if metric.name in requested)


def target_progress(to_target: Sequence[float | None], to_etf: Sequence[float | None]) -> str:
    """Describe how far a training has come, from its distances to its target and to the ETF.

    >>> print(target_progress([0.5, 0.16], [0.6, 0.5]))
    68 % of the way to its target (distance 0.5 at first, 0.16 now); it approaches the target rather
    than the simplex ETF (distance 0.6 at first, 0.5 now).
    >>> print(target_progress([0.5, 0.25], [0.5, 0.25]))
    50 % of the way to its target (distance 0.5 at first, 0.25 now), which is the simplex ETF.
    >>> target_progress([0.5], [0.5])
    ''
    """
    pairs = zip(to_target, to_etf, strict=False)
    complete = [(target, etf) for target, etf in pairs if target is not None and etf is not None]
    if len(complete) < 2 or min(complete[0]) <= 0:
        return ""
    (first, first_etf), (last, last_etf) = complete[0], complete[-1]
    share, share_etf = 1 - last / first, 1 - last_etf / first_etf
    distance = f"(distance {first:.2g} at first, {last:.2g} now)"
    words = f"{share:.0%} of the way to its target".replace("%", " %")
    if share <= 0:
        words = "No nearer to its target than at first"
    words = f"{words} {distance}"
    if max(abs(target - etf) for target, etf in complete) < SAME_DISTANCE:
        return f"{words}, which is the simplex ETF."
    etf_distance = f"(distance {first_etf:.2g} at first, {last_etf:.2g} now)"
    if share > share_etf and last < last_etf:
        return f"{words}; it approaches the target rather than the simplex ETF {etf_distance}."
    if share_etf > share and last_etf < last:
        return f"{words}; it is nearer to the simplex ETF {etf_distance}."
    return f"{words}. For comparison, the simplex ETF {etf_distance}."
