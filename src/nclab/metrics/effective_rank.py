"""Effective ranks: the number of directions that features, class means and classifiers use."""

import torch
from torch import Tensor

from nclab.metrics.nc1_variability import DOUBTFUL, snr_spectrum
from nclab.metrics.rows import scaled_rows, upper_factor
from nclab.metrics.view import remark
from nclab.statistics import ClassMoments, blocks
from nclab.statistics.sums import unit_error


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
    return _exp_entropy(torch.linalg.svdvals(torch.cat([spread, means])))


def lidar(moments: ClassMoments) -> float:
    r"""Effective rank of the class means after whitening by the covariance within classes.

    $$\exp\Bigl(-\sum_k p_k\log p_k\Bigr),\quad p_k\propto
      \text{ eigenvalues of }\Sigma_W^{-1/2}\Sigma_B\Sigma_W^{-1/2}$$

    Source: thilak2024, Def. of LiDAR
    Range: [1, min(C - 1, d)]; nan if nothing varies within classes. The paper's classes are the
        views of one image, and it adds 1e-4 to the diagonal of the within-class covariance.
    Invariant to: rotation, translation, scale.

    Needs the scatter. Costs what `snr_spectrum` costs, O(d^3 + C d^2).

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(lidar(moments), 12)
    1.0
    """
    signal = snr_spectrum(moments)
    remark(_hardly_varying(moments, float(signal.square().sum().sqrt())))
    return _exp_entropy(signal.square())


def _hardly_varying(moments: ClassMoments, signal: float) -> str | None:
    """Return a warning if the variance of the features in some direction is mere rounding."""
    variances = torch.linalg.eigvalsh(moments.within_scatter)
    largest = float(variances[-1])
    limits = torch.finfo(torch.float64)
    floor = moments.dim * limits.eps * largest
    possible = min(moments.dim, moments.total - moments.num_classes)
    above = variances[variances > floor]
    if largest <= 0 or signal == 0:
        return None
    smallest, error = float(above[0]), 4 * unit_error(moments)
    of_means = error * moments.size * (moments.total**0.5 / smallest**0.5) / signal
    vanishing = smallest < limits.tiny / limits.eps  # Squares this small have lost digits.
    exact = not vanishing and max(error * largest / smallest, of_means) < DOUBTFUL
    if exact and len(above) == possible:
        return None
    return (
        "lidar may be inaccurate: in some directions the variance of the features, relative to "
        f"other directions, is mere rounding ({len(above)} of {possible} directions are used)."
    )


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


def _exp_entropy(sizes: Tensor) -> float:
    """Return the exponential of the entropy of the sizes' shares; nan if all sizes are 0."""
    shares = sizes / sizes.sum()
    return float(torch.special.entr(shares).sum().exp()) if len(sizes) else float("nan")
