"""NC3, self-duality: the classifier's rows point where the class means point.

Where the classifier has rows for more classes than the moments, `classes` says which are theirs;
rows are still centred by the mean of all of them.
"""

import torch
from torch import Tensor

from nclab.metrics.rows import centred_rows, cosines
from nclab.metrics.view import shared
from nclab.statistics import ClassMoments
from nclab.statistics.norms import power_of_two, unit_rows

Classes = Tensor | None
"""(k,) the rows of the classifier that belong to the classes of the moments; None for all."""


def nc3_self_duality(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Mean distance between the directions of class means and classifier rows, both centred.

    $$\operatorname*{Avg}_c\Bigl\|\frac{\mu_c-\mu_G}{\|\mu_c-\mu_G\|}
      -\frac{\dot w_c}{\|\dot w_c\|}\Bigr\|$$

    Source: ji2022, Sec. 4 (4)
    Range: [0, 2]; 0 at collapse.
    Invariant to: rotation of both, translation of either, scale of either.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> nc3_self_duality(moments, torch.tensor([[5.0, 0.0], [-5.0, 0.0]]))
    0.0
    """
    rows = _of_classes(centred_rows(weight), classes)
    return float(duality_gaps(moments.centred_means, rows).mean())


def duality_gaps(means: Tensor, rows: Tensor) -> Tensor:
    """(C,) distances of the directions of means and classifier rows."""
    return torch.linalg.vector_norm(unit_rows(means) - unit_rows(rows), dim=1)


@shared
def nc3_alignment(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> Tensor:
    r"""Cosine of the centred classifier row and the class mean, for every class.

    $$\cos(\dot w_c, \mu_c)$$

    Source: pan2023, Thm 2.3.1 (the quantity its proof bounds; the mean is not centred)
    Range: [-1, 1]; 1 at collapse with a zero global mean.
    Invariant to: rotation of both, scale of either, translation of the classifier.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 1.0]], [0, 1])
    >>> [round(c, 6) for c in nc3_alignment(moments, torch.tensor([[3.0, 0], [-1, 0]])).tolist()]
    [1.0, 0.707107]
    """
    return cosines(_of_classes(centred_rows(weight), classes), moments.means)


def nc3_alignment_min(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""The smallest `nc3_alignment`.

    $$\min_c \cos(\dot w_c, \mu_c)$$

    Source: pan2023, Thm 2.3.1
    Range: [-1, 1]; 1 at collapse with a zero global mean.
    Invariant to: rotation of both, scale of either, translation of the classifier.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 1.0]], [0, 1])
    >>> round(nc3_alignment_min(moments, torch.tensor([[3.0, 0], [-1, 0]])), 6)
    0.707107
    """
    return float(nc3_alignment(moments, weight, classes).min())


def nc3_alignment_mean(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    """`nc3_alignment`, averaged over classes.

    Source: pan2023, Thm 2.3.1
    Range: [-1, 1]; 1 at collapse with a zero global mean.
    Invariant to: rotation of both, scale of either, translation of the classifier.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 1.0]], [0, 1])
    >>> round(nc3_alignment_mean(moments, torch.tensor([[3.0, 0], [-1, 0]])), 6)
    0.853553
    """
    return float(nc3_alignment(moments, weight, classes).mean())


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


def nc3_frobenius(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
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
    rows, _ = power_of_two(_of_classes(weight.double(), classes))
    means, _ = power_of_two(moments.centred_means)
    gap = rows / torch.linalg.matrix_norm(rows) - means / torch.linalg.matrix_norm(means)
    return float(gap.square().sum())


def _of_classes(rows: Tensor, classes: Classes) -> Tensor:
    return rows if classes is None else rows[classes]
