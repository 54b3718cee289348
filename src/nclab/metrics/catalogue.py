"""The metrics by name: their function, group, value at collapse and one line on what they say."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from nclab import metrics, plugins
from nclab.errors import DataError
from nclab.metrics.cross_entropy import best_loss
from nclab.metrics.rows import simplex_cosine as _simplex
from nclab.metrics.view import View, parameters
from nclab.statistics import SecondPass


class Metric(NamedTuple):
    """One scalar of `Collapse`."""

    function: Callable[..., float]
    """Of the statistics that its parameters name, see `View`."""
    group: str
    ideal: Callable[[int], float] | None
    """Value at an exact simplex ETF of C classes with self-dual weights; None if there is none."""
    meaning: str
    also: Literal["scatter", "both"] | None = None
    """What its parameters do not say: that the moments need a scatter, or the second pass the
    classifier's decisions."""
    alias: str | None = None
    """Its name, where that is not the function's."""
    extreme: bool = False
    """Whether it is a smallest or largest value, of which a jackknife knows no error."""

    @property
    def name(self) -> str:
        """As an attribute of `Collapse` and in every table and record."""
        return self.alias or self.function.__name__

    @property
    def needs(self) -> str:
        """What it is computed from: features, scatter, second pass, weight or both of these."""
        names = parameters(self.function)
        by_name = "second pass" if names & {"look", "spread"} else "features"
        return self.also or ("weight" if names & {"weight", "logits"} else by_name)

    @property
    def of_weights(self) -> bool:
        """Whether it sees the classifier alone, and no samples."""
        return not parameters(self.function) - {"weight", "classes"}


def _zero(num_classes: int) -> float:
    return 0.0


def _one(num_classes: int) -> float:
    return 1.0


def _modes(num_classes: int) -> float:
    return num_classes - 1.0


def _centred(cosine: Callable[[SecondPass], float]) -> Callable[[SecondPass], float]:
    """A metric of cosines for features around the global mean."""

    def around_centre(look: SecondPass) -> float:
        """The same cosine of the features around their global mean.

        Invariant to: rotation, translation, scale.
        """
        return cosine(look)

    around_centre.__name__ = f"centred_{cosine.__name__}"
    return around_centre


METRICS: tuple[Metric, ...] = (
    Metric(metrics.min_intra, "cosine", _one, "least alike features of one class", extreme=True),
    Metric(metrics.mean_intra, "cosine", _one, "features of one class, on average"),
    Metric(metrics.max_inter, "cosine", _simplex, "most alike pair of classes", extreme=True),
    Metric(metrics.mean_inter, "cosine", _simplex, "pairs of classes, on average"),
    Metric(
        _centred(metrics.min_intra), "cosine", _one, "min_intra around the centre", extreme=True
    ),
    Metric(_centred(metrics.mean_intra), "cosine", _one, "mean_intra around the centre"),
    Metric(
        _centred(metrics.max_inter), "cosine", _simplex, "max_inter around the centre", extreme=True
    ),
    Metric(_centred(metrics.mean_inter), "cosine", _simplex, "mean_inter around the centre"),
    Metric(metrics.nc1_trace_pinv, "NC1", _zero, "tr(Σ_W Σ_B†)/C", "scatter"),
    Metric(metrics.nc1_trace_ratio, "NC1", _zero, "tr Σ_W / tr Σ_B"),
    Metric(metrics.cdnv, "NC1", _zero, "variance over squared distance of means"),
    Metric(metrics.nc1_within_variation, "NC1", _zero, "distance to own mean / centre"),
    Metric(metrics.nc2_norm_variation_means, "NC2", _zero, "norms of class means differ by"),
    Metric(metrics.nc2_norm_variation_weights, "NC2", _zero, "norms of classifiers differ by"),
    Metric(metrics.nc2_equiangularity_means, "NC2", _zero, "cosines of means off -1/(C-1) by"),
    Metric(metrics.nc2_equiangularity_weights, "NC2", _zero, "cosines of classifiers, same"),
    Metric(metrics.nc2_cosine_std_means, "NC2", _zero, "spread of the cosines of means"),
    Metric(metrics.nc2_cosine_std_weights, "NC2", _zero, "spread of those of classifiers"),
    Metric(metrics.nc0_weight_mean, "NC2", _zero, "|sum of classifiers| / largest"),
    Metric(metrics.nc3_self_duality, "NC3", _zero, "mean and classifier directions apart by"),
    Metric(metrics.nc3_alignment_min, "NC3", _one, "worst cos(classifier, mean)", extreme=True),
    Metric(metrics.nc3_alignment_mean, "NC3", _one, "average cos(classifier, mean)"),
    Metric(metrics.nc3_frobenius, "NC3", _zero, "|W/|W| - M/|M||²"),
    Metric(metrics.unc3_duality, "NC3", _zero, "variance of cos(classifier, centred mean)"),
    Metric(metrics.nc4_ncc_accuracy, "NC4", _one, "nearest class mean is right"),
    Metric(metrics.nc4_agreement, "NC4", _one, "... and decides as the network", "both"),
    Metric(metrics.nc4_cosine_accuracy, "NC4", _one, "nearest mean direction is right"),
    Metric(metrics.nc4_cosine_agreement, "NC4", _one, "... and decides as the network", "both"),
    Metric(metrics.accuracy, "loss", _one, "the network is right"),
    Metric(metrics.loss, "loss", None, "mean cross-entropy"),
    Metric(metrics.balanced_loss, "loss", None, "mean over classes of their loss"),
    Metric(best_loss, "loss", None, "m, the best for these norms", alias="optimal_loss"),
    Metric(metrics.excess_loss, "loss", _zero, "ε = balanced_loss - m"),
    Metric(metrics.alpha, "loss", None, "α, rms feature norm"),
    Metric(metrics.beta, "loss", None, "β, rms classifier norm"),
    Metric(metrics.margin, "loss", None, "q_min, smallest logit gap", extreme=True),
    Metric(metrics.normalised_margin, "loss", None, "margin / largest for the norms", extreme=True),
)
"""What every measurement has, in the order in which tables show them."""

