"""Effective ranks: the number of directions that features and classifiers use."""

import torch
from torch import Tensor

from nclab.metrics.nc1_variability import upper_factor
from nclab.metrics.pairs import scaled_rows
from nclab.statistics import ClassMoments, blocks


def rankme(moments: ClassMoments) -> float:
    r"""Effective rank of the features: the exponential of the entropy of their singular values.

    $$\exp\Bigl(-\sum_k p_k\log p_k\Bigr),\quad p_k=\sigma_k(H)/\sum_j\sigma_j(H)$$

    Source: garrido2023, Eq. of RankMe
    Range: [1, min(N, d)]; C - 1 at collapse with a zero global mean. Features are not centred.
        Singular values, not eigenvalues of the covariance. The paper adds 1e-7 to each p.
    Invariant to: rotation, scale.

    Needs the scatter. Costs an eigendecomposition and an SVD, O(d^3 + C d^2).

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]], [0, 0, 1, 1])
    >>> round(rankme(moments), 12)
    2.0
    """
    variances, directions = torch.linalg.eigh(moments.within_scatter)
    floor = moments.dim * torch.finfo(torch.float64).eps * variances[-1].clamp_min(0.0)
    spread = directions.T * variances.clamp_min(0.0).where(variances > floor, 0.0).sqrt()[:, None]
    # A sum of the two Gram matrices instead of stacking would square the condition number.
    means = moments.means * moments.counts.double().sqrt()[:, None]
    if len(means) > blocks.MANY_CLASSES and len(means) > moments.dim:
        means = upper_factor(means).triu()
    sizes = torch.linalg.svdvals(torch.cat([spread, means]))
    shares = sizes / sizes.sum()
    return float(torch.special.entr(shares).sum().exp())


def stable_rank_weights(weight: Tensor) -> float:
    r"""Stable rank of the classifier: its squared norm over its largest squared singular value.

    $$\|W\|_F^2/\|W\|_2^2$$

    Range: [1, min(C, d)]; C - 1 at collapse. Rows are not centred.
    Invariant to: rotation, scale.

    Costs a GEMM of C x d by the smaller of the two and its eigenvalues.

    >>> stable_rank_weights(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    1.25
    """
    rows = scaled_rows(weight)
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return float(gram.trace() / torch.linalg.eigvalsh(gram)[-1])
