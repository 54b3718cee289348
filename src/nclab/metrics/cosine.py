"""Intra- and inter-class cosine similarity, computed from the mean unit feature of each class.

A `ClassMoments` gives the cosines of the features themselves, a `SecondPass` those of the features
minus their global mean.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.view import PairReducer, PairTile, above_diagonal, reduce_pairs, shared
from nclab.statistics import ClassMoments, SecondPass

HasUnitMeans = ClassMoments | SecondPass
"""Statistics that contain, for each class, the mean unit feature, the number of samples, and the
number of zero features, which have no direction."""
REPORTED = 10
"""Number of closest pairs of classes that a measurement reports."""


@shared
def intra_cosine(statistics: HasUnitMeans) -> Tensor:
    r"""Average cosine of two features of the same class, for every class.

    $$\mathrm{intra}_c = \tfrac{1}{n_c^2}\sum_{i,j}\cos(h_{c,i}, h_{c,j}) = \|\bar h_c\|^2$$

    Source: pan2023, Lemma 2.4.4
    Range: [1/n_c, 1] without zero vectors; 1 at collapse.
    Invariant to: rotation, scale of every single feature.

    The average includes i = j, as pan2023 defines it; see `intra_cosine_offdiagonal`.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [0.0, 3.0], [0.0, -1.0]], [0, 0, 1])
    >>> intra_cosine(moments).tolist()
    [0.5, 1.0]
    """
    return statistics.unit_means.square().sum(1)


def intra_cosine_offdiagonal(statistics: HasUnitMeans) -> Tensor:
    r"""Average cosine of two different features of the same class, for every class.

    $$\frac{n_c\,\mathrm{intra}_c - 1}{n_c - 1}$$

    Source: pan2023, Sec. 2.2 (the variant without i = j used by its follow-up code)
    Range: [-1/(n_c - 1), 1]; 1 at collapse; nan for a class of one sample.
    Invariant to: rotation, scale of every single feature.

    A zero vector has cosine 0 with itself, so only the samples that are not zero are subtracted.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [0.0, 3.0], [0.0, -1.0], [0.0, -2.0]], [0, 0, 1, 1])
    >>> intra_cosine_offdiagonal(moments).tolist()
    [0.0, 1.0]
    """
    counts = statistics.counts.double()
    with_themselves = counts - statistics.zero_counts
    return (counts.square() * intra_cosine(statistics) - with_themselves) / (counts * (counts - 1))


def inter_cosine(statistics: HasUnitMeans) -> Tensor:
    r"""Average cosine of a feature of one class and a feature of another, for every pair.

    $$\mathrm{inter}_{c,c'} = \bar h_c \cdot \bar h_{c'}$$

    Source: pan2023, Lemma 2.4.4
    Range: [-1, 1]; -1/(C - 1) at collapse. The diagonal holds `intra_cosine`.
    Invariant to: rotation, scale of every single feature.

    Needs a C x C array; `max_inter` and `mean_inter` do not.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [-3.0, 0.0]], [0, 1])
    >>> inter_cosine(moments).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    return statistics.unit_means @ statistics.unit_means.T


def min_intra(statistics: HasUnitMeans) -> float:
    r"""The smallest intra-class cosine.

    $$\min_c \mathrm{intra}_c$$

    Source: pan2023, Fig. 3.1
    Range: [0, 1]; 1 at collapse.
    Invariant to: rotation, scale of every single feature.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [0.0, 3.0], [0.0, -1.0]], [0, 0, 1])
    >>> min_intra(moments)
    0.5
    """
    return float(intra_cosine(statistics).min())


def mean_intra(statistics: HasUnitMeans) -> float:
    r"""The intra-class cosine, averaged over classes with equal weight.

    $$\tfrac1C\sum_c \mathrm{intra}_c$$

    Source: pan2023, Sec. 2.2
    Range: [0, 1]; 1 at collapse.
    Invariant to: rotation, scale of every single feature.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [0.0, 3.0], [0.0, -1.0]], [0, 0, 1])
    >>> mean_intra(moments)
    0.75
    """
    return float(intra_cosine(statistics).mean())


