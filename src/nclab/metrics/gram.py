"""NC2 and NC3 as distances of normalised Gram matrices from that of a simplex ETF."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.nc1_variability import DOUBTFUL
from nclab.metrics.view import remark
from nclab.statistics import ClassMoments
from nclab.statistics.norms import FOURTH, norm, power_of_two
from nclab.statistics.sums import unit_error

Classes = Tensor | None


def nc2_gram_weights(weight: Tensor) -> float:
    r"""Distance of the classifier's normalised Gram matrix from that of a simplex ETF.

    $$\Bigl\|\frac{WW^T}{\|WW^T\|_F}-\frac1{\sqrt{C-1}}\bigl(I-\tfrac1C11^T\bigr)\Bigr\|_F$$

    Source: zhu2021, Sec. on experiments (their NC2)
    Range: [0, 2]; 0 at collapse. Rows are not centred.
    Invariant to: rotation, scale.

    Costs a GEMM of C x d by the smaller of the two.

    >>> round(nc2_gram_weights(torch.eye(4)), 6)
    0.517638
    """
    return _from_simplex(weight.double(), weight.double()).value


def nc3_gram(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Distance of the normalised logits of the class means from those at collapse.

    $$\Bigl\|\frac{W\dot M}{\|W\dot M\|_F}-\frac1{\sqrt{C-1}}
      \bigl(I-\tfrac1C11^T\bigr)\Bigr\|_F,\quad \dot M=[\mu_c-\mu_G]_c$$

    Source: zhu2021, Sec. on experiments (their NC3; their $\mu_G$ is the mean of the samples)
    Range: [0, 2]; 0 at collapse.
    Invariant to: rotation of both, scale of either, translation of the features.

    Costs a GEMM of C x d by the smaller of the two.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> round(nc3_gram(moments, torch.tensor([[3.0, 0.0], [-3.0, 0.0]])), 12)
    0.0
    """
    rows, means = weight.double(), moments.centred_means
    found = _from_simplex(rows if classes is None else rows[classes], means)
    size = norm(means)
    error = 4 * unit_error(moments) * found.lost * (1 + moments.size / size if size else 1.0)
    if len(means) > moments.dim + 1 and found.value:
        error /= found.value
    if error >= DOUBTFUL:
        remark(
            f"nc3_gram is right to about {error:.1g} only: classifier rows and class means are "
            "almost orthogonal, or class means differ by little."
        )
    return found.value


class _Distance(NamedTuple):
    value: float
    lost: float
    """By how much the product is smaller than its factors."""


def _from_simplex(left: Tensor, right: Tensor) -> _Distance:
    """|A/|A| - S| for A = left right^T and the unit matrix S along I - 11^T/C."""
    size, dim = left.shape
    left, right = (power_of_two(rows, FOURTH)[0] for rows in (left, right))
    root, factors = math.sqrt(size - 1), norm(left) * norm(right)
    if size <= dim + 1:
        product = left @ right.T
        whole = float(torch.linalg.matrix_norm(product))
        if not whole:
            return _Distance(math.nan, 0.0)
        gap = (product / whole + 1 / (size * root)).fill_diagonal_(0.0)
        own = product.diagonal() / whole - (1 - 1 / size) / root
        return _Distance(math.sqrt(float(gap.square().sum() + own.square().sum())), factors / whole)
    # Of rank d < C - 1, so far from S that the difference of the squares loses no digits.
    whole = math.sqrt(max(0.0, float(((left.T @ left) * (right.T @ right)).sum())))
    if not whole:
        return _Distance(math.nan, 0.0)
    along = float((left * right).sum() - left.sum(0) @ right.sum(0) / size)
    return _Distance(math.sqrt(max(0.0, 2 - 2 * along / whole / root)), factors / whole)
