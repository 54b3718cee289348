"""CDNV, the class-distance normalised variance, also measured in the direction of other classes."""

import torch
from torch import Tensor

from nclab.metrics.pairs import NormalisedVariance, PairTile
from nclab.metrics.rows import mean_distances, mean_pairs
from nclab.metrics.view import shared
from nclab.statistics import ClassMoments, DirectionalSpread
from nclab.statistics.norms import unit_rows


def cdnv(moments: ClassMoments) -> float:
    r"""Class-distance normalised variance, averaged over pairs of classes.

    $$\operatorname*{Avg}_{c<c'} \frac{v_c + v_{c'}}{2\|\mu_c-\mu_{c'}\|^2}$$

    Source: galanti2022, Def. 1
    Range: [0, inf); 0 at collapse; inf where two classes have the same mean.
    Invariant to: rotation, translation, scale.

    Costs half a C x C x d GEMM, in tiles.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(cdnv(moments), 12)
    0.041666666667
    """
    return mean_pairs(moments).distances.mean


def cdnv_pairs(moments: ClassMoments) -> Tensor:
    """The C x C array whose mean is `cdnv`, zero on the diagonal.

    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-3.0, 0.0]], [0, 0, 1])
    >>> [[round(value, 6) for value in row] for row in cdnv_pairs(moments).tolist()]
    [[0.0, 0.013889], [0.013889, 0.0]]
    """
    directions = unit_rows(moments.centred_means, zero=0.0)
    every_class = slice(0, moments.num_classes)
    tile = PairTile(every_class, every_class, directions @ directions.T)
    return mean_distances(moments).tile_values(tile).fill_diagonal_(0.0)


@shared
def directional_cdnv_pairs(spread: DirectionalSpread) -> Tensor:
    r"""The C x C array whose mean is `directional_cdnv`, by class and direction.

    $$\tilde V_{ij}=\frac{\operatorname{Avg}_{h\in i}\langle h-\mu_i,\mu_j-\mu_i\rangle^2}
      {\|\mu_i-\mu_j\|^4}$$

    Source: luthra2026, Def. of the directional CDNV
    Range: [0, inf); at most $v_i/\|\mu_i-\mu_j\|^2$; 0 on the diagonal. Not symmetric.
    Invariant to: rotation, translation, scale.

    >>> rows, labels, moments = [[1.0, 5.0], [3.0, -5.0], [0.0, 0.0]], [0, 0, 1], ClassMoments(2, 2)
    >>> moments.update(rows, labels)
    >>> spread = DirectionalSpread(moments)
    >>> spread.update(rows, labels)
    >>> directional_cdnv_pairs(spread).tolist()
    [[0.0, 0.25], [0.0, 0.0]]
    """
    centred, means = spread.centred_means / spread.scale, spread.means / spread.scale
    units, every_class = unit_rows(centred, zero=0.0), slice(0, len(centred))
    # With variances of 1, the CDNV of a pair is its inverse squared distance.
    inverse = NormalisedVariance(
        torch.linalg.vector_norm(centred, dim=1), means, torch.ones_like(centred[:, 0])
    ).tile_values(PairTile(every_class, every_class, units @ units.T))
    return inverse.square_().mul_(spread.mean_squares).fill_diagonal_(0.0)


def directional_cdnv(spread: DirectionalSpread) -> float:
    r"""Variance of a class in the direction of another class mean, over their squared distance.

    $$\operatorname*{Avg}_{i\ne j}\tilde V_{ij}$$

    Source: luthra2026, Def. of the directional CDNV
    Range: [0, inf); 0 at collapse; nan or inf where two classes have the same mean.
    Invariant to: rotation, translation, scale.

    >>> rows, labels, moments = [[1.0, 5.0], [3.0, -5.0], [0.0, 0.0]], [0, 0, 1], ClassMoments(2, 2)
    >>> moments.update(rows, labels)
    >>> spread = DirectionalSpread(moments)
    >>> spread.update(rows, labels)
    >>> directional_cdnv(spread)
    0.125
    """
    pairs = directional_cdnv_pairs(spread)
    return float(pairs.sum()) / (len(pairs) * (len(pairs) - 1))


def ncc_error_bound(spread: DirectionalSpread) -> float:
    r"""Upper bound on the share of samples that are nearer to a wrong class mean.

    $$\sum_i\frac{n_i}N\min\Bigl(1,\sum_{j\ne i}\frac{4\tilde V_{ij}}{1+4\tilde V_{ij}}\Bigr)
      \ge 1-\mathrm{NCC\ accuracy}$$

    Source: luthra2026, Def. of the directional CDNV (the bound is Cantelli's inequality for
        $\langle h-\mu_i,\mu_j-\mu_i\rangle\ge\tfrac12\|\mu_i-\mu_j\|^2$, summed over j)
    Range: [0, 1]; 0 at collapse. It holds for the measured samples, not for new ones.
    Invariant to: rotation, translation, scale.

    >>> rows, labels, moments = [[1.0, 5.0], [3.0, -5.0], [0.0, 0.0]], [0, 0, 1], ClassMoments(2, 2)
    >>> moments.update(rows, labels)
    >>> spread = DirectionalSpread(moments)
    >>> spread.update(rows, labels)
    >>> round(ncc_error_bound(spread), 12)
    0.333333333333
    """
    pairs = directional_cdnv_pairs(spread)
    wrong = (1 - (1 + 4 * pairs).reciprocal()).sum(1).clamp_max(1.0)
    return float((wrong * spread.counts).sum()) / int(spread.counts.sum())
