"""Class means and classifier rows, centred: their norms and angles, which NC1 to NC3 share."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.closest import ClosestPairs
from nclab.metrics.closest_beside import ClosestBeside
from nclab.metrics.pairs import Deviation, NormalisedVariance, reduce_pairs, screens
from nclab.metrics.view import shared
from nclab.statistics import ClassMoments, blocks
from nclab.statistics.norms import norm, outside, power_of_two, row_norms, unit_rows


class MeanPairs(NamedTuple):
    """What one sweep over all pairs of centred class means has found."""

    angles: Deviation
    """Around the cosine of a simplex ETF; nan where a mean has no direction."""
    distances: NormalisedVariance
    closest: ClosestPairs | None
    """The closest mean unit features, where classes are many: their bounds are in these tiles."""


@shared
def mean_pairs(moments: ClassMoments) -> MeanPairs:
    """Angles and distances of the centred class means. Costs half a C x C x d GEMM, in tiles."""
    distances = mean_distances(moments)
    directed = bool(distances.norms.all())
    angles = Deviation(simplex_cosine(moments.num_classes) if directed else math.nan)
    units = unit_rows(moments.centred_means, zero=0.0)
    if not screens(units):
        reduce_pairs(units, angles, distances)
        return MeanPairs(angles, distances, None)
    closest = ClosestBeside(moments.unit_means, units, moments.global_mean)
    reduce_pairs(units, angles, distances, closest)
    return MeanPairs(angles, distances, closest.found)


def mean_distances(moments: ClassMoments) -> NormalisedVariance:
    """The reducer of `cdnv`, before it has seen the directions of the centred means."""
    return NormalisedVariance(mean_norms(moments), moments.means, moments.variances)


@shared
def mean_norms(moments: ClassMoments) -> Tensor:
    """(C,) norms of the centred class means."""
    return row_norms(moments.centred_means)


@shared
def scaled_rows(weight: Tensor) -> Tensor:
    """(C, d) float64 classifier rows; over a power of two where squares would not hold them."""
    return power_of_two(weight.double())[0]


@shared
def centred_rows(weight: Tensor) -> Tensor:
    """(C, d) `scaled_rows` minus their mean; rows that are only rounding are 0."""
    rows = scaled_rows(weight)
    return centred_by(rows, rows.mean(0), row_norms(rows).max())


def centred_by(rows: Tensor, centre: Tensor, size: Tensor) -> Tensor:
    """Rows minus a centre; what is only rounding beside rows of this size is 0."""
    centred = rows - centre
    norms = row_norms(centred)
    centred[norms <= 16 * torch.finfo(torch.float64).eps * size] = 0.0
    return centred


@shared
def weight_angles(weight: Tensor) -> Deviation:
    """How the cosines of the centred classifier rows lie around those of a simplex ETF."""
    return cosine_deviation(centred_rows(weight))


@shared
def weight_norm(weight: Tensor) -> float:
    """The Frobenius norm of the classifier."""
    return norm(weight.double())


def cosine_deviation(rows: Tensor) -> Deviation:
    """How the pairwise cosines of the rows lie around -1/(C - 1); nan if a row is zero.

    Costs half a C x C x d GEMM, in tiles.
    """
    deviation = Deviation(simplex_cosine(len(rows)))
    reduce_pairs(unit_rows(rows), deviation)
    return deviation


def simplex_cosine(num_classes: int) -> float:
    """The cosine of two vectors of a simplex ETF."""
    return -1.0 / (num_classes - 1)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Row-wise cosine of two matrices; nan where a row is zero."""
    norms = [torch.linalg.vector_norm(rows, dim=1) for rows in (left, right)]
    if all(outside(one) is None for one in norms):
        return (left * right).sum(1) / (norms[0] * norms[1])
    return (unit_rows(left) * unit_rows(right)).sum(1)


def upper_factor(rows: Tensor) -> Tensor:
    """(d, d) the factor R of (C, d) rows with C > d, above the diagonal; below it is anything.

    Of many rows some at a time, each below the factor of those before: the same up to rounding,
    without a copy of all of them.

    >>> factor = upper_factor(torch.tensor([[3.0], [4.0]]).double())
    >>> abs(round(float(factor), 12))
    5.0
    """
    dim = rows.shape[1]
    if len(rows) <= blocks.MANY_CLASSES:
        return torch.geqrf(rows).a[:dim]  # R above the diagonal, reflectors below it
    factor = rows[:0]
    for part in rows.split(8 * dim):
        factor = torch.geqrf(torch.cat([factor.triu(), part])).a[:dim]
    return factor
