"""NC2, convergence to a simplex equiangular tight frame: equal norms and equal angles."""

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics.rows import (
    centred_rows,
    cosine_deviation,
    mean_norms,
    mean_pairs,
    scaled_rows,
    weight_angles,
)
from nclab.statistics import ClassMoments
from nclab.statistics.norms import row_norms


def simplex_etf(num_classes: int, dim: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""(C, d) rows of unit norm that form a simplex equiangular tight frame.

    $$M = \sqrt{\tfrac{C}{C-1}}\,\bigl(I-\tfrac1C 11^T\bigr)U^T,\quad U^TU=I$$

    Source: pan2023, Def. 1.2.1
    Range: needs d >= C - 1, which is enough; the definition asks for d >= C.

    With a generator the frame is turned at random, else it is the same on every machine.

    >>> etf = simplex_etf(3, 2)
    >>> [[round(x, 6) for x in row] for row in (etf @ etf.T).tolist()]
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    if num_classes < 2 or dim < num_classes - 1:
        raise DataError(
            f"Expected at least 2 classes and dimension {max(1, num_classes - 1)} or more for "
            f"{num_classes} classes, got dimension {dim}."
        )
    # Helmert's basis of the vectors that sum to zero: row k is (1, ..., 1, -k, 0, ..., 0).
    steps = torch.arange(1, num_classes, dtype=torch.float64)
    basis = torch.ones(num_classes - 1, num_classes, dtype=torch.float64).tril()
    basis[:, 1:] -= torch.diag(steps)
    basis /= (steps * (steps + 1)).sqrt()[:, None]
    frame = torch.zeros(num_classes, dim, dtype=torch.float64)
    frame[:, : num_classes - 1] = basis.T * (num_classes / (num_classes - 1)) ** 0.5
    if generator is None:
        return frame
    turn = torch.randn(dim, dim, dtype=torch.float64, generator=generator)
    return frame @ torch.linalg.qr(turn).Q


def nc2_norm_variation_means(moments: ClassMoments) -> float:
    r"""Relative spread of the norms of the centred class means.

    $$\operatorname{Std}_c\|\mu_c-\mu_G\| / \operatorname{Avg}_c\|\mu_c-\mu_G\|$$

    Source: ji2022, Sec. 4 (1)
    Range: [0, sqrt(C - 1)]; 0 at collapse. Population standard deviation; also papyan2020, Fig. 2.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[3.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]], [0, 1, 2])
    >>> round(nc2_norm_variation_means(moments), 6)
    0.408248
    """
    return norm_variation(mean_norms(moments))


def nc2_norm_variation_weights(weight: Tensor) -> float:
    r"""Relative spread of the norms of the centred classifier rows.

    $$\operatorname{Std}_c\|\dot w_c\| / \operatorname{Avg}_c\|\dot w_c\|$$

    Source: ji2022, Sec. 4 (1)
    Range: [0, sqrt(C - 1)]; 0 at collapse.
    Invariant to: rotation, translation, scale.

    >>> nc2_norm_variation_weights(torch.eye(4))
    0.0
    """
    return norm_variation(row_norms(centred_rows(weight)))


def nc2_equiangularity_means(moments: ClassMoments) -> float:
    r"""Mean distance of the cosines of the centred class means from those of a simplex ETF.

    $$\operatorname*{Avg}_{c\ne c'}\Bigl|\cos(\mu_c-\mu_G,\mu_{c'}-\mu_G)+\tfrac1{C-1}\Bigr|$$

    Source: ji2022, Sec. 4 (3)
    Range: [0, 1 + 1/(C - 1)]; 0 at collapse. Absolute values: signed ones would cancel.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[3.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]], [0, 1, 2])
    >>> round(nc2_equiangularity_means(moments), 6)
    0.833333
    """
    return mean_pairs(moments).angles.mean_absolute


def nc2_equiangularity_weights(weight: Tensor) -> float:
    r"""Mean distance of the cosines of the centred classifier rows from those of a simplex ETF.

    $$\operatorname*{Avg}_{c\ne c'}\Bigl|\cos(\dot w_c,\dot w_{c'})+\tfrac1{C-1}\Bigr|$$

    Source: ji2022, Sec. 4 (3)
    Range: [0, 1 + 1/(C - 1)]; 0 at collapse.
    Invariant to: rotation, translation, scale.

    >>> round(nc2_equiangularity_weights(torch.eye(4)), 12)
    0.0
    """
    return weight_angles(weight).mean_absolute


def nc2_equiangularity_means_uncentred(moments: ClassMoments) -> float:
    r"""`nc2_equiangularity_means` of the class means as they are.

    $$\operatorname*{Avg}_{c\ne c'}\Bigl|\cos(\mu_c,\mu_{c'})+\tfrac1{C-1}\Bigr|$$

    Source: ji2022, Sec. 4 (3) (as its text prints it)
    Range: [0, 1 + 1/(C - 1)]; 0 at collapse with a zero global mean.
    Invariant to: rotation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> nc2_equiangularity_means_uncentred(moments)
    0.0
    """
    return cosine_deviation(moments.means).mean_absolute


def nc2_equiangularity_weights_uncentred(weight: Tensor) -> float:
    r"""`nc2_equiangularity_weights` of the classifier rows as they are.

    $$\operatorname*{Avg}_{c\ne c'}\Bigl|\cos(w_c,w_{c'})+\tfrac1{C-1}\Bigr|$$

    Source: ji2022, Sec. 4 (3) (as its text prints it)
    Range: [0, 1 + 1/(C - 1)]; 0 at collapse with a zero mean row.
    Invariant to: rotation, scale.

    >>> nc2_equiangularity_weights_uncentred(torch.tensor([[2.0, 0.0], [-1.0, 0.0]]))
    0.0
    """
    return cosine_deviation(scaled_rows(weight)).mean_absolute


def nc2_cosine_std_means(moments: ClassMoments) -> float:
    r"""Standard deviation of the cosines of the centred class means.

    $$\operatorname{Std}_{c\ne c'}\cos(\mu_c-\mu_G,\mu_{c'}-\mu_G)$$

    Source: papyan2020, Fig. 3
    Range: [0, 1]; 0 at collapse, and wherever all angles agree, right or wrong.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[3.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]], [0, 1, 2])
    >>> round(nc2_cosine_std_means(moments), 6)
    0.942809
    """
    return mean_pairs(moments).angles.standard_deviation


def nc2_cosine_std_weights(weight: Tensor) -> float:
    r"""Standard deviation of the cosines of the centred classifier rows.

    $$\operatorname{Std}_{c\ne c'}\cos(\dot w_c,\dot w_{c'})$$

    Source: papyan2020, Fig. 3
    Range: [0, 1]; 0 at collapse.
    Invariant to: rotation, translation, scale.

    >>> round(nc2_cosine_std_weights(torch.eye(4)), 7)
    0.0
    """
    return weight_angles(weight).standard_deviation


def norm_variation(norms: Tensor) -> float:
    """Population standard deviation of norms over their mean; nan if all are zero."""
    return float(norms.std(correction=0) / norms.mean())
