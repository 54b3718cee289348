"""NC3, self-duality: the classifier's rows point where the class means point."""

import torch
from torch import Tensor

from nclab.metrics.cosine import cosines, unit_rows
from nclab.metrics.nc2_simplex_etf import centred_rows
from nclab.statistics import ClassMoments


def nc3_self_duality(moments: ClassMoments, weight: Tensor) -> float:
    r"""Mean distance between the directions of class means and classifier rows, both centred.

    $$\operatorname*{Avg}_c\Bigl\|\frac{\mu_c-\mu_G}{\|\mu_c-\mu_G\|}
      -\frac{\dot w_c}{\|\dot w_c\|}\Bigr\|$$

    Source: ji2022, Sec. 4 (4)
    Range: [0, 2]; 0 at collapse.
    Invariant to: rotation of both, translation and scale of either.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> nc3_self_duality(moments, torch.tensor([[5.0, 0.0], [-5.0, 0.0]]))
    0.0
    """
    return direction_gap(moments.centred_means, centred_rows(weight))


def direction_gap(left: Tensor, right: Tensor) -> float:
    """Mean distance of the rows of two matrices, all scaled to norm one."""
    return float(torch.linalg.vector_norm(unit_rows(left) - unit_rows(right), dim=1).mean())


def nc3_alignment(moments: ClassMoments, weight: Tensor) -> Tensor:
    r"""Cosine of the centred classifier row and the class mean, for every class.

    $$\cos(\dot w_c, \mu_c)$$

    Source: pan2023, Thm 2.3.1 (the quantity its proof bounds; the mean is not centred)
    Range: [-1, 1]; 1 at collapse with a zero global mean.
    Invariant to: rotation of both, scale of either.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 1.0]], [0, 1])
    >>> [round(c, 6) for c in nc3_alignment(moments, torch.tensor([[3.0, 0], [-1, 0]])).tolist()]
    [1.0, 0.707107]
    """
    return cosines(centred_rows(weight), moments.means)


def nc3_alignment_raw(moments: ClassMoments, weight: Tensor) -> Tensor:
    r"""Cosine of the classifier row and the class mean, neither centred, for every class.

    $$\cos(w_c, \mu_c)$$

    Source: pan2023, Sec. 2.2 (NC3 as it is printed)
    Range: [-1, 1]; 1 at collapse with zero means of both.
    Invariant to: rotation of both, scale of either.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> nc3_alignment_raw(moments, torch.tensor([[3.0, 0.0], [1.0, 0.0]])).tolist()
    [1.0, -1.0]
    """
    return cosines(weight.double(), moments.means)


def nc3_frobenius(moments: ClassMoments, weight: Tensor) -> float:
    r"""Squared distance of the classifier and the centred class means, both of unit norm.

    $$\Bigl\|\frac{W^T}{\|W\|_F}-\frac{\dot M}{\|\dot M\|_F}\Bigr\|_F^2$$

    Source: papyan2020, Fig. 5
    Range: [0, 4]; 0 at collapse. Codes that do not square report the square root.
    Invariant to: rotation of both, scale of either, translation of the features.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> round(nc3_frobenius(moments, torch.tensor([[0.0, 1.0], [0.0, -1.0]])), 12)
    2.0
    """
    rows, means = weight.double(), moments.centred_means
    gap = rows / torch.linalg.matrix_norm(rows) - means / torch.linalg.matrix_norm(means)
    return float(gap.square().sum())
