"""Directional CDNV: variance along the way to another class, and what it proves about errors."""

import torch
from torch import Tensor

from nclab.metrics.pairs import NormalisedVariance, PairTile
from nclab.metrics.view import shared
from nclab.statistics import DirectionalSpread
from nclab.statistics.norms import unit_rows


@shared
def directional_cdnv_pairs(spread: DirectionalSpread) -> Tensor:
    r"""The C x C array behind `directional_cdnv`, by class and direction; zero on the diagonal.

    $$\tilde V_{ij}=\frac{\operatorname{Avg}_{h\in i}\langle h-\mu_i,\mu_j-\mu_i\rangle^2}
      {\|\mu_i-\mu_j\|^4}$$

    Source: luthra2026, Def. of the directional CDNV
    Range: [0, inf); at most the CDNV's own $v_i/\|\mu_i-\mu_j\|^2$. Not symmetric.
    Invariant to: rotation, translation, scale.

    >>> from nclab.statistics import ClassMoments
    >>> rows, labels, moments = [[1.0, 5.0], [3.0, -5.0], [0.0, 0.0]], [0, 0, 1], ClassMoments(2, 2)
    >>> moments.update(rows, labels)
    >>> spread = DirectionalSpread(moments)
    >>> spread.update(rows, labels)
    >>> directional_cdnv_pairs(spread).tolist()
    [[0.0, 0.25], [0.0, 0.0]]
    """
    centred, means = spread.centred_means / spread.scale, spread.means / spread.scale
    units, everything = unit_rows(centred, zero=0.0), slice(0, len(centred))
    # With variances of one, the CDNV of a pair is its inverse squared distance.
    inverse = NormalisedVariance(
        torch.linalg.vector_norm(centred, dim=1), means, torch.ones_like(centred[:, 0])
    ).tile_values(PairTile(everything, everything, units @ units.T))
    return inverse.square_().mul_(spread.mean_squares).fill_diagonal_(0.0)


def directional_cdnv(spread: DirectionalSpread) -> float:
    r"""Variance of a class along the way to another over their squared distance, on average.

    $$\operatorname*{Avg}_{i\ne j}\tilde V_{ij}$$

    Source: luthra2026, Def. of the directional CDNV
    Range: [0, inf); 0 at collapse; nan or inf where two classes have the same mean.
    Invariant to: rotation, translation, scale.

    >>> from nclab.statistics import ClassMoments
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
    r"""What the directional CDNV proves: no larger a share is nearer to a wrong class mean.

    $$\sum_i\frac{n_i}N\min\Bigl(1,\sum_{j\ne i}\frac{4\tilde V_{ij}}{1+4\tilde V_{ij}}\Bigr)
      \ge 1-\mathrm{NCC\ accuracy}$$

    Source: luthra2026, Def. of the directional CDNV (the bound is Cantelli's inequality for
        $\langle h-\mu_i,\mu_j-\mu_i\rangle\ge\tfrac12\|\mu_i-\mu_j\|^2$, summed over j)
    Range: [0, 1]; 0 at collapse. About the same samples, not about new ones.
    Invariant to: rotation, translation, scale.

    >>> from nclab.statistics import ClassMoments
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
