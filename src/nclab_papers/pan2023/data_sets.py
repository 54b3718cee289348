"""Data sets on which the statements of the thesis are tested, and the smallest loss by search."""

import math

import numpy as np
from numpy.typing import NDArray

from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import sample_losses

BoolArray = NDArray[np.bool_]
SIZES = (2, 3, 5, 12)
"""Numbers of elements of one data set."""


def numbers_with_subset(
    rng: np.random.Generator, count: int, size: int
) -> tuple[FloatArray, BoolArray]:
    """Draw numbers (count, size) of many scales with a subset: random, the largest, or two-valued.

    >>> x, chosen = numbers_with_subset(np.random.default_rng(0), 30, 5)
    >>> x.shape, bool(chosen.any(1).all())
    ((30, 5), True)
    """
    x = rng.normal(size=(count, size)) * 10 ** rng.uniform(-4, 1, size=(count, 1))
    x += rng.normal(size=(count, 1)) * 3
    chosen = rng.random((count, size)) < rng.uniform(0.1, 0.9, size=(count, 1))
    chosen[np.arange(count), rng.integers(size, size=count)] = True
    third = count // 3
    chosen[:third] = x[:third] >= np.median(x[:third], axis=1, keepdims=True)
    # With one value inside and another outside the subset the lemmas are tight.
    x[-third:] = np.where(chosen[-third:], x[-third:, :1], x[-third:, 1:2])
    return x, chosen


def vectors_around(
    rng: np.random.Generator, count: int, size: int, dim: int = 3
) -> tuple[FloatArray, FloatArray]:
    """Draw a vector (count, dim) and features (count, size, dim) that mostly point along it.

    In a third of the data sets a few short features are reversed, which is the worst case of the
    lemmas on mean unit features.

    >>> u, v = vectors_around(np.random.default_rng(0), 30, 5)
    >>> u.shape, v.shape
    ((30, 3), (30, 5, 3))
    """
    u = rng.normal(size=(count, dim))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    noise = rng.normal(size=(count, size, dim)) * 10 ** rng.uniform(-3, 0.3, size=(count, 1, 1))
    v = (u[:, None] + noise) * 10 ** rng.uniform(-1, 1, size=(count, 1, 1))
    v *= np.exp(rng.normal(size=(count, size, 1)) * rng.uniform(0, 1, size=(count, 1, 1)))
    third = count // 3
    is_reversed = rng.random((third, size, 1)) < 0.2
    v[-third:] = np.where(is_reversed, -1e-3 * v[-third:], v[-third:])
    return u * 10 ** rng.uniform(-1, 1, size=(count, 1)), v


def networks(
    rng: np.random.Generator, count: int, num_classes: int, per_class: int, *, extra_dim: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Draw weights (count, C, d) and features (count, C, N, d): simplex ETFs with various noise.

    >>> W, H = networks(np.random.default_rng(0), 7, 4, 2)
    >>> W.shape, H.shape
    ((7, 4, 4), (7, 4, 2, 4))
    """
    dim = num_classes - 1 + extra_dim
    frame = simplex_etf(num_classes, dim).numpy()
    size = 10 ** rng.uniform(-0.5, 0.5, size=(count, 1, 1))
    noise = 10 ** rng.uniform(-4, 0.5, size=(count, 1, 1))
    W = size * (frame + noise * rng.normal(size=(count, num_classes, dim)))
    spread = rng.normal(size=(count, num_classes, per_class, dim))
    H = size[..., None] * (frame[:, None] + noise[..., None] * spread)
    return W, H


def lowest_loss(num_classes: int, dim: int, *, product: float, starts: int = 4) -> float:
    """Return the smallest loss that a search finds for one feature per class, given alpha beta.

    >>> from nclab.theory.layer_peeled import g
    >>> bool(abs(lowest_loss(3, 2, product=2.0, starts=1) / g(2.0, 3) - 1) < 1e-6)
    True
    """
    from scipy.optimize import minimize

    size = math.sqrt(num_classes * product)

    def loss(flat: FloatArray) -> float:
        W, H = flat.reshape(2, num_classes, dim)
        W, H = (size * part / np.linalg.norm(part) for part in (W, H))
        return float(sample_losses(W, H[:, None]).mean())

    rng = np.random.default_rng(0)
    losses = (
        minimize(loss, rng.normal(size=2 * num_classes * dim), method="L-BFGS-B").fun
        for _ in range(starts)
    )
    return float(min(losses))
