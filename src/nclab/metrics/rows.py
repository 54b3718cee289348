"""Centred class means and classifier rows: their norms and angles, which NC1 to NC3 share."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.closest import BoundedClosestPairs, ClosestPairs
from nclab.metrics.pairs import Deviation, NormalisedVariance, reduce_pairs, screens
from nclab.metrics.view import shared
from nclab.statistics import ClassMoments, blocks
from nclab.statistics.norms import norm, outside, power_of_two, row_norms, unit_rows

Classes = Tensor | None
"""(k,) the rows of the classifier that belong to the classes of the moments; None for all."""


class MeanPairs(NamedTuple):
    """Results of one sweep over all pairs of centred class means."""

    angles: Deviation
    """Deviations of the cosines from that of a simplex ETF; nan if a mean has no direction."""
    distances: NormalisedVariance
    closest: ClosestPairs | None
    """Closest pairs of mean unit features. They are known only for many classes, where the
    products of this sweep bound theirs."""


@shared
def mean_pairs(moments: ClassMoments) -> MeanPairs:
    """Return angles and distances of the centred class means.

    Costs half a C x C x d GEMM, in tiles.
    """
    distances = mean_distances(moments)
    directed = bool(distances.norms.all())
    angles = Deviation(simplex_cosine(moments.num_classes) if directed else math.nan)
    units = unit_rows(moments.centred_means, zero=0.0)
    if not screens(units):
        reduce_pairs(units, angles, distances)
        return MeanPairs(angles, distances, None)
    closest = BoundedClosestPairs(moments.unit_means, units, moments.global_mean)
    reduce_pairs(units, angles, distances, closest)
    return MeanPairs(angles, distances, closest.closest)


def mean_distances(moments: ClassMoments) -> NormalisedVariance:
    """Return the reducer of `cdnv`, still without any pairs."""
    return NormalisedVariance(mean_norms(moments), moments.means, moments.variances)


@shared
def mean_norms(moments: ClassMoments) -> Tensor:
    """Return the (C,) norms of the centred class means."""
    return row_norms(moments.centred_means)


@shared
def scaled_rows(weight: Tensor) -> Tensor:
    """Return the (C, d) classifier rows in float64, divided by a power of two if necessary.

    The division keeps the squares of extreme numbers within float64.
    """
    return power_of_two(weight.double())[0]


@shared
def centred_rows(weight: Tensor) -> Tensor:
    """Return the (C, d) `scaled_rows` minus their mean; rows of mere rounding error become 0."""
    rows = scaled_rows(weight)
    centred = rows - rows.mean(0)
    rounding = 16 * torch.finfo(torch.float64).eps * row_norms(rows).max()
    centred[row_norms(centred) <= rounding] = 0.0
    return centred


@shared
def weight_angles(weight: Tensor) -> Deviation:
    """Return the deviations of the cosines of centred classifier rows from a simplex ETF's."""
    return cosine_deviation(centred_rows(weight))


@shared
def weight_norm(weight: Tensor) -> float:
    """Return the Frobenius norm of the classifier."""
    return norm(weight.double())


def of_classes(rows: Tensor, classes: Classes) -> Tensor:
    """Return the classifier rows of the given classes, or all rows."""
    return rows if classes is None else rows[classes]


def cosine_deviation(rows: Tensor) -> Deviation:
    """Return the deviations of pairwise cosines of rows from -1/(C - 1); nan if a row is zero.

    Costs half a C x C x d GEMM, in tiles.
    """
    deviation = Deviation(simplex_cosine(len(rows)))
    reduce_pairs(unit_rows(rows), deviation)
    return deviation


def simplex_cosine(num_classes: int) -> float:
    """Return the cosine of two vectors of a simplex ETF."""
    return -1.0 / (num_classes - 1)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosine of each row of one matrix with that of the other; nan for a zero row."""
    norms = [torch.linalg.vector_norm(rows, dim=1) for rows in (left, right)]
    if all(outside(values) is None for values in norms):
        return (left * right).sum(1) / (norms[0] * norms[1])
    return (unit_rows(left) * unit_rows(right)).sum(1)


def upper_factor(rows: Tensor) -> Tensor:
    """Return the (d, d) factor R of (C, d) rows with C > d; entries below its diagonal are unused.

    Many rows are factorised in parts, each together with the factor of the rows before it. The
    result is equal up to rounding and needs no copy of all rows.

    >>> factor = upper_factor(torch.tensor([[3.0], [4.0]]).double())
    >>> abs(round(float(factor), 12))
    5.0
    """
    dim = rows.shape[1]
    if len(rows) <= blocks.MANY_CLASSES:
        return torch.geqrf(rows).a[:dim]  # R above the diagonal, reflectors below it.
    factor = rows[:0]
    for part in rows.split(8 * dim):
        factor = torch.geqrf(torch.cat([factor.triu(), part])).a[:dim]
    return factor
