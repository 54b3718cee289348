"""NC3, self-duality: the classifier's rows have the directions of the class means.

If the classifier has more classes than the moments, `classes` selects the rows of the moments'
classes. The rows are centred by the mean of all rows before the selection.
"""

import torch
from torch import Tensor

from nclab.metrics.nc1_variability import DOUBTFUL
from nclab.metrics.nc2_simplex_etf import gram_distance
from nclab.metrics.view import Classes, centred_rows, cosines, of_classes, remark, shared
from nclab.statistics import ClassMoments
from nclab.statistics.blocks import norm, power_of_two, unit_rows
from nclab.statistics.moments import unit_error


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
    rows = of_classes(centred_rows(weight), classes)
    gaps = unit_rows(moments.centred_means) - unit_rows(rows)
    return float(torch.linalg.vector_norm(gaps, dim=1).mean())


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
    return cosines(of_classes(centred_rows(weight), classes), moments.means)


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
    """Mean of `nc3_alignment` over classes.

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

    Source: pan2023, Sec. 2.2 (NC3 as printed)
    Range: [-1, 1]; 1 at collapse if both have a zero mean.
    Invariant to: rotation of both, scale of either.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> nc3_alignment_raw(moments, torch.tensor([[3.0, 0.0], [1.0, 0.0]])).tolist()
    [1.0, -1.0]
    """
    return cosines(weight.double(), moments.means)


def nc3_frobenius(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Squared distance of the classifier and the centred class means, both scaled to unit norm.

    $$\Bigl\|\frac{W^T}{\|W\|_F}-\frac{\dot M}{\|\dot M\|_F}\Bigr\|_F^2$$

    Source: papyan2020, Fig. 5
    Range: [0, 4]; 0 at collapse. Code that does not square reports the square root.
    Invariant to: rotation of both, scale of either, translation of the features.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> round(nc3_frobenius(moments, torch.tensor([[0.0, 1.0], [0.0, -1.0]])), 12)
    2.0
    """
    rows, _ = power_of_two(of_classes(weight.double(), classes))
    means, _ = power_of_two(moments.centred_means)
    gap = rows / torch.linalg.matrix_norm(rows) - means / torch.linalg.matrix_norm(means)
    return float(gap.square().sum())


def nc3_gram(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Distance of the normalised logits of the class means from those at collapse.

    $$\Bigl\|\frac{W\dot M}{\|W\dot M\|_F}-\frac1{\sqrt{C-1}}
      \bigl(I-\tfrac1C11^T\bigr)\Bigr\|_F,\quad \dot M=[\mu_c-\mu_G]_c$$

    Source: zhu2021, Sec. on experiments (their NC3; their $\mu_G$ is the mean of the samples)
    Range: [0, 2]; 0 at collapse.
    Invariant to: rotation of both, scale of either, translation of the features.

    Costs a matrix product with C d min(C, d) multiplications.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> round(nc3_gram(moments, torch.tensor([[3.0, 0.0], [-3.0, 0.0]])), 12)
    0.0
    """
    rows, means = weight.double(), moments.centred_means
    distance = gram_distance(of_classes(rows, classes), means)
    size = norm(means)
    error = 4 * unit_error(moments) * distance.cancellation
    error *= 1 + moments.size / size if size else 1.0
    if len(means) > moments.dim + 1 and distance.value:
        error /= distance.value
    if error >= DOUBTFUL:
        remark(
            f"nc3_gram is only accurate to about {error:.1g}: classifier rows and class means are "
            "almost orthogonal, or class means differ by little."
        )
    return distance.value


def unc3_duality(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Variance over classes of the cosine of classifier row and centred class mean.

    $$\operatorname{Var}_c\cos(w_c,\mu_c-\mu_G)$$

    Source: wu2024, Def. of UNC3
    Range: [0, 1]; 0 at collapse, and whenever all classes are equally well or badly aligned. The
        paper's code takes the inner product instead of the cosine.
    Invariant to: rotation of both, scale of either, translation of the features.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> unc3_duality(moments, torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    0.25
    """
    alignment = cosines(of_classes(weight.double(), classes), moments.centred_means)
    return float(alignment.var(correction=0))
