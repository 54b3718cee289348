"""The problem behind the worst case: cosine, loss and norms of (W, H) with their gradients."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements.inequality import norms, units

SMALLEST_NORM = 1e-150
"""Norms below this count as this where one divides by them."""
SMALLEST_SHARE = 1e-6
"""Smallest excess over optimal loss; their difference then has nine digits."""


@dataclass(frozen=True)
class Search:
    """One constrained problem: its bounds, and which samples are free.

    At the optimum the loss is m and the classes are as far apart as can be.

    >>> search = pose(3, 2.0, 0.1, 1, None, 2)
    >>> etf = search.optimum()
    >>> abs(search.excess_and_gradient(etf)[0]) < 1e-15
    True
    >>> round(search.cosine_and_gradient(etf)[0], 12)
    -0.5
    """

    num_classes: int
    product: float
    excess: float
    per_class: int
    dim: int
    free: int
    """Classes 0 to free - 1 have `per_class` samples, the others one of that weight."""
    labels: NDArray[np.intp]
    """The class of every row of H."""
    weights: FloatArray
    """The share of every row of H in a mean over samples."""

    @property
    def lowest(self) -> float:
        """m."""
        return g(self.product, self.num_classes)

    @property
    def step(self) -> float:
        """Typical distance from the optimum, in units of its norm."""
        return math.sqrt(self.excess / self.lowest)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return (self.num_classes + len(self.labels)) * self.dim

    def split(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """W and the rows of H."""
        rows = point.reshape(-1, self.dim)
        return rows[: self.num_classes], rows[self.num_classes :]

    def optimum(self) -> FloatArray:
        """The simplex ETF with the norms allowed."""
        frame = math.sqrt(self.product) * simplex_etf(self.num_classes, self.dim).numpy()
        return np.concatenate([frame, frame[self.labels]]).ravel()

    def excess_and_gradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Loss above m, and its gradient."""
        W, H = self.split(point)
        rows = np.arange(len(H))
        logits = H @ W.T
        gaps = logits - logits[rows, self.labels][:, None]
        gaps[rows, self.labels] = -np.inf
        top = np.maximum(gaps.max(1), 0.0)
        exps = np.exp(gaps - top[:, None])
        others = exps.sum(1)
        total = others + np.exp(-top)
        # log1p keeps losses that log(sum) would round away.
        loss = np.where(top > 0, top + np.log(total), np.log1p(others))
        slopes = exps / total[:, None]
        slopes[rows, self.labels] = -others / total
        slopes *= self.weights[:, None]
        gradient = np.concatenate([slopes.T @ H, slopes @ W]).ravel()
        return float(self.weights @ loss) - self.lowest, gradient

    def fits(self, point: FloatArray) -> bool:
        """Whether the loss is within its bound."""
        return self.excess_and_gradient(point)[0] <= self.excess

    def norm_slack(self, point: FloatArray) -> FloatArray:
        """How far the two square norms are below their bounds, relative to them."""
        W, H = self.split(point)
        squares = [np.square(W).sum() / self.num_classes, self.weights @ np.square(H).sum(1)]
        return 1 - np.array(squares) / self.product

    def norm_slack_gradient(self, point: FloatArray) -> FloatArray:
        """Rows are the gradients of the two slacks."""
        W, H = self.split(point)
        none_w, none_h = np.zeros_like(W), np.zeros_like(H)
        of_w = np.concatenate([W / self.num_classes, none_h]).ravel()
        of_h = np.concatenate([none_w, self.weights[:, None] * H]).ravel()
        return np.stack([of_w, of_h]) * (-2 / self.product)

    def cosine_and_gradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Intra of class 0 if it alone is free, else inter of classes 0 and 1."""
        H = self.split(point)[1]
        unit = units(H)
        lengths = np.maximum(norms(H), SMALLEST_NORM)
        gradient = np.zeros((self.num_classes + len(H), self.dim))
        count = self.per_class
        parts = [slice(c * count, (c + 1) * count) for c in range(self.free)]
        means = [unit[part].mean(0) for part in parts]
        for part, other in zip(parts, reversed(means), strict=True):
            along = unit[part] @ other
            across = (other - along[:, None] * unit[part]) / lengths[part, None]
            gradient[self.num_classes :][part] = across * ((3 - self.free) / count)
        return float(means[0] @ means[-1]), gradient.ravel()


def pose(
    num_classes: int, product: float, excess: float, per_class: int, dim: int | None, free: int
) -> Search:
    """The problem, if it can be posed.

    >>> pose(3, 2.0, 0.1, 2, None, 1).labels.tolist()
    [0, 0, 1, 2]
    """
    size = num_classes + 1 if dim is None else dim
    if num_classes < 2 or per_class < 1 or size < num_classes - 1:
        raise DataError(
            f"Expected at least 2 classes, 1 sample per class and dimension C - 1 or more, "
            f"got {num_classes}, {per_class} and {size}."
        )
    if not (0 < product < math.inf and 0 < excess < math.inf):
        raise DataError(
            f"Expected a positive product of norms and a positive excess, "
            f"got {product} and {excess}."
        )
    if excess < SMALLEST_SHARE * g(product, num_classes):
        raise DataError(
            f"Expected an excess of at least {SMALLEST_SHARE} of the optimal loss, "
            f"{g(product, num_classes):.3g}, got {excess}: below that rounding decides."
        )
    repeats = np.where(np.arange(num_classes) < free, per_class, 1)
    labels = np.repeat(np.arange(num_classes), repeats)
    weights = np.repeat(1 / (repeats * num_classes), repeats)
    return Search(num_classes, product, excess, per_class, size, free, labels, weights)
