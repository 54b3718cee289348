"""NC1, variability collapse: the spread within classes relative to the spread between them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.view import NormalisedVariance, PairTile, mean_norms, mean_pairs, remark
from nclab.statistics import ClassMoments, SecondPass, blocks
from nclab.statistics.blocks import norm, unit_rows

DOUBTFUL = 1e-6
"""A metric warns if its relative error is at least this value."""
DOUBTFUL_INPUT = 0.05
"""A metric warns if rounding of the input features causes a relative error of at least this."""


class Whitening(NamedTuple):
    r"""A (d, r) matrix X with $X X^T = (\dot M^T \dot M)^\dagger$, for (C, d) centred means Ṁ.

    The modes of the means are their right singular vectors. X contains the r modes whose singular
    values are above rounding errors.
    """

    matrix: Tensor
    dropped: int
    """Number of modes, of min(C - 1, d) possible ones, with singular values below the tolerance."""
    tolerance: float
    """Bound on rounding errors: max(C, d) * eps * max(largest singular value, largest norm of a
    class mean)."""
    of_input: float = 0.0
    """Error of singular values caused by rounding of the input features.
    A mode is dropped if its singular value is below this value or below `tolerance`."""
    smallest: float = math.inf
    """The smallest of the r singular values; inf stands for a value far above the tolerance."""

    @property
    def warning(self) -> str | None:
        """Warning about dropped or inaccurate modes, if there are any."""
        error = 2 * self.tolerance / self.smallest
        error_of_input = self.of_input / (2 * self.smallest)  # Four times the likely error.
        if self.dropped:
            below = max(self.tolerance, self.of_input)
            where = "rounding" if below == self.tolerance else "rounding of the features"
            return (
                f"nc1_trace_pinv leaves out {self.dropped} of "
                f"{self.dropped + self.matrix.shape[1]} modes of the class means: their singular "
                f"values are below {below:.3g}, the size of {where}. If classes have equal means, "
                "the value is too small."
            )
        if error_of_input >= max(DOUBTFUL_INPUT, error):
            return (
                f"nc1_trace_pinv may be off by {error_of_input:.0%}: the smallest mode of the "
                "class means is hardly above the rounding of the input features."
            )
        if error < DOUBTFUL:
            return None
        return (
            f"nc1_trace_pinv is only accurate to about {error:.1g}: the smallest mode of the class "
            "means is hardly above rounding, as one class mean is far larger than the others."
        )


def whitening(centred_means: Tensor, *, mean_norm: float, of_input: float = 0.0) -> Whitening:
    """Return X with X X^T = pseudoinverse of the between-class scatter, from (C, d) centred means.

    X comes from an SVD of the means. Their covariance would square the condition number: two class
    means 1e-4 apart would lose their mode in float32. For C > d, the factor R of a QR decomposition
    comes first. If the bound 1/|R^-1| on the smallest singular value shows that all modes are above
    rounding, R^-1 is the result and no SVD is needed.

    Args:
        mean_norm: largest norm of an uncentred class mean, the scale of the rounding of centring.
        of_input: the result of `input_rounding` for these means.

    >>> between = whitening(torch.tensor([[3.0, 0.0], [-3.0, 0.0]]).double(), mean_norm=3.0)
    >>> [round(abs(x), 6) for x in between.matrix.flatten().tolist()], between.dropped
    ([0.235702, 0.0], 0)
    """
    num_classes, dim = centred_means.shape
    rounding = max(num_classes, dim) * torch.finfo(torch.float64).eps
    if num_classes > dim:
        factor = upper_factor(centred_means)
        identity = torch.eye(dim, dtype=factor.dtype, device=factor.device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=True)
        largest = max(float(torch.linalg.matrix_norm(centred_means)), mean_norm)
        bound = float(torch.linalg.matrix_norm(inverse))
        if 2 * bound * rounding * largest < DOUBTFUL and bound * of_input < 2 * DOUBTFUL_INPUT:
            return Whitening(inverse, 0, rounding * largest, of_input)
        rows = factor.triu()
        _, values, right = torch.linalg.svd(rows, full_matrices=False)
        vectors = right.T
    else:
        rows = centred_means
        basis, factor = torch.linalg.qr(centred_means.T)
        left, values, _ = torch.linalg.svd(factor, full_matrices=False)
        vectors = basis @ left
    # Coordinates in which all class means agree belong to no mode; LAPACK leaves rounding there.
    vectors = vectors.masked_fill(~rows.any(0)[:, None], 0.0)
    possible = min(num_classes - 1, dim)
    tolerance = rounding * max(float(values[0]), mean_norm)
    rank = int((values[:possible] > max(tolerance, of_input)).sum())
    smallest = float(values[rank - 1]) if rank else math.inf
    matrix = vectors[:, :rank] / values[:rank]
    return Whitening(matrix, possible - rank, tolerance, of_input, smallest)


def upper_factor(rows: Tensor) -> Tensor:
    """Return the (d, d) upper factor R of a QR decomposition of (C, d) rows with C > d.

    Entries below the diagonal are unused. Many rows are factorised in parts, each together with the
    factor of the rows before it. The result is equal up to rounding and needs no copy of all rows.

    >>> factor = upper_factor(torch.tensor([[3.0], [4.0]]).double())
    >>> abs(round(float(factor), 12))
    5.0
    """
    dim = rows.shape[1]
    if len(rows) <= blocks.MANY_CLASSES:
        return torch.geqrf(rows).a[:dim]  # R above the diagonal, reflectors below it.
    factor = rows[:0]
    for part in rows.split(8 * dim):
        factor = torch.geqrf(torch.cat([factor.triu(), part])).a[:dim]
    return factor


def input_rounding(moments: ClassMoments) -> float:
    r"""Return the singular value of class means below which rounding of the features dominates.

    Coordinates stored with relative error u have a root mean square error of $u/\sqrt3$ of their
    size. A C x d matrix of independent errors has a norm of $\sqrt C + \sqrt d$ times this error.
    The threshold is four times this norm. It is 0 for float64 features, because the sums have the
    same rounding error.
    """
    if moments.unit <= torch.finfo(torch.float64).eps:
        return 0.0
    size = math.sqrt(float(moments.mean_square_norms.mean()) / moments.dim)
    modes = math.sqrt(moments.num_classes) + math.sqrt(moments.dim)
    return 4 * moments.unit / math.sqrt(3) * size * modes


def nc1_trace_pinv(moments: ClassMoments) -> float:
    r"""Within-class variability relative to the between-class covariance.

    $$\mathrm{NC1} = \tfrac1C \operatorname{tr}(\Sigma_W \Sigma_B^{\dagger})$$

    Source: papyan2020, Fig. 6
    Range: [0, inf); 0 at collapse, but blind to variance orthogonal to the class means.
    Invariant to: rotation, translation, scale.

    $\Sigma_W$ is the covariance within classes, averaged over samples. $\Sigma_B$ is the covariance
    of the class means, with equal weights. Code without the factor 1/C reports C times this number.
    Modes of the class means that are only rounding errors are dropped with a warning.

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(nc1_trace_pinv(moments), 12)
    0.055555555556
    """
    centred_means: Tensor = moments.centred_means
    between = whitening(centred_means, mean_norm=moments.size, of_input=input_rounding(moments))
    if between.matrix.shape[1] == 0:
        value = ratio(float(moments.variances.sum()), 0.0)
    else:  # tr(X^T Σ_W X); the two factors C cancel.
        along = (moments.within_scatter @ between.matrix) * between.matrix
        value = float(along.sum()) / moments.total
    remark(between.warning)
    remark(
        _wide_spread(between, moments, value)
        or _spread_across(between, moments, centred_means, value)
    )
    return value


def _wide_spread(between: Whitening, moments: ClassMoments, value: float) -> str | None:
    r"""Return a warning if rounding in a direction of wide spread affects the other directions.

    With S the within-class scatter and X the matrix of `between`, the metric is proportional to
    tr(X^T S X). The entry $S_{kl}$ has a rounding error relative to $\sqrt{S_{kk} S_{ll}}$. So the
    trace is off by about $ε \sum_{kj} S_{kk} X_{kj}^2$, where ε is the rounding of float64. `value`
    is the value of the metric.
    """
    if not 0 < value < math.inf:
        return None
    spread = moments.within_scatter.diagonal() @ between.matrix.square()
    error = 16 * torch.finfo(torch.float64).eps * float(spread.sum()) / moments.total / value
    if error < DOUBTFUL:
        return None
    return (
        f"nc1_trace_pinv may be off by {min(error, 1.0):.1g} of its value: features spread so much "
        "wider in one direction than in the others that rounding errors there dominate the rest."
    )


def _spread_across(
    between: Whitening, moments: ClassMoments, centred_means: Tensor, value: float
) -> str | None:
    r"""Return a warning if features spread almost only orthogonally to the class means.

    Rounding rotates the columns of X, the matrix of `between`, by about ε. So scatter S orthogonal
    to the means contributes about $(ε |X|)^2$ tr S to the metric, instead of 0. Coordinates in
    which all class means agree contribute nothing. `value` is the value of the metric.
    """
    eps = 16 * torch.finfo(torch.float64).eps
    spread, square = moments.within_scatter.diagonal(), float(between.matrix.square().sum())
    smallest = eps**2 * square * float(spread.sum()) / moments.total
    if not math.isfinite(smallest + value):
        return None
    if 2 * math.sqrt(smallest) <= DOUBTFUL * math.sqrt(max(value, 0.0)):
        return None
    if not bool(((spread > 0) & (centred_means != 0).any(0)).any()):
        return None
    return (
        f"nc1_trace_pinv is only accurate to about {smallest:.1g}, and its value is {value:.1g}: "
        "features spread so much wider across the class means than along them that the value is "
        "mostly rounding."
    )


def nc1_trace_ratio(moments: ClassMoments) -> float:
    r"""Total variance within classes, divided by the total variance between them.

    $$\operatorname{tr}\Sigma_W / \operatorname{tr}\Sigma_B$$

    Source: papyan2020, Sec. NC1 (the ratio of traces, without the inverse)
    Range: [0, inf); 0 at collapse.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(nc1_trace_ratio(moments), 12)
    0.166666666667
    """
    between = norm(moments.centred_means) ** 2 / moments.num_classes
    return ratio(within_trace(moments), between)


def within_trace(moments: ClassMoments) -> float:
    """Return tr Σ_W, the mean squared distance of a sample to its class mean."""
    return float((moments.variances * moments.counts).sum()) / moments.total


def snr_spectrum(moments: ClassMoments) -> Tensor:
    r"""Signal-to-noise ratios of the class means, one for each mode, largest first.

    $$\text{singular values of } \Sigma_W^{-1/2}[\mu_c-\mu_G]_c
      \text{ on the range of } \Sigma_W$$

    Source: pan2023, Sec. 2.2 (the SNR it names)
    Range: [0, inf)^r; grows without bound at collapse; empty if nothing varies within classes.
    Invariant to: rotation, translation, scale.

    Costs an eigendecomposition of the d x d covariance and an SVD, O(d^3 + C d^2).

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> [round(value, 6) for value in snr_spectrum(moments).tolist()]
    [6.0, 0.0]
    """
    variances, directions = torch.linalg.eigh(moments.within_scatter / moments.total)
    floor = moments.dim * torch.finfo(torch.float64).eps * variances[-1].clamp_min(0.0)
    varies = variances > floor
    means = moments.centred_means
    if len(means) > blocks.MANY_CLASSES and len(means) > moments.dim:
        means = upper_factor(means).triu()  # It has the same singular values.
    signal = means @ directions[:, varies]
    return torch.linalg.svdvals(signal / variances[varies].sqrt())


def cdnv(moments: ClassMoments) -> float:
    r"""Class-distance normalised variance, averaged over pairs of classes.

    $$\operatorname*{Avg}_{c<c'} \frac{v_c + v_{c'}}{2\|\mu_c-\mu_{c'}\|^2}$$

    Source: galanti2022, Def. 1
    Range: [0, inf); 0 at collapse; inf where two classes have the same mean.
    Invariant to: rotation, translation, scale.

    $v_c$ is the mean squared distance of class c to its mean $\mu_c$. Costs half a C x C x d matrix
    product, in tiles.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(cdnv(moments), 12)
    0.041666666667
    """
    return mean_pairs(moments).distances.mean


def cdnv_pairs(moments: ClassMoments) -> Tensor:
    """The C x C array whose mean is `cdnv`, zero on the diagonal.

    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-3.0, 0.0]], [0, 0, 1])
    >>> [[round(value, 6) for value in row] for row in cdnv_pairs(moments).tolist()]
    [[0.0, 0.013889], [0.013889, 0.0]]
    """
    directions = unit_rows(moments.centred_means, zero=0.0)
    every_class = slice(0, moments.num_classes)
    tile = PairTile(every_class, every_class, directions @ directions.T)
    distances = NormalisedVariance(mean_norms(moments), moments.means, moments.variances)
    return distances.tile_values(tile).fill_diagonal_(0.0)


def rankme(moments: ClassMoments) -> float:
    r"""Effective rank of the features: the exponential of the entropy of their singular values.

    $$\exp\Bigl(-\sum_k p_k\log p_k\Bigr),\quad p_k=\sigma_k(H)/\sum_j\sigma_j(H)$$

    Source: garrido2023, Eq. of RankMe
    Range: [1, min(N, d)]; C - 1 at collapse with a zero global mean. Features are not centred.
        Uses singular values, not eigenvalues of the covariance. The paper adds 1e-7 to each p.
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


def nc1_within_variation(second_pass: SecondPass) -> float:
    r"""Mean distance to the class mean, divided by the mean distance to the global mean.

    $$\frac{\operatorname{Avg}\|h_{c,i}-\mu_c\|}{\operatorname{Avg}\|h_{c,i}-\mu_G\|}$$

    Source: ji2022, Sec. 4 (2)
    Range: [0, inf); 0 at collapse. Uses norms, not squares; averages over samples.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> rows, labels = [[1.0], [3.0], [-1.0], [-3.0]], [0, 0, 1, 1]
    >>> nclab.measure_features(rows, labels).nc1_within_variation
    0.5
    """
    return ratio(float(second_pass.spread_sums.sum()), float(second_pass.reach_sums.sum()))


def ratio(numerator: float, denominator: float) -> float:
    """Return a quotient of non-negative numbers: inf for a zero denominator, nan for 0/0."""
    if denominator > 0:
        return numerator / denominator
    return float("inf") if numerator > 0 else float("nan")
