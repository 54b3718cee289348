"""Results of one layer: scalars, arrays per class, groups of classes, certificates, targets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError, NclabError
from nclab.measurement.display import strata_table
from nclab.metrics.catalogue import BY_NAME, EXTRAS
from nclab.metrics.nc1_variability import within_trace
from nclab.statistics import ClassMoments, SecondPass
from nclab.text import Printed
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.count_aware import (
    CountAwareBounds,
    bounds_from_probabilities,
    count_aware_bounds,
)
from nclab.theory.certificates.norms_and_loss import as_number
from nclab.theory.targets.dispatch import target, target_of
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.given_norms import target_path
from nclab.theory.targets.result import Target
from nclab.theory.targets.setting import check_setting

DECILES = 10
"""Default number of groups of classes."""
PAIRS_SHOWN = 100
"""Largest number of classes for which records contain the C x C cosines. For more classes, tables
name the closest pairs."""
SHOWN_WITH_CERTIFICATE = ("nc3_alignment_min", "min_intra", "mean_intra", "max_inter", "accuracy")
"""Measured scalars that a certificate shows next to its guarantees."""
MOST_CLASSES = 1000
"""Largest number of classes for which the distance to the optimum is computed automatically."""
ADVICE = "call collapse.target() and collapse.distance_to() to compute it"


class Interval(NamedTuple):
    """A 95 % interval, and the finite-sample bias that was subtracted from its centre."""

    low: float
    high: float
    bias: float = 0.0

    @property
    def half(self) -> float:
        """Half the width of the interval, the number shown after ±."""
        return (self.high - self.low) / 2


class ClassPair(NamedTuple):
    """Two classes and the cosine between their mean directions."""

    one: int
    other: int
    cosine: float


class OptimumDistance(NamedTuple):
    """Distance of a layer to the optimum of cross-entropy for its class counts and norms."""

    distance: TargetDistance
    weight_decay: tuple[float, float]
    """Weight decays (λ_W, λ_H) of classifier and features at which the regularised loss has this
    optimum."""

    def values(self) -> dict[str, float | None]:
        """Return the distances by the names that tables and records use."""
        distance = self.distance
        return {
            "target_distance": distance.means,
            "etf_distance": distance.etf["means"],
            "target_distance_weights": distance.classifier,
            "etf_distance_weights": distance.etf["classifier"],
            "target_excess_loss": distance.excess_loss,
        }


@dataclass(frozen=True, eq=False, repr=False)
class LayerResults:
    """Scalars and per-class arrays of one layer, with a reason for every missing scalar.

    A scalar that could not be measured is None, and `notes` gives the reason under its name.
    Per-class arrays follow the order of `classes`.
    """

    layer: str | None
    """Name of the layer, or None for plain arrays."""
    num_classes: int
    dim: int
    samples: int
    classes: tuple[int, ...]
    """Numbers of the measured classes. Classes without samples may be missing."""
    zero_features: int
    """Number of feature vectors that are exactly zero. They have no direction."""
    ignored: int
    """Number of rows skipped because their label is `ignore_index`."""
    bias_norm: float
    """Norm of the classifier's bias minus the mean of its entries; 0 without a bias."""
    values: Mapping[str, float | None]
    """Scalars by name, in the order of the tables. Each is also an attribute."""
    closest_pairs: tuple[ClassPair, ...]
    """The ten pairs of classes with the largest inter-class cosines, largest first."""
    counts: Tensor
    """(C,) number of samples of each class."""
    intra_cosine: Tensor
    """(C,) intra-class cosine."""
    variances: Tensor
    """(C,) mean squared distance to the class mean."""
    class_alpha: Tensor
    """(C,) root mean square of the feature norms."""
    class_beta: Tensor | None
    """(C,) norm of the centred classifier row."""
    class_loss: Tensor | None
    """(C,) mean cross-entropy."""
    nc3_alignment: Tensor | None
    """(C,) cosine of the centred classifier row and the class mean."""
    notes: Mapping[str, str]
    """Name of a scalar -> why it is missing or infinite."""
    warnings: tuple[str, ...]
    """Sentences about numbers that may mislead, and why."""
    moments: ClassMoments
    """Class statistics from which the scalars were computed."""
    second_pass: SecondPass | None
    """Sums of the second pass over the features, or None if there was no second pass."""
    class_names: tuple[str, ...] | None = None
    """Names of `classes`, if names were given."""
    split: str | None = None
    """Name of the data: train, test, ..."""
    intervals: Mapping[str, Interval] | None = None
    """Name of a scalar -> its 95 % interval; None unless measured with `intervals=True`."""
    no_interval: Mapping[str, str] = field(default_factory=dict)
    """Name of a scalar -> why it has no interval."""
    shuffled_labels: Mapping[str, float | None] | None = None
    """Scalars under shuffled labels; None unless measured with `shuffled_labels=True`."""
    weight: Tensor | None = None
    """(C, d) rows of the classifier that reads the layer."""
    class_accuracy: Tensor | None = None
    """(C,) share of samples that the classifier predicts correctly."""
    left_out: tuple[int, ...] = ()
    """Classes that were left out because they have fewer samples than `min_count`."""
    residuals: Tensor | None = None
    """(C, C) row c: the classifier's probabilities minus the one-hot label, summed over the samples
    of class c. Kept for up to d classes and at most 1000, or up to 4096 with metrics="all"."""
    non_negative: bool = False
    """Whether no class mean direction has a negative entry, as after a ReLU.

    Then no inter-class cosine can be negative. Only centred cosines can reach -1/(C - 1)."""
    sentences: tuple[str, ...] = ("",)
    """Meaning of the numbers in plain words; the first sentence is the verdict."""
    frequency_groups: "Strata | None" = None
    """Ten groups of classes by frequency; None unless there are many classes of unequal size."""

    @property
    def max_inter_pair(self) -> tuple[int, int]:
        """The two classes with the largest inter-class cosine."""
        return self.closest_pairs[0][:2]

    def __getattr__(self, name: str) -> float | None:
        values: Mapping[str, float | None] = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        if name in {metric.name for metric in EXTRAS}:
            raise AttributeError(f"Collapse has no {name!r}. Measure with metrics='all'.")
        if name in BY_NAME:
            raise AttributeError(f"Collapse has {name!r} only if measured with reference=.")
        similar = get_close_matches(name, values, n=1)
        hint = f"Did you mean {similar[0]}?" if similar else "Its metrics are the keys of .values."
        raise AttributeError(f"Collapse has no {name!r}. {hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.values})

    def name_of(self, number: int) -> str:
        """Return the name of a measured class, or its number as text if classes have no names."""
        if self.class_names is None:
            return str(number)
        return self.class_names[self.classes.index(number)]

    def certificate(self, delta: float | None = None, *, pairs: bool = True) -> Certificate:
        """Return the certificate: what norms and losses of this layer guarantee, for each class.

        Needs a classifier and samples of every class. Costs milliseconds, and up to seconds for
        the bound on pairs of classes and the optimum of unequal counts. With `pairs=False` both
        are omitted; the guarantee from the mean loss over samples then uses the network's own
        probabilities.

        >>> import nclab
        >>> features = [[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]
        >>> weight = [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1, 0, 1], weight=weight)
        >>> guaranteed = collapse.certificate().class_intra_lower
        >>> bool((guaranteed <= collapse.intra_cosine.numpy()).all())
        True
        """
        for name in ("balanced_loss", "optimal_loss"):
            if getattr(self, name) is None:
                raise DataError(
                    f"Expected a measurement with classifier and loss, but {name} is missing: "
                    f"{self.notes[name]}."
                )
        measured: Any = self  # with these two scalars, none of the fields below is None
        certificate = certify(
            *(measured.num_classes, measured.alpha, measured.beta, measured.balanced_loss, delta),
            class_losses=measured.class_loss.cpu().numpy(),
            class_alphas=measured.class_alpha.cpu().numpy(),
            class_betas=measured.class_beta.cpu().numpy(),
            bias_norm=self.bias_norm,
            pairs=pairs,
        )
        shown = {name: getattr(self, name) for name in SHOWN_WITH_CERTIFICATE}
        shown["within_share"] = within_trace(self.moments) / mean_square_norm(self)
        return replace(certificate, measured=shown, count_aware=_count_aware(self, solve=pairs))

    def target(
        self,
        weight_decay: float | tuple[float, float] | None = None,
        *,
        loss: str = "cross_entropy",
        **options: Any,
    ) -> Target:
        """Return the geometry that this layer and its classifier should reach in training.

        It follows from class counts, dimension and bias. Without `weight_decay` it has the measured
        norms. Pass the weight decay of the classifier, or both as (weights, features). If you pass
        one, that of the features follows from the norms, because both penalties are equal at an
        optimum. `options` are those of `nclab.target`.

        >>> import nclab
        >>> features, weight = [[2.0, 0.0], [-2.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1], weight=weight)
        >>> collapse.target().geometry, round(collapse.distance_to(collapse.target()).means, 9)
        ('simplex ETF', 0.0)
        """
        rows = _square_norm(self)
        setting: dict[str, Any] = {"counts": self.counts.cpu(), "dim": self.dim, "loss": loss}
        setting |= {"bias": 0.0 if self.bias_norm > 0 else None, **options}
        if weight_decay is None:
            norms = math.sqrt(mean_square_norm(self)), math.sqrt(rows / self.num_classes)
            return target(**setting, norms=norms)
        if isinstance(weight_decay, tuple | list):
            return target(**setting, weight_decay=weight_decay)
        inferred = _feature_weight_decay(self, as_number("weight_decay", weight_decay))
        solution = target(**setting, weight_decay=(weight_decay, inferred))
        note = f"weight decay of the features inferred from the balance of norms: {inferred:.4g}"
        return replace(solution, notes=(note, *solution.notes))

    def distance_to(self, target: Target) -> TargetDistance:
        """Return the distances of class means, classifier and loss to a target and the ETF."""
        if not isinstance(target, Target):
            raise DataError(f"Expected a Target of nclab.target, got a {type(target).__name__}.")
        setting = target.setting
        comparable = setting.loss == "cross_entropy" and setting.targets is None
        return distance_to(
            target,
            self.moments.means,
            self.weight,
            self.loss if comparable else None,
            counts=self.counts,
        )

    @property
    def optimum_distance(self) -> OptimumDistance | None:
        """Distance to the optimum of cross-entropy for the measured class counts and norms.

        None without a classifier, or if that optimum takes long to compute; `to_dict` gives the
        reason in its notes. `target` computes optima of other settings.
        """
        return self._optimum_distance[0]

    @cached_property
    def _optimum_distance(self) -> tuple[OptimumDistance | None, str]:
        """Distance to the optimum, or the reason why it is missing."""
        try:
            return _distance_to_optimum(self), ""
        except NclabError as error:
            return None, "" if self.weight is None else str(error)


def _count_aware(results: LayerResults, *, solve: bool) -> CountAwareBounds | None:
    """Return the guarantees that follow from the mean loss over samples, for unequal class counts.

    With `solve` they are computed from the distance to the optimum for these counts, otherwise from
    the network's own probabilities. Return None if these were not kept, and for equal counts, for
    which the other guarantees hold.
    """
    if len(results.counts.unique()) == 1:
        return None
    measured: Any = results
    counts, bias_norm = results.counts.cpu(), results.bias_norm
    product = math.sqrt(mean_square_norm(results)) * measured.beta
    if solve:
        return count_aware_bounds(counts, product, measured.loss, bias=bias_norm > 0)
    if results.residuals is None:
        return None
    return bounds_from_probabilities(
        counts, results.residuals, product, measured.loss, bias_norm=bias_norm
    )


def mean_square_norm(results: LayerResults) -> float:
    """Return the mean over samples of the squared feature norm."""
    square_norms = results.class_alpha.square() * results.counts
    return float(square_norms.sum() / results.counts.sum())


def _square_norm(results: LayerResults) -> float:
    """Return the squared norm of the classifier; raise if there is none."""
    if results.weight is None:
        raise DataError("Expected a measurement with a classifier, got none. Pass weight=.")
    return float(results.weight.double().square().sum())


def _feature_weight_decay(results: LayerResults, weight_decay: float) -> float:
    """Return the weight decay of the features, given that of the classifier.

    At an optimum both penalties are equal: weight decay times squared norm of W, and of H.
    """
    rows, features = _square_norm(results), mean_square_norm(results) * results.samples
    if weight_decay and not min(rows, features) > 0:
        raise DataError(
            "Expected features and a classifier that are not zero, because their norms determine "
            "the weight decay of the features, got zeros. Pass weight_decay=(weights, features)."
        )
    return weight_decay * rows / features if features else 0.0


def _distance_to_optimum(results: LayerResults) -> OptimumDistance:
    """Return the distance to the optimum; raise DataError if computing it is impossible or slow.

    For equal counts the optimum has a closed form. For other counts, optima are computed for some
    norms, mostly two to four and at most 88, and kept for all measurements with these counts.
    """
    C = results.num_classes
    if results.weight is None or results.loss is None or results.beta is None:
        raise DataError("no classifier")
    if results.dim < C - 1:
        raise DataError(f"for d = {results.dim} < C - 1 the optimum takes a long search: {ADVICE}")
    if C > MOST_CLASSES:
        raise DataError(f"more than {MOST_CLASSES} classes: {ADVICE}")
    counts = results.counts.cpu().double()
    alpha = math.sqrt(mean_square_norm(results))
    norms = (alpha, results.beta)
    if min(norms) <= 0:
        raise DataError("features or classifier are zero")
    bias = 0.0 if results.bias_norm > 0 else None
    if len(counts.unique()) == 1:
        optimum = target(counts=counts, norms=norms, bias=bias)
    else:
        setting = check_setting(None, counts, norms=norms, bias=bias)
        path = target_path(tuple(counts.tolist()), bias is not None)
        optimum = target_of(setting, path.at(setting.norm))
    rows = results.weight - results.weight.mean(0)  # like beta: logits up to a constant
    distance = distance_to(optimum, results.moments.means, rows, results.loss, counts=counts)
    ratio = results.beta / alpha * math.sqrt(C / results.samples)  # |W| / |H|
    return OptimumDistance(distance, (optimum.weight / ratio, optimum.weight * ratio))


# Groups of classes


class Stratum(NamedTuple):
    """Classes with about the same number of samples. Averages are over samples."""

    classes: int
    samples: int
    least: int
    """Number of samples of the smallest class."""
    most: int
    """Number of samples of the largest class."""
    within: float | None
    """Variance within these classes, divided by tr Σ_B of all classes; None if every class of the
    group has one sample."""
    ncc_accuracy: float | None
    """Share of samples whose nearest class mean is that of their class."""
    accuracy: float | None
    loss: float | None
    alpha: float
    """Root mean square of the feature norms."""
    beta: float | None
    """Root mean square, over classes, of the norms of the centred classifier rows."""
    alignment: float | None
    """Mean over classes of the cosine between classifier row and class mean."""


class Strata(Printed, tuple[Stratum, ...]):
    """Groups of classes by frequency, the most frequent classes first."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one row per group, for `pandas.DataFrame(strata.to_dicts())`."""
        return [group._asdict() for group in self]

    def __rich__(self) -> Any:
        return strata_table(self.to_dicts())


def strata(results: LayerResults, groups: int = DECILES) -> Strata:
    r"""Sort classes into groups with about equally many samples, and average within each group.

    All samples are lined up, those of the largest classes first, and cut into groups of equal
    length. Classes with the same number of samples all go to one group: the group of the middle one
    of all their samples. Empty groups are omitted. The variance within classes does not depend on
    the size of the classes,

    $$\frac{\sum_c n_c\sigma_c^2}{\sum_c (n_c-1)} \Big/ \operatorname{tr}\Sigma_B,$$

    because the n samples of a class show only 1 - 1/n of its variance. The accuracy of nearest
    class means does depend on size: the only sample of a class is always nearest to its class mean.
    """
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise DataError(f"Expected groups=1 or more, got {groups!r}.")
    sizes, size_index, repeats = results.counts.unique(return_inverse=True, return_counts=True)
    shares = (sizes * repeats).double().flip(0)
    middles = (shares.cumsum(0) - shares / 2) / shares.sum()
    group_of = (middles * groups).long().clamp_max(groups - 1).flip(0)[size_index]  # (C,)
    present = group_of.unique().tolist()
    return Strata(_stratum(results, group_of == group) for group in present)


def _stratum(results: LayerResults, chosen: Tensor) -> Stratum:
    counts = results.counts[chosen]
    by_samples = counts.double()
    by_classes = torch.ones_like(by_samples)

    def mean(values: Tensor | None, weights: Tensor = by_samples) -> float | None:
        return None if values is None else float((values[chosen] * weights).sum() / weights.sum())

    nearest = None
    second_pass = results.second_pass
    if second_pass is not None and not second_pass.means_coincide:
        nearest = second_pass.nearest_correct.double() / second_pass.counts
    degrees_of_freedom = int(counts.sum()) - len(counts)
    between = float(results.moments.centred_means.square().sum(1).mean())
    spread = float((results.variances[chosen] * by_samples).sum())
    alpha = mean(results.class_alpha.square())
    beta_rows = None if results.class_beta is None else results.class_beta.square()
    beta = mean(beta_rows, by_classes)
    assert alpha is not None
    return Stratum(
        classes=len(counts),
        samples=int(counts.sum()),
        least=int(counts.min()),
        most=int(counts.max()),
        within=spread / degrees_of_freedom / between if degrees_of_freedom and between else None,
        ncc_accuracy=mean(nearest),
        accuracy=mean(results.class_accuracy),
        loss=mean(results.class_loss),
        alpha=alpha**0.5,
        beta=None if beta is None else beta**0.5,
        alignment=mean(results.nc3_alignment, by_classes),
    )
