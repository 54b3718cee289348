"""NC2, convergence to a simplex equiangular tight frame: equal norms and equal angles."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics.view import (
    Classes,
    centred_rows,
    cosine_deviation,
    mean_norms,
    mean_pairs,
    of_classes,
    scaled_rows,
    weight_angles,
)
from nclab.statistics import ClassMoments
from nclab.statistics.blocks import FOURTH, norm, power_of_two, row_norms, unit_rows


def simplex_etf(num_classes: int, dim: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""(C, d) rows of unit norm that form a simplex equiangular tight frame.

    $$M = \sqrt{\tfrac{C}{C-1}}\,\bigl(I-\tfrac1C 11^T\bigr)U^T,\quad U^TU=I$$

    Source: pan2023, Def. 1.2.1
    Range: needs d >= C - 1; the definition asks for d >= C, which is not necessary.

    With a generator the frame is rotated at random; without one the result is always the same.

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
    random = torch.randn(dim, dim, dtype=torch.float64, generator=generator)
    return frame @ torch.linalg.qr(random).Q


def nc2_norm_variation_means(moments: ClassMoments) -> float:
    r"""Relative spread of the norms of the centred class means.

    $$\operatorname{Std}_c\|\mu_c-\mu_G\| / \operatorname{Avg}_c\|\mu_c-\mu_G\|$$

    Source: ji2022, Sec. 4 (1)
    Range: [0, sqrt(C - 1)]; 0 at collapse. Population standard deviation, as in papyan2020, Fig. 2.
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


def norm_variation(norms: Tensor) -> float:
    """Return the population standard deviation of norms divided by their mean; nan if all are 0."""
    return float(norms.std(correction=0) / norms.mean())


def nc2_equiangularity_means(moments: ClassMoments) -> float:
    r"""Mean distance of the cosines of the centred class means from those of a simplex ETF.

    $$\operatorname*{Avg}_{c\ne c'}\Bigl|\cos(\mu_c-\mu_G,\mu_{c'}-\mu_G)+\tfrac1{C-1}\Bigr|$$

    Source: ji2022, Sec. 4 (3)
    Range: [0, 1 + 1/(C - 1)]; 0 at collapse. Uses absolute values, since signed ones would cancel.
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
    r"""`nc2_equiangularity_means` without centring of the class means.

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
    r"""`nc2_equiangularity_weights` without centring of the classifier rows.

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
    Range: [0, 1]; 0 at collapse, and whenever all angles are equal, even if no ETF has them.
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


def nc0_weight_mean(weight: Tensor) -> float:
    r"""Norm of the sum of the classifier rows, divided by its maximum for this $\|W\|_F$.

    $$\frac{\|\sum_c w_c\|}{\sqrt C\,\|W\|_F}$$

    Source: zhao2026, Def. of NC0 (there without the denominator)
    Range: [0, 1]; 0 at collapse, 1 where all rows are equal.
    Invariant to: rotation, scale.

    >>> import torch
    >>> nc0_weight_mean(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    0.7071067811865475
    """
    rows = scaled_rows(weight)
    size = norm(rows)
    return norm(rows.sum(0)) / (math.sqrt(len(rows)) * size) if size else float("nan")


def minority_cosine(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Mean cosine of the centred classifier rows of two different minority classes.

    $$\operatorname*{Avg}_{c\ne c'\in S}\cos(\dot w_c,\dot w_{c'}),\quad
      S=\{c: n_c\le\tfrac12\max_k n_k\}$$

    Source: fang2021, Sec. on minority collapse (there for two class sizes)
    Range: [-1/(|S| - 1), 1]; -1/(C - 1) at a simplex ETF, 1 where the minority has collapsed into
        one direction; nan if fewer than two classes are that small.
    Invariant to: rotation, translation, scale of either, scale of every single feature.

    >>> import torch
    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[0.0, 1.0]] * 4, [0, 0, 1, 2])
    >>> round(minority_cosine(moments, torch.tensor([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])), 12)
    0.0
    """
    small = 2 * moments.counts <= moments.counts.max()
    count = int(small.sum())
    if count < 2:
        return float("nan")
    rows = centred_rows(weight)
    units = unit_rows(of_classes(rows, classes)[small])
    return float(units.sum(0).square().sum() - units.square().sum()) / (count * (count - 1))


def stable_rank_weights(weight: Tensor) -> float:
    r"""Stable rank of the classifier: squared Frobenius norm divided by squared spectral norm.

    $$\|W\|_F^2/\|W\|_2^2$$

    Range: [1, min(C, d)]; C - 1 at collapse. Rows are not centred.
    Invariant to: rotation, scale.

    The spectral norm $\|W\|_2$ is the largest singular value. Costs a matrix product with C d
    min(C, d) multiplications, and the eigenvalues of the product.

    >>> stable_rank_weights(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    1.25
    """
    rows = scaled_rows(weight)
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return float(gram.trace() / torch.linalg.eigvalsh(gram)[-1])


def nc2_gram_weights(weight: Tensor) -> float:
    r"""Distance of the classifier's normalised Gram matrix from that of a simplex ETF.

    $$\Bigl\|\frac{WW^T}{\|WW^T\|_F}-\frac1{\sqrt{C-1}}\bigl(I-\tfrac1C11^T\bigr)\Bigr\|_F$$

    Source: zhu2021, Sec. on experiments (their NC2)
    Range: [0, 2]; 0 at collapse. Rows are not centred.
    Invariant to: rotation, scale.

    Costs a matrix product with C d min(C, d) multiplications.

    >>> round(nc2_gram_weights(torch.eye(4)), 6)
    0.517638
    """
    return gram_distance(weight.double(), weight.double()).value


class GramDistance(NamedTuple):
    """Distance of the normalised product of two matrices from the Gram matrix of a simplex ETF."""

    value: float
    cancellation: float
    """Factor by which rounding errors grow: |left| |right| / |left right^T|, in Frobenius norms."""


def gram_distance(left: Tensor, right: Tensor) -> GramDistance:
    """Return |A/|A| - S| for A = left right^T and the ETF's S = (I - 11^T/C) / sqrt(C - 1)."""
    size, dim = left.shape
    left, right = (power_of_two(rows, FOURTH)[0] for rows in (left, right))
    root, factors = math.sqrt(size - 1), norm(left) * norm(right)
    if size <= dim + 1:
        product = left @ right.T
        length = float(torch.linalg.matrix_norm(product))
        if not length:
            return GramDistance(math.nan, 0.0)
        gap = (product / length + 1 / (size * root)).fill_diagonal_(0.0)
        diagonal = product.diagonal() / length - (1 - 1 / size) / root
        return GramDistance(
            math.sqrt(float(gap.square().sum() + diagonal.square().sum())), factors / length
        )
    # A has rank d < C - 1 and is far from S, so the difference of squares loses no digits.
    length = math.sqrt(max(0.0, float(((left.T @ left) * (right.T @ right)).sum())))
    if not length:
        return GramDistance(math.nan, 0.0)
    along = float((left * right).sum() - left.sum(0) @ right.sum(0) / size)
    return GramDistance(math.sqrt(max(0.0, 2 - 2 * along / length / root)), factors / length)