def max_inter(statistics: HasUnitMeans) -> float:
    r"""The largest inter-class cosine.

    $$\max_{c\ne c'} \mathrm{inter}_{c,c'}$$

    Source: pan2023, Fig. 3.1
    Range: [-1/(C - 1), 1]; -1/(C - 1) at collapse.
    Invariant to: rotation, scale of every single feature.

    Costs half a C x C x d matrix product, in tiles. `max_inter_pair` returns the two classes, and
    `closest_inter` the next pairs.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[2.0, 0.0], [-3.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    >>> max_inter(moments)
    0.0
    """
    return closest_inter(statistics)[0].value


def max_inter_pair(statistics: HasUnitMeans) -> tuple[int, int]:
    """The two classes with the largest inter-class cosine.

    Invariant to: rotation, scale of every single feature.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[2.0, 0.0], [-3.0, 0.0], [1.0, 1.0]], [0, 1, 2])
    >>> max_inter_pair(moments)
    (0, 2)
    """
    closest = closest_inter(statistics)[0]
    return closest.row, closest.col


class RowPair(NamedTuple):
    """Numbers of two rows, and the inner product of these rows."""

    row: int
    col: int
    value: float


@dataclass
class ClosestPairs(PairReducer):
    """Pairs of rows with the largest inner products, largest first; equal ones keep their order."""

    pairs: list[RowPair] = field(default_factory=list)

    def update(self, tile: PairTile) -> None:
        """Add the pairs in one tile (a block of the matrix of inner products) to the result."""
        values = tile.upper(tile.inner).flatten()
        threshold = self.pairs[-1].value if len(self.pairs) == REPORTED else -torch.inf
        candidates = (values > threshold).nonzero().flatten()
        if len(candidates) > REPORTED:
            smallest = values[candidates].topk(REPORTED).values[-1]
            candidates = candidates[values[candidates] >= smallest]
        positions = candidates
        if tile.rows == tile.cols:
            positions = above_diagonal(len(tile.inner), values.device)[candidates]
        width = tile.inner.shape[1]
        rows, cols = positions // width + tile.rows.start, positions % width + tile.cols.start
        columns = (tensor.tolist() for tensor in (rows, cols, values[candidates]))
        pairs = [*self.pairs, *(RowPair(*pair) for pair in zip(*columns, strict=True))]
        self.pairs = sorted(pairs, key=lambda pair: -pair.value)[:REPORTED]


@shared
def closest_inter(statistics: HasUnitMeans) -> list[RowPair]:
    """Return the pairs of classes with the largest inter-class cosines, largest first.

    Costs half a C x C x d matrix product, in tiles.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[2.0, 0.0], [-3.0, 0.0], [0.6, 0.8]], [0, 1, 2])
    >>> closest_inter(moments)[0]
    RowPair(row=0, col=2, value=0.6)
    """
    closest = ClosestPairs()
    reduce_pairs(statistics.unit_means, closest)
    return closest.pairs


def mean_inter(statistics: HasUnitMeans) -> float:
    r"""The inter-class cosine, averaged over pairs of different classes.

    $$\frac{\|\sum_c \bar h_c\|^2 - \sum_c \|\bar h_c\|^2}{C(C-1)}$$

    Source: pan2023, Sec. 2.2
    Range: [-1/(C - 1), 1]; -1/(C - 1) at collapse.
    Invariant to: rotation, scale of every single feature.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[2.0, 0.0], [-3.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    >>> round(mean_inter(moments), 12)
    -0.333333333333
    """
    total, squares = statistics.unit_means.sum(0), intra_cosine(statistics)
    size = len(squares)
    return float(total.square().sum() - squares.sum()) / (size * (size - 1))
