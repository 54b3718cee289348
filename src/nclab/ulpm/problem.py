r"""The unconstrained layer-peeled model: its loss, gradient and margins at any scale.

A point is one array `theta` of shape (C + CN, d): the C classifier rows W, then the CN features H,
class by class. All computations use logarithms, so losses as small as 1e-400 keep their digits.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError, NclabError

Array = NDArray[np.float64]
Reduction = Literal["mean", "sum"]

HUGE = 1e150
"""Largest absolute value allowed in a point; squares of larger numbers overflow in float64."""
TINY_LOG = -37.0
"""For a below this value, log(1 + e^a) equals e^a in float64."""


@dataclass(frozen=True)
class Problem:
    """The sizes of the model, and whether the loss is the sum or the mean over samples.

    ji2022 writes K, n for our C, N. The loss in its Eq. (4) is the sum, but its learning rate of 5
    is stable only for the mean, which is therefore the default here. With the sum, descent with
    this rate diverges or, if the start has a scale far below 0.01, mostly does not collapse.

    >>> problem = Problem(num_classes=5, per_class=10, dim=20)
    >>> problem.samples, problem.shape
    (50, (55, 20))
    """

    num_classes: int
    per_class: int
    dim: int
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise NclabError(f"Expected at least 2 classes, got {self.num_classes}.")
        if self.per_class < 1:
            raise NclabError(f"Expected at least 1 sample per class, got {self.per_class}.")
        if self.dim < self.num_classes - 1:
            raise NclabError(
                f"Expected dimension {self.num_classes - 1} or more, got {self.dim}: a smaller "
                f"dimension has no simplex ETF of {self.num_classes} classes."
            )
        if self.reduction not in ("mean", "sum"):
            raise NclabError(f"Expected reduction mean or sum, got {self.reduction!r}.")

    @property
    def samples(self) -> int:
        """Number of samples, CN."""
        return self.num_classes * self.per_class

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_classes + self.samples, self.dim

    @property
    def share(self) -> float:
        """Weight of one sample in the loss: 1 for the sum, 1/(CN) for the mean."""
        return 1.0 / self.samples if self.reduction == "mean" else 1.0

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(CN,) the class of every feature."""
        return np.repeat(np.arange(self.num_classes), self.per_class)

    @cached_property
    def label_positions(self) -> NDArray[np.int64]:
        """(CN,) index of each label's logit in a flattened (C, CN) array of logits."""
        return self.labels * self.samples + self.rows

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(CN,) index of each feature: 0, 1, 2, ..."""
        return np.arange(self.samples)

    def split(self, theta: Array) -> tuple[Array, Array]:
        """Return W (C, d) and H (CN, d) as views of a point."""
        return theta[: self.num_classes], theta[self.num_classes :]

    def join(self, weight: Any, features: Any) -> Array:
        """Return a checked point from W (C, d) and H (CN, d).

        >>> Problem(2, 1, 1).join([[1.0], [-1.0]], [[2.0], [-2.0]]).ravel().tolist()
        [1.0, -1.0, 2.0, -2.0]
        """
        W, H = np.asarray(weight, dtype=np.float64), np.asarray(features, dtype=np.float64)
        for name, array, rows in (("W", W, self.num_classes), ("H", H, self.samples)):
            if array.shape != (rows, self.dim):
                advice = f" Pass {name}.T." if array.shape == (self.dim, rows) else ""
                raise DataError(
                    f"Expected {name} of shape {(rows, self.dim)}, got {array.shape}.{advice}"
                )
        return self.checked(np.concatenate([W, H]))

    def checked(self, theta: Any) -> Array:
        """Return a point as float64; raise if its shape is wrong or an entry is not finite."""
        point = np.asarray(theta, dtype=np.float64)
        if point.shape != self.shape:
            raise DataError(f"Expected a point of shape {self.shape}, got {point.shape}.")
        if not np.isfinite(point).all():
            row_of_point, column = np.argwhere(~np.isfinite(point))[0]
            name = "W" if row_of_point < self.num_classes else "H"
            row = row_of_point if name == "W" else row_of_point - self.num_classes
            raise DataError(
                f"Expected finite numbers, got {point[row_of_point, column]} at "
                f"{name}[{row}, {column}]."
            )
        largest = float(np.abs(point).max())
        if largest > HUGE:
            raise DataError(f"Expected numbers up to {HUGE:g} in size, got {largest:g}.")
        return point

    def initial(self, *, scale: float = 0.1, seed: int = 0) -> Array:
        """Return a random point of Gaussian numbers with standard deviation `scale`."""
        if not (math.isfinite(scale) and scale > 0):
            raise NclabError(f"Expected a positive scale, got {scale}.")
        if scale > HUGE:
            raise NclabError(f"Expected a scale up to {HUGE:g}, got {scale:g}.")
        generator = np.random.default_rng(seed)
        return scale * generator.standard_normal(self.shape)


class LogitGradient(NamedTuple):
    """log L and its derivative with respect to the logits."""

    log_loss: float
    weights: Array
    """(CN, C) derivative of log L: negative for the label, else positive; each row sums to 0."""


def logit_gradient(problem: Problem, theta: Array, share: Array | None = None) -> LogitGradient:
    """Return log L and its derivative with respect to the logits.

    `share` (CN,) are the weights of the samples in the loss; by default all equal `problem.share`.
    """
    W, H = problem.split(theta)
    logits = W @ H.T  # (C, CN): reductions over classes then run along rows.
    logits -= logits.ravel()[problem.label_positions]
    logits.ravel()[problem.label_positions] = -np.inf
    top = np.maximum.reduce(logits, 0)
    logits -= top
    weights = np.exp(logits, out=logits)
    sums = np.add.reduce(weights, 0)
    log_odds = top + np.log(sums)  # (CN,) log of sum_j e^{z_j - z_y}
    if log_odds.max() < TINY_LOG:
        log_losses, losses = log_odds, np.exp(log_odds)
    else:
        losses = np.logaddexp(0.0, log_odds)
        exact = np.log(np.maximum(losses, math.exp(TINY_LOG)))
        log_losses = np.where(log_odds < TINY_LOG, log_odds, exact)
    largest = log_losses.max()
    shares = problem.share if share is None else share
    log_loss = float(largest + np.log(np.add.reduce(shares * np.exp(log_losses - largest))))
    # p_j / L with p_j = e^{z_j - z_y - loss}; the label's weight is minus the sum, never 1 - p.
    factor = shares * np.exp(log_odds - losses - log_loss)
    weights *= factor / sums
    weights.ravel()[problem.label_positions] = -factor
    return LogitGradient(log_loss, weights.T)


def log_loss(problem: Problem, theta: Array) -> float:
    r"""Return the logarithm of the model's loss.

    $$\log L,\quad L = \sum_{k,i} \log\Bigl(1+\sum_{j\ne k} e^{(w_j-w_k)\cdot h_{k,i}}\Bigr)$$

    Source: ji2022, Eq. (4) (or its mean over samples)
    Range: (-inf, inf); log log C at zero for the mean.

    >>> problem = Problem(3, 1, 2)
    >>> round(math.exp(log_loss(problem, np.zeros(problem.shape))), 6)
    1.098612
    """
    return logit_gradient(problem, theta).log_loss


class LogGradient(NamedTuple):
    """log L and its gradient."""

    log_loss: float
    gradient: Array
    """(C + CN, d) gradient of log L, equal to grad L / L, and finite however small L is."""


def log_gradient(problem: Problem, theta: Array) -> LogGradient:
    r"""Return the logarithm of the loss and its gradient.

    $$\nabla\log L = \nabla L / L$$

    Source: ji2022, Eq. (4)
    """
    W, H = problem.split(theta)
    value, weights = logit_gradient(problem, theta)
    gradient = np.empty_like(theta)
    np.matmul(weights.T, H, out=gradient[: problem.num_classes])
    np.matmul(weights, W, out=gradient[problem.num_classes :])
    return LogGradient(value, gradient)


def pair_margins(problem: Problem, theta: Array) -> Array:
    r"""Return the (CN, C) margins: the label's logit minus the logit of each other class.

    $$m_{kij} = (w_k - w_j)\cdot h_{k,i}$$

    The entry of the label itself is inf.

    Source: ji2022, Eq. (5)
    Range: (-inf, inf).

    >>> pair_margins(Problem(2, 1, 1), np.array([[1.0], [-1.0], [2.0], [-2.0]])).tolist()
    [[inf, 4.0], [4.0, inf]]
    """
    W, H = problem.split(theta)
    logits = H @ W.T  # (CN, C)
    margins: Array = logits[problem.rows, problem.labels][:, None] - logits
    margins[problem.rows, problem.labels] = np.inf
    return margins


def smallest_margin(problem: Problem, theta: Array) -> float:
    r"""Return the smallest margin of all samples.

    $$q_{\min} = \min_{k,i,j\ne k} m_{kij}$$

    Source: ji2022, Def. 3.1
    Range: (-inf, inf); positive when every sample is classified correctly.
    """
    return float(pair_margins(problem, theta).min())


def largest_margin(problem: Problem, square_norm: float) -> float:
    r"""Return an upper bound on the smallest margin for a given norm; simplex ETFs attain it.

    $$q_{\min} \le \frac{\|W\|_F^2+\|H\|_F^2}{2(C-1)\sqrt N}$$

    Source: ji2022, Lemma 3.1
    Range: [0, inf).
    """
    return square_norm / (2 * (problem.num_classes - 1) * math.sqrt(problem.per_class))


def optimal_log_loss(problem: Problem, square_norm: float) -> float:
    r"""Return the logarithm of the smallest loss for $\|W\|_F^2+\|H\|_F^2=r^2$ = `square_norm`.

    $$L^* = NC\log\Bigl(1+(C-1)\exp\Bigl(-\frac{r^2}{2(C-1)\sqrt N}\Bigr)\Bigr)$$

    Source: ji2022, Thm 3.3 (its value; the paper characterises the minimisers)
    Range: (-inf, log log C] for the mean; attained since d >= C - 1.
    """
    log_odds = math.log(problem.num_classes - 1) - largest_margin(problem, square_norm)
    single = log_odds if log_odds < TINY_LOG else math.log(math.log1p(math.exp(log_odds)))
    return single + math.log(problem.samples * problem.share)


class Invariants(NamedTuple):
    """Quantities of a point that do not change along gradient flow."""

    balance: Array
    """(d, d) WᵀW - HᵀH, where the rows of H are the features."""
    row_sum: Array
    """(d,) sum of the classifier rows."""


def invariants(problem: Problem, theta: Array) -> Invariants:
    r"""Return two quantities that gradient flow conserves.

    $$W^TW - HH^T,\qquad \sum_k w_k$$

    In this formula, the columns of H are the features; $w_k$ are the rows of W.

    Source: ji2022, Eq. (4) (a property of its flow that the paper does not state)
    """
    W, H = problem.split(theta)
    return Invariants(W.T @ W - H.T @ H, W.sum(0))


def invariant_drift(before: Invariants, after: Invariants) -> float:
    """Return the relative change (in Frobenius norm) of the invariant that changed more."""
    drifts = []
    for old, new in zip(before, after, strict=True):
        size, change = float(np.linalg.norm(old)), float(np.linalg.norm(new - old))
        drifts.append(change / size if size > 0 else change)
    return max(drifts)
