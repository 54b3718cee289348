"""NC1, variability collapse: how small the spread within classes is beside that between them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.pairs import PairTile
from nclab.metrics.rows import mean_distances, mean_pairs, upper_factor
from nclab.metrics.view import remark
from nclab.statistics import ClassMoments, SecondPass, blocks
from nclab.statistics.norms import norm, unit_rows

DOUBTFUL = 1e-6
"""Relative error of the smallest mode from which on a result says so."""
DOUBTFUL_INPUT = 0.05
"""The same where the error is that of the features as they came."""


class Whitening(NamedTuple):
    r"""X (d, r) with $X X^T = (\dot M^T \dot M)^\dagger$, on the modes above rounding."""

    matrix: Tensor
    dropped: int
    """How many of the min(C - 1, d) possible modes fell under the tolerance."""
    tolerance: float
    """max(C, d) * eps * max(largest singular value, largest norm of a class mean)."""
    of_input: float = 0.0
    """What rounding of the features as they came does to singular values; the larger counts."""
    smallest: float = math.inf
    """The smallest singular value that was kept; inf where it is far above the tolerance."""

    @property
    def warning(self) -> str | None:
        """What a reader must know about dropped or doubtful modes, if there are any."""
        error = 2 * self.tolerance / self.smallest
        error_of_input = self.of_input / (2 * self.smallest)  # four times what is likely
        if self.dropped:
            below = max(self.tolerance, self.of_input)
            where = "rounding" if below == self.tolerance else "rounding of the features"
            return (
                f"nc1_trace_pinv leaves out {self.dropped} of "
                f"{self.dropped + self.matrix.shape[1]} modes of the class means: their singular "
                f"values are below {below:.3g}, the size of {where}. "
                "Classes with the same mean make it too small."
            )
        if error_of_input >= max(DOUBTFUL_INPUT, error):
            return (
                f"nc1_trace_pinv may be off by {error_of_input:.0%}: its smallest mode of the "
                "class means is hardly above the rounding of the features as they came."
            )
        if error < DOUBTFUL:
            return None
        return (
            f"nc1_trace_pinv is right to about {error:.1g} only: its smallest mode of the class "
            "means is hardly above rounding, as one class mean is far larger than the others."
        )


def whitening(
    centred_means: Tensor,
    *,
    mean_norm: float,
    of_input: float = 0.0,
    num_classes: int | None = None,
) -> Whitening:
    """The inverse root of the between-class scatter, through the SVD of the centred means.

    Not through the between-class covariance: that squares the condition number, and two class
    means 1e-4 apart would lose their mode in float32. A QR factor R of the means comes first;
    where the bound 1/|R^-1| on its smallest singular value shows that no mode is in doubt,
    R^-1 already is the answer and the SVD is saved. `mean_norm` is the largest norm of an
    uncentred class mean, to which the rounding of the centring is relative; `of_input` as from
    `input_rounding`. `num_classes` is C where the rows are R factors of the means, not the means.

    >>> found = whitening(torch.tensor([[3.0, 0.0], [-3.0, 0.0]]).double(), mean_norm=3.0)
    >>> [round(abs(x), 6) for x in found.matrix.flatten().tolist()], found.dropped
    ([0.235702, 0.0], 0)
    """
    dim = centred_means.shape[1]
    num_classes = num_classes or len(centred_means)
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
    # Coordinates in which no class mean differs are no part of any mode; LAPACK leaves rounding.
    vectors = vectors.masked_fill(~rows.any(0)[:, None], 0.0)
    possible = min(num_classes - 1, dim)
    tolerance = rounding * max(float(values[0]), mean_norm)
    rank = int((values[:possible] > max(tolerance, of_input)).sum())
    smallest = float(values[rank - 1]) if rank else math.inf
    matrix = vectors[:, :rank] / values[:rank]
    return Whitening(matrix, possible - rank, tolerance, of_input, smallest)


def input_rounding(moments: ClassMoments) -> float:
    r"""Singular values of class means below this may be rounding of the features as they came.

    Coordinates stored with relative error u are off by $u/\sqrt3$ of their size in the mean
    square, and a C x d matrix of independent errors has norm $\sqrt C + \sqrt d$ times theirs;
    four times that. Nothing for float64, whose rounding is that of the sums themselves.
    """
    if moments.unit <= torch.finfo(torch.float64).eps:
        return 0.0
    size = math.sqrt(float(moments.mean_square_norms.mean()) / moments.dim)
    modes = math.sqrt(moments.num_classes) + math.sqrt(moments.dim)
    return 4 * moments.unit / math.sqrt(3) * size * modes


def nc1_trace_pinv(moments: ClassMoments) -> float:
    r"""Within-class variability seen through the between-class covariance.

    $$\mathrm{NC1} = \tfrac1C \operatorname{tr}(\Sigma_W \Sigma_B^{\dagger})$$

    Source: papyan2020, Fig. 6
    Range: [0, inf); 0 at collapse, but blind to variance orthogonal to the class means.
    Invariant to: rotation, translation, scale.

    $\Sigma_W$ averages over samples, $\Sigma_B$ over classes. Codes that leave out 1/C report C
    times this number. A mode of the class means below rounding is left out with a warning.

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(nc1_trace_pinv(moments), 12)
    0.055555555556
    """
    return trace_pinv(moments.centred_means, moments)


def trace_pinv(centred_means: Tensor, moments: ClassMoments) -> float:
    """tr(Σ_W Σ_B†)/C for class means, or stacked R factors of them, centred in some way."""
    between = whitening(
        centred_means,
        mean_norm=moments.size,
        of_input=input_rounding(moments),
        num_classes=moments.num_classes,
    )
    value = trace_through(between, moments)
    remark(between.warning)
    remark(
        _wide_spread(between, moments, value) or _crossing(between, moments, centred_means, value)
    )
    return value


def _wide_spread(between: Whitening, moments: ClassMoments, value: float) -> str | None:
    r"""What to say where features spread so widely in one direction that the others drown in it.

    Each entry of Σ_W is rounded relative to $\sqrt{S_{kk} S_{ll}}$, so the trace is off by about
    $ε \sum_{kj} S_{kk} X_{kj}^2$: the square of the ratio of the spreads.
    """
    if not 0 < value < math.inf:
        return None
    spread = moments.within_scatter.diagonal() @ between.matrix.square()
    error = 16 * torch.finfo(torch.float64).eps * float(spread.sum()) / moments.total / value
    if error < DOUBTFUL:
        return None
    return (
        f"nc1_trace_pinv may be off by {min(error, 1.0):.1g} of itself: features spread so much "
        "wider in one direction than across the others that rounding there reaches all of them."
    )


def _crossing(
    between: Whitening, moments: ClassMoments, centred_means: Tensor, value: float
) -> str | None:
    r"""What to say where features spread nearly at right angles to the class means.

    Directions are rounded relative to their length, so of a spread across them $(ε |X|)^2$ tr S is
    seen, whatever there is. Coordinates in which no class mean differs are free of it.
    """
    eps = 16 * torch.finfo(torch.float64).eps
    spread, seen = moments.within_scatter.diagonal(), float(between.matrix.square().sum())
    least = eps**2 * seen * float(spread.sum()) / moments.total
    if not math.isfinite(least + value):
        return None
    if 2 * math.sqrt(least) <= DOUBTFUL * math.sqrt(max(value, 0.0)):
        return None
    if not bool(((spread > 0) & (centred_means != 0).any(0)).any()):
        return None
    return (
        f"nc1_trace_pinv is right to about {least:.1g} only and comes out as {value:.1g}: features "
        "spread so much wider across the class means than along them that it is rounding."
    )


def trace_through(between: Whitening, moments: ClassMoments) -> float:
    r"""tr(Σ_W Σ_B†)/C as $\operatorname{tr}(X^T Σ_W X)$; the two factors C cancel."""
    if between.matrix.shape[1] == 0:
        return float("inf") if float(moments.variances.sum()) > 0 else float("nan")
    along = (moments.within_scatter @ between.matrix) * between.matrix
    return float(along.sum()) / moments.total


def nc1_trace_pinv_sample_weighted(moments: ClassMoments) -> float:
    r"""`nc1_trace_pinv` with classes weighted by their sizes in the between-class covariance.

    $$\tfrac1C\operatorname{tr}(\Sigma_W\Sigma_B^\dagger),\quad
      \Sigma_B=\tfrac1{N}\sum_c n_c(\mu_c-\mu)(\mu_c-\mu)^T,\ \mu \text{ the mean of all samples}$$

    Source: papyan2020, Fig. 6 (the reading of codes that weight by sample)
    Range: [0, inf); equal to `nc1_trace_pinv` for balanced classes.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(nc1_trace_pinv_sample_weighted(moments), 12)
    0.055555555556
    """
    share = (moments.counts.double() / moments.total)[:, None]
    weighted = moments.centred_at(moments.sample_mean) * (share * moments.num_classes).sqrt()
    return trace_pinv(weighted, moments)


def nc1_trace_ratio(moments: ClassMoments) -> float:
    r"""Total variance within classes over total variance between them.

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


