"""Results of one layer as plain data, and their averages over groups of classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.display import strata_table
from nclab.metrics.catalogue import BY_NAME, EXTRAS
from nclab.statistics import ClassMoments, SecondPass
from nclab.statistics.logits import ResidualMoments
from nclab.text import Printed

DECILES = 10
"""Default number of groups of classes."""
PAIRS_SHOWN = 100
"""Largest number of classes for which records contain the C x C cosines. For more classes, tables
name the closest pairs."""


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
    """Norm of the classifier's bias around its mean; 0 without a bias."""
    values: Mapping[str, float | None]
    """Scalars by name, in the order of the tables. Each is also an attribute."""
    closest_pairs: tuple[ClassPair, ...]
    """The ten pairs of classes with the largest inter-class cosines, largest first."""
    counts: Tensor
    """(C,) samples per class."""
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
    """Reasons to read the numbers with care."""
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
    residuals: ResidualMoments | None = None
    """Sums of the classifier's probabilities minus the labels. They are kept for up to d classes
    and at most 1000, or for up to 4096 with metrics="all"."""
    non_negative: bool = False
    """Whether no class mean direction has a negative entry, as after a ReLU.

    Then no inter-class cosine can be negative. Only centred cosines can reach -1/(C - 1)."""
    sentences: tuple[str, ...] = ("",)
    """What the numbers mean, in plain words; the first sentence is the verdict."""
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


class Stratum(NamedTuple):
    """Classes with about the same number of samples. Averages are over samples."""

    classes: int
    samples: int
    least: int
    """Samples of the smallest class."""
    most: int
    """Samples of the largest class."""
    within: float | None
    """Variance within classes over tr Σ_B of all classes; None if every class has one sample."""
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

    Classes with the same number of samples are always in the same group: the group that contains
    the middle of their share, counted from the largest classes. Empty groups are omitted. The
    variance within classes does not depend on the size of the classes,

    $$\frac{\sum_c n_c\sigma_c^2}{\sum_c (n_c-1)} \Big/ \operatorname{tr}\Sigma_B,$$

    because a class of n samples shows only 1 - 1/n of its variance. The accuracy of nearest class
    means does depend on size: the only sample of a class is always nearest to its class mean.
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
