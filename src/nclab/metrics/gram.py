"""NC2 and NC3 as distances of normalised Gram matrices from that of a simplex ETF."""

import math

import torch
from torch import Tensor

from nclab.statistics import ClassMoments

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
    return _from_simplex(weight.double(), weight.double())


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
    rows = weight.double()
    return _from_simplex(rows if classes is None else rows[classes], moments.centred_means)


def _from_simplex(left: Tensor, right: Tensor) -> float:
    """|A/|A| - S| for A = left right^T and the unit matrix S along I - 11^T/C."""
    size, dim = left.shape
    root = math.sqrt(size - 1)
    if size <= dim + 1:
        product = left @ right.T
        norm = torch.linalg.matrix_norm(product)
        gap = (product / norm + 1 / (size * root)).fill_diagonal_(0.0)
        own = product.diagonal() / norm - (1 - 1 / size) / root
        return math.sqrt(float(gap.square().sum() + own.square().sum()))
    # Of rank d < C - 1, so far from S that the difference of the squares loses no digits.
    norm = ((left.T @ left) * (right.T @ right)).sum().sqrt()
    along = (left * right).sum() - left.sum(0) @ right.sum(0) / size
    return math.sqrt(2 - 2 * float(along / norm) / root)
