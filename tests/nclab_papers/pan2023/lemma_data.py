"""Data for the lemmas of the thesis, adversarial ones among them, and when a lemma passes."""

import math
from collections.abc import Callable

import numpy as np

from nclab.metrics import simplex_etf
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import BoolArray, Inequality

DRAWS = 10_000
SIZES = (2, 3, 5, 12)


def assert_true(batches: list[Inequality], *, at_least: int = DRAWS) -> None:
    """No violation, and enough data sets that meet the hypotheses.

    Counted are only those whose tolerance for rounding is below a millionth of the two sides.
    """
    assert all(both.always for both in batches), min(
        float(np.where(both.applies, both.slack, np.inf).min()) for both in batches
    )
    telling = [
        both.applies & (both.tolerance <= 1e-6 * (np.abs(both.left) + np.abs(both.right)))
        for both in batches
    ]
    assert sum(int(np.asarray(these).sum()) for these in telling) >= at_least


def numbers(rng: np.random.Generator, size: int) -> tuple[FloatArray, BoolArray]:
    """Numbers of many scales with subsets: random, the largest ones, and two-valued data."""
    count = DRAWS
    x = rng.normal(size=(count, size)) * 10 ** rng.uniform(-6, 1, size=(count, 1))
    x += rng.normal(size=(count, 1)) * 3
    chosen = rng.random((count, size)) < rng.uniform(0.1, 0.9, size=(count, 1))
    chosen[np.arange(count), rng.integers(size, size=count)] = True
    third = count // 3
    chosen[:third] = x[:third] >= np.median(x[:third], axis=1, keepdims=True)
    # One value inside the subset, another outside: the data that make the lemmas tight.
    x[-third:] = np.where(chosen[-third:], x[-third:, :1], x[-third:, 1:2])
    return x, chosen


def softplus(classes: int) -> Callable[[FloatArray], FloatArray]:
    """The function of the thesis's proof."""
    return lambda x: np.logaddexp(0.0, math.log(classes - 1) + x)


def features_and_vectors(rng: np.random.Generator, size: int) -> tuple[FloatArray, FloatArray]:
    """Features from one cloud to none, norms over decades, some reversed, some nearly zero."""
    count, dim = DRAWS, 4
    centre = rng.normal(size=(count, 1, dim))
    h = centre + rng.normal(size=(count, size, dim)) * 10 ** rng.uniform(-4, 0.5, (count, 1, 1))
    h *= 10 ** (rng.uniform(-3, 0.5, (count, 1, 1)) * rng.normal(size=(count, size, 1)))
    third = count // 3
    # The tight data of Lemma 2.4.5: most along one direction, the rest tiny and against it.
    signs = np.where(rng.random((third, size, 1)) < 0.3, -(10 ** rng.uniform(-9, -1)), 1.0)
    h[:third] = centre[:third] * signs
    w = rng.normal(size=(count, dim))
    w[:third] = centre[:third, 0] * rng.uniform(0.5, 2, (third, 1))
    toward_mean = slice(third, 2 * third)
    w[toward_mean] = h[toward_mean].mean(1) + 0.1 * rng.normal(size=(third, dim))
    return h, w


def weights_and_features(
    rng: np.random.Generator, classes: int, count: int
) -> tuple[FloatArray, FloatArray]:
    """From an exact simplex ETF to noise, with N = 3; some give all their norm to one class."""
    dim = classes + 1
    etf = simplex_etf(classes, dim).numpy()
    noise = np.where(np.arange(count) % 10 == 0, 0.0, 10 ** rng.uniform(-6, 1, count))
    size = 10 ** rng.uniform(-1, 1.2, (count, 1, 1))
    w = size * (etf + noise[:, None, None] * rng.normal(size=(count, classes, dim)))
    h = etf[:, None] + noise[:, None, None, None] * rng.normal(size=(count, classes, 3, dim))
    w[5::10, 1:], h[5::10, 1:] = -w[5::10, :1] / (classes - 1), 0.0
    h[5::10, 0] = w[5::10, :1]
    return w, h
