"""Detection of data for which 95 % intervals are too short: a few samples carry most of a sum."""

import math
from collections.abc import Collection

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nclab.statistics import ClassMoments

HEAVY_KURTOSIS = 3.7
"""Features have heavy tails if their kurtosis within classes is above this. It is 3 for normal
features; a Student distribution with 3 degrees of freedom has infinite kurtosis."""
SKEWED_SPREAD = 0.1
"""Features have heavy tails only if the skewness of the summed squared distances to the class means
is also above this. It vanishes for many samples, unless the tails are heavy."""
SKEWED_LOSS = 0.4
"""Losses have heavy tails if the skewness of their sum is above this. About six misclassified
samples give this value. A skewness g lowers the coverage of a t interval by about 0.25 g^2."""
OF_SPREAD = frozenset({"nc1_trace_pinv", "nc1_trace_ratio", "cdnv", "alpha", "optimal_loss"})
OF_LOSS = frozenset({"loss", "balanced_loss", "excess_loss"})
NOT_CHECKED = (
    "Whether the features have heavy tails, for which 95 % intervals are too short, was not "
    "checked, because there was no second pass."
)
BLOCK = 4096
"""Number of rows that are processed at a time."""


class SpreadTails:
    r"""Kurtosis of the features within classes, and skewness of the sum of squared distances.

    Samples have squared distances $r_i^2$ to their class mean, with mean $v_c$ in class c. The
    skewness of their sum is $\sum_i z_i^3 / (\sum_i z_i^2)^{3/2}$ with $z_i = r_i^2 - v_{c(i)}$.

    `moments` are the complete moments of the first pass.
    """

    def __init__(self, moments: ClassMoments) -> None:
        present = (moments.counts > 0).nonzero().flatten()
        self._index = torch.full_like(moments.counts, -1)
        self._index[present] = torch.arange(len(present), device=present.device)
        moments = moments.select(present) if moments.missing else moments
        self._counts, self._means = moments.counts.double(), moments.means
        self._scale = math.sqrt(float(moments.variances.max()))
        self._variances = (moments.variances.sqrt() / self._scale).square()
        self._squares = torch.zeros_like(self._means)  # (C, d)
        self._fourths, self._powers = 0.0, (0.0, 0.0)

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Add a batch of the second pass."""
        if not self._scale > 0:
            return
        for block, numbers in zip(rows.split(BLOCK), classes.split(BLOCK), strict=True):
            index = self._index[numbers]
            squares = ((block.to(self._means) - self._means[index]) / self._scale).square_()
            gaps = squares.sum(1) - self._variances[index]
            self._squares.index_add_(0, index, squares)
            self._fourths += float(squares.square().sum())
            second, third = self._powers
            self._powers = second + float(gaps.square().sum()), third + float(gaps.pow(3).sum())

    @property
    def kurtosis(self) -> float:
        """Kurtosis of the coordinates within classes, weighted by squared variance; or nan.

        It is a quotient. For normal features, also in small classes, the expected numerator is
        3 times the expected denominator.
        """
        corrected = (self._counts - 1) / (self._counts + 1) / self._counts
        squared_variances = float((self._squares.square().sum(1) * corrected).sum())
        return self._fourths / squared_variances if squared_variances > 0 else math.nan

    @property
    def skewness(self) -> float:
        """Skewness of the sum of squared distances; nan if they are all equal."""
        return _skewness(*self._powers)


class LossTails:
    """Skewness of the sum of all losses, computed from per-class sums of powers of the losses."""

    def __init__(self, counts: Tensor) -> None:
        self._powers = torch.zeros(len(counts), 4, dtype=torch.float64, device=counts.device)

    def add(self, logits: Tensor, classes: Tensor) -> None:
        """Add a batch of (B, C) logits; C may be larger than in earlier batches."""
        classes = classes.to(self._powers.device)
        if logits.shape[1] > len(self._powers):
            more = self._powers.new_zeros(logits.shape[1] - len(self._powers), 4)
            self._powers = torch.cat([self._powers, more])
        for block, numbers in zip(logits.split(BLOCK), classes.split(BLOCK), strict=True):
            losses = cross_entropy(block.to(self._powers), numbers, reduction="none")
            powers = torch.stack([losses**power for power in range(4)], 1)
            self._powers.index_add_(0, numbers, powers)

    def skewness(self, counts: Tensor) -> float:
        """Return the skewness of the sum of all losses; nan for equal losses."""
        present = (counts > 0).nonzero().flatten()
        count, sums, squares, cubes = self._powers[present].T
        means = sums / count
        second = squares - sums * means
        third = cubes - 3 * squares * means + 2 * sums * means.square()
        if float(second.sum()) <= 1e-9 * float(squares.sum()):  # mere rounding
            return math.nan
        return _skewness(float(second.sum()), float(third.sum()))


def _skewness(second: float, third: float) -> float:
    return third / second**1.5 if second > 0 else math.nan


def heavy_tail_warnings(
    names: Collection[str], spread: SpreadTails | None, losses: LossTails | None, counts: Tensor
) -> list[str]:
    """Return warnings about intervals whose true coverage is lower than 95 %.

    Args:
        names: metrics that have an interval, in the order of tables.
        spread: None if there was no second pass.
        losses: None without a classifier.
        counts: number of samples of each class.
    """
    warnings = []
    of_spread = [name for name in names if name in OF_SPREAD | OF_LOSS]
    of_loss = [name for name in names if name in OF_LOSS]
    if of_spread and spread is None:
        warnings.append(NOT_CHECKED)
    elif of_spread and spread is not None:
        kurtosis = spread.kurtosis
        if kurtosis > HEAVY_KURTOSIS and spread.skewness > SKEWED_SPREAD:
            warnings.append(
                "Heavy tails: the true coverage of the 95 % intervals is lower for "
                f"{', '.join(of_spread)}. The kurtosis of the features within classes is "
                f"{kurtosis:.3g} (3 for normal features)."
            )
            return warnings
    if of_loss and losses is not None and losses.skewness(counts) > SKEWED_LOSS:
        warnings.append(
            f"Heavy tails: the true coverage of the 95 % intervals is lower for "
            f"{', '.join(of_loss)}. A few samples carry most of the variance of the loss."
        )
    return warnings