EXTRAS: tuple[Metric, ...] = (
    Metric(metrics.directional_cdnv, "NC1", _zero, "variance along the way to another class"),
    Metric(metrics.ncc_error_bound, "NC1", _zero, "... and the errors of NC4 that it allows"),
    Metric(metrics.gnc2_uniformity, "NC2", _zero, "spread of log distances of means"),
    Metric(metrics.nc2_gram_weights, "NC2", _zero, "Gram matrix of classifiers off an ETF's"),
    Metric(metrics.minority_cosine, "NC2", _simplex, "classifiers of the small classes"),
    Metric(metrics.nc3_gram, "NC3", _zero, "logits of the means off an ETF's"),
    Metric(metrics.rankme, "rank", _modes, "directions that the features use", "scatter"),
    Metric(metrics.lidar, "rank", None, "directions that tell classes apart", "scatter"),
    Metric(metrics.stable_rank_weights, "rank", _modes, "directions of the classifier"),
)
"""What costs more than a pass over C x d numbers or only some data have; to be asked for."""

REFERENCE_METRICS: tuple[Metric, ...] = (
    Metric(metrics.reference_ncc_accuracy, "test", _one, "nearest train mean is right"),
    Metric(metrics.reference_ncc_agreement, "test", _one, "... and decides as the network"),
    Metric(metrics.strong_test_collapse, "test", _zero, "distance² to own train mean / spread"),
    Metric(metrics.weak_test_collapse, "test", _zero, "... to the nearest of any C points"),
    Metric(metrics.reference_mean_shift, "test", _zero, "shift² of class means / spread"),
    Metric(metrics.reference_spread_ratio, "test", None, "variance within classes / train's"),
)
"""Measured only beside a reference: other data against the class means of training."""

BY_NAME = {metric.name: metric for metric in (*METRICS, *REFERENCE_METRICS)}
"""Of what every measurement has, and those beside a reference."""
TAKEN = frozenset(View.__dataclass_fields__) - {"spread", "remarks", "_results"} | {"statistics"}
"""What the parameters of a plugin's metric may be called."""


@cache
def plugged() -> tuple[Metric, ...]:
    """The metrics of installed packages, `nclab.metrics`, which every measurement has too.

    One whose name is taken or whose parameters nothing fills is warned of and left out.
    """
    found: dict[str, Metric] = {}
    for name, given in plugins.plugins("metrics").items():
        for metric in [given] if isinstance(given, Metric) else _several(given):
            why = _why_refused(metric, found)
            if why:
                plugins.skip_plugin("metrics", name, why)
            else:
                found[metric.name] = metric
    return tuple(found.values())


def every_metric() -> Mapping[str, Metric]:
    """All metrics by name: of every measurement, of a reference, extras, plugins."""
    more = plugged()
    return _by_name(more) if more else _OURS  # pages ask by the row


def _by_name(plugged: tuple[Metric, ...]) -> Mapping[str, Metric]:
    ones = (*METRICS, *plugged, *EXTRAS, *REFERENCE_METRICS)
    return {metric.name: metric for metric in ones}


_OURS = _by_name(())


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _why_refused(metric: Any, found: Collection[str]) -> str:
    if not isinstance(metric, Metric):
        return f"expected a nclab.metrics.catalogue.Metric, got a {type(metric).__name__}"
    ours = {one.name for one in (*METRICS, *EXTRAS, *REFERENCE_METRICS)}
    if metric.name in ours or metric.name in found:
        return f"there is a metric {metric.name} already"
    unknown = sorted(set(parameters(metric.function)) - TAKEN)
    if unknown:
        return f"expected parameters among {', '.join(sorted(TAKEN))}, got {unknown[0]}"
    return ""


def chosen(names: str | Collection[str]) -> tuple[Metric, ...]:
    """The extras meant by "default" (none), "all", or a list of their names.

    >>> [metric.name for metric in chosen(["rankme", "cdnv"])], len(chosen("default"))
    (['rankme'], 0)
    """
    if names in ("default", "all"):
        return EXTRAS if names == "all" else ()
    if not isinstance(names, Collection):
        raise DataError(f"Expected metrics='default', 'all' or a list of names, got {names!r}.")
    wanted = [names] if isinstance(names, str) else list(names)
    known = {metric.name for metric in EXTRAS}
    for name in wanted:
        if name not in known and name not in every_metric():
            raise DataError(
                f"Expected metrics='default', 'all' or names among {', '.join(sorted(known))}, "
                f"got {name!r}."
            )
    return tuple(metric for metric in EXTRAS if metric.name in wanted)