def nc1_trace_ratio_sample_weighted(moments: ClassMoments) -> float:
    r"""`nc1_trace_ratio` with classes weighted by their sizes in the between-class covariance.

    $$\frac{\operatorname{tr}\Sigma_W}{\tfrac1N\sum_c n_c\|\mu_c-\mu\|^2},\quad
      \mu \text{ the mean of all samples}$$

    Source: papyan2020, Sec. NC1 (weighted by sample)
    Range: [0, inf); equal to `nc1_trace_ratio` for balanced classes.
    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(nc1_trace_ratio_sample_weighted(moments), 12)
    0.166666666667
    """
    squares = moments.centred_at(moments.sample_mean).square().sum(1)
    between = float((squares * moments.counts).sum()) / moments.total
    return ratio(within_trace(moments), between)


def within_trace(moments: ClassMoments) -> float:
    """tr Σ_W: the mean squared distance of a sample to its class mean."""
    return float((moments.variances * moments.counts).sum()) / moments.total


def snr_spectrum(moments: ClassMoments) -> Tensor:
    r"""Signal-to-noise of the class means, mode by mode, largest first.

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
        means = upper_factor(means).triu()  # of the same singular values, however it is turned
    signal = means @ directions[:, varies]
    return torch.linalg.svdvals(signal / variances[varies].sqrt())


def cdnv(moments: ClassMoments) -> float:
    r"""Class-distance normalised variance, averaged over pairs of classes.

    $$\operatorname*{Avg}_{c<c'} \frac{v_c + v_{c'}}{2\|\mu_c-\mu_{c'}\|^2}$$

    Source: galanti2022, Def. 1
    Range: [0, inf); 0 at collapse; inf where two classes have the same mean.
    Invariant to: rotation, translation, scale.

    Costs half a C x C x d GEMM, in tiles.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> round(cdnv(moments), 12)
    0.041666666667
    """
    return mean_pairs(moments).distances.mean


def cdnv_pairs(moments: ClassMoments) -> Tensor:
    """The C x C array behind `cdnv`, zero on the diagonal.

    Invariant to: rotation, translation, scale.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-3.0, 0.0]], [0, 0, 1])
    >>> [[round(value, 6) for value in row] for row in cdnv_pairs(moments).tolist()]
    [[0.0, 0.013889], [0.013889, 0.0]]
    """
    directions = unit_rows(moments.centred_means, zero=0.0)
    everything = slice(0, moments.num_classes)
    tile = PairTile(everything, everything, directions @ directions.T)
    return mean_distances(moments).tile_values(tile).fill_diagonal_(0.0)


def nc1_within_variation(look: SecondPass) -> float:
    r"""Mean distance to the class mean over mean distance to the global mean.

    $$\frac{\operatorname{Avg}\|h_{c,i}-\mu_c\|}{\operatorname{Avg}\|h_{c,i}-\mu_G\|}$$

    Source: ji2022, Sec. 4 (2)
    Range: [0, inf); 0 at collapse. Norms, not squares; averages over samples.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> rows, labels = [[1.0], [3.0], [-1.0], [-3.0]], [0, 0, 1, 1]
    >>> nc1_within_variation(nclab.measure_features(rows, labels).look)
    0.5
    """
    return ratio(float(look.spread_sums.sum()), float(look.reach_sums.sum()))


def ratio(numerator: float, denominator: float) -> float:
    """A quotient of non-negative numbers: inf over zero, nan for 0/0."""
    if denominator > 0:
        return numerator / denominator
    return float("inf") if numerator > 0 else float("nan")
