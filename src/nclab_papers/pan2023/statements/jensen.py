"""Distance of a subset's mean from the mean of all when Jensen's inequality is nearly tight."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from nclab.errors import DataError
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import ROUNDING, BoolArray, Inequality, vectors

Function = Callable[[FloatArray], FloatArray]

NEWTON_STEPS = 60
"""Number of Newton steps; from above on a convex function, 60 reach the last digit."""
SERIES_BELOW = 0.03
"""Largest |x| for which exp(x) - 1 - x is computed as a series."""


def jensen_gap(x: ArrayLike, f: Function) -> FloatArray:
    r"""Return how much the mean of the values exceeds the value of the mean.

    $$\tfrac1N\sum_i f(x_i) - f(\tilde x)$$

    Source: pan2023, Lemma 2.4.1
    Range: [0, inf) for convex f, up to rounding.

    >>> float(jensen_gap([0.0, 2.0], np.square))
    1.0
    """
    points = vectors(x, "numbers (..., N)", 1)
    gap: FloatArray = f(points).mean(-1) - f(points.mean(-1))
    return gap


def jensen_weighted(x: ArrayLike, weights: ArrayLike, f: Function, modulus: float) -> Inequality:
    r"""Return both sides of Jensen's inequality for strongly convex functions, with weights.

    $$f\Bigl(\sum_i t_i x_i\Bigr) \le \sum_i t_i f(x_i) - c\sum_i t_i (x_i-\tilde x)^2$$

    Source: pan2023, Lemma 2.4.2
    Range: weights that sum to one; f strongly convex of modulus c, which is 2c-strongly convex.

    >>> both = jensen_weighted([0.0, 2.0], [0.5, 0.5], np.square, 1.0)
    >>> float(both.left), float(both.right), both.always
    (1.0, 1.0, True)
    """
    points = vectors(x, "numbers (..., N)", 1)
    shares = vectors(weights, "weights (..., N)", 1)
    if (shares < 0).any() or not np.allclose(shares.sum(-1), 1.0, rtol=0, atol=1e-12):
        raise DataError("Expected weights >= 0 that sum to 1. Divide them by their sum.")
    mean = (shares * points).sum(-1)
    values, spread = f(points), np.square(points - mean[..., None])
    left, right = f(mean), (shares * values).sum(-1) - modulus * (shares * spread).sum(-1)
    scale = np.abs(values).max(-1) + np.abs(left) + modulus * np.square(points).max(-1)
    return Inequality(left, "<=", right, "pan2023, Lemma 2.4.2", tolerance=ROUNDING * scale)


def jensen_variance(x: ArrayLike, f: Function, strong_convexity: ArrayLike) -> Inequality:
    r"""Compare the variance with the bound from a Jensen gap of a strongly convex function.

    $$\tfrac1N\sum_i (x_i-\tilde x)^2 \le \frac{2\varepsilon}{\lambda}$$

    Source: pan2023, Cor. 2.4.1
    Range: f lambda-strongly convex where the data lie; the gap is measured from the data.

    >>> both = jensen_variance([0.0, 2.0], np.square, 2.0)
    >>> float(both.left), float(both.right)
    (1.0, 1.0)
    """
    points = vectors(x, "numbers (..., N)", 1)
    convexity = np.asarray(strong_convexity, dtype=np.float64)
    gap, rounding = gap_with_rounding(points, f)
    left = points.var(-1)
    tolerance = 2 * rounding / convexity + ROUNDING * np.square(points).max(-1)
    source = "pan2023, Cor. 2.4.1"
    return Inequality(left, "<=", 2 * gap / convexity, source, convexity > 0, tolerance)


def jensen_subset_mean(
    x: ArrayLike, subset: ArrayLike, f: Function, strong_convexity: ArrayLike
) -> Inequality:
    r"""Compare the distance of a subset's mean from the mean of all with its bound.

    $$\bigl|\tilde x_S - \tilde x\bigr| \le
      \sqrt{\frac{2\varepsilon(1-\delta)}{\lambda\delta}},\quad \delta = |S|/N$$

    Source: pan2023, Lemma 2.4.1
    Range: S not empty; f lambda-strongly convex where the data lie. Tight: a parabola and data of
    two values reach equality.

    >>> both = jensen_subset_mean([0.0, 0.0, 3.0], [False, False, True], np.square, 2.0)
    >>> float(both.left), round(float(both.right), 12)
    (2.0, 2.0)
    """
    points = vectors(x, "numbers (..., N)", 1)
    convexity = np.asarray(strong_convexity, dtype=np.float64)
    mean, inside, share = _subset(points, subset)
    gap, rounding = gap_with_rounding(points, f)
    factor = 2 * (1 - share) / (convexity * np.where(share > 0, share, 1.0))
    right = np.sqrt(factor * gap)
    tolerance = np.sqrt(factor * (gap + rounding)) - right + ROUNDING * np.abs(points).max(-1)
    left = np.abs(inside - mean)
    applies = (share > 0) & (convexity > 0)
    return Inequality(left, "<=", right, "pan2023, Lemma 2.4.1", applies, tolerance)


def exponential_subset_mean(x: ArrayLike, subset: ArrayLike) -> Inequality:
    r"""Compare a subset's mean with its upper bound from the gap of the exponential.

    $$\tilde x_S \le \tilde x + \sqrt{\frac{2\varepsilon}{\delta e^{\tilde x}}},\quad
      \varepsilon = \tfrac1N\sum_i e^{x_i} - e^{\tilde x}$$

    Source: pan2023, Lemma 2.4.3
    Range: S not empty. Approached as delta goes to 0; see `exponential_subset_envelope`.

    >>> both = exponential_subset_mean([0.0, 0.0, 3.0], [False, False, True])
    >>> both.always, bool(both.slack > 0)
    (True, True)
    """
    points = vectors(x, "numbers (..., N)", 1)
    mean, inside, share = _subset(points, subset)
    gap, rounding = relative_exponential_gap(points)
    safe = np.where(share > 0, share, 1.0)
    right = np.sqrt(2 * gap / safe)
    tolerance = np.sqrt(2 * (gap + rounding) / safe) - right + ROUNDING * np.abs(points).max(-1)
    return Inequality(inside, "<=", mean + right, "pan2023, Lemma 2.4.3", share > 0, tolerance)


def exponential_subset_envelope(x: ArrayLike, subset: ArrayLike) -> Inequality:
    r"""Compare a subset's mean with the largest mean that the exponential's gap allows.

    $$\tilde x_S \le \tilde x + y,\quad
      \delta e^{y} + (1-\delta)e^{-y\delta/(1-\delta)} = 1+\varepsilon e^{-\tilde x}$$

    Source: pan2023, Lemma 2.4.3 (exact form)
    Range: S neither empty nor everything. Equality when the data have one value in S, one outside.

    >>> both = exponential_subset_envelope([0.0, 0.0, 3.0], [False, False, True])
    >>> float(both.left), round(float(both.right), 12)
    (3.0, 3.0)
    """
    points = vectors(x, "numbers (..., N)", 1)
    mean, inside, share = _subset(points, subset)
    gap, rounding = relative_exponential_gap(points)
    applies = (share > 0) & (share < 1)
    fraction = np.where(applies, share, 0.5)
    right = largest_rise(gap, fraction)
    tolerance = largest_rise(gap + rounding, fraction) - right
    tolerance = tolerance + ROUNDING * (np.abs(points).max(-1) + right)
    source = "pan2023, Lemma 2.4.3 (exact form)"
    return Inequality(inside, "<=", mean + right, source, applies, tolerance)


def largest_rise(gap: ArrayLike, share: ArrayLike) -> FloatArray:
    r"""Return the rise y of a share of the data that uses up a relative gap of the exponential.

    $$\delta(e^{y}-1) + (1-\delta)(e^{-y\delta/(1-\delta)}-1) = \varepsilon e^{-\tilde x}$$

    Source: pan2023, Lemma 2.4.3 (exact form)
    Range: [0, sqrt(2 gap / share)].

    >>> y = float(largest_rise(0.1, 0.5))
    >>> float(round(np.cosh(y) - 1, 12))
    0.1
    """
    target = np.asarray(gap, dtype=np.float64)
    delta = np.asarray(share, dtype=np.float64)
    if not ((delta > 0) & (delta < 1)).all() or not (target >= 0).all():
        raise DataError("Expected shares in (0, 1) and gaps >= 0; some are outside.")
    ratio = delta / (1 - delta)
    # Two upper bounds: the lemma's, and delta e^y <= 1 + gap.
    y = np.minimum(np.sqrt(2 * target / delta), np.log((1 + target) / delta))
    for _ in range(NEWTON_STEPS):
        value = delta * exp_excess(y) + (1 - delta) * exp_excess(-ratio * y) - target
        slope = delta * (np.expm1(y) - np.expm1(-ratio * y))
        y = np.maximum(y - value / np.where(slope > 0, slope, np.inf), 0.0)
    return y


def exp_excess(x: FloatArray) -> FloatArray:
    r"""Return the exponential minus its tangent at 0, without cancellation.

    $$e^x - 1 - x$$

    Source: pan2023, Lemma 2.4.3 (proof)
    Range: [0, inf).

    >>> float(exp_excess(np.array(1e-9))) == 5e-19 * (1 + 1e-9 / 3)
    True
    """
    series = np.zeros_like(x)
    for order in range(9, 2, -1):
        series = x / order * (1 + series)
    result: FloatArray = np.where(
        np.abs(x) < SERIES_BELOW, np.square(x) / 2 * (1 + series), np.expm1(x) - x
    )
    return result


def _subset(points: FloatArray, subset: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean of all, the mean of the subset (0 if empty) and the subset's share."""
    chosen: BoolArray = np.asarray(subset, dtype=np.bool_)
    if chosen.shape != points.shape:
        raise DataError(
            f"Expected one True or False per number, shape {points.shape}, got {chosen.shape}."
        )
    count = chosen.sum(-1)
    inside = np.where(chosen, points, 0.0).sum(-1) / np.maximum(count, 1)
    return points.mean(-1), inside, count / points.shape[-1]


def gap_with_rounding(points: FloatArray, f: Function) -> tuple[FloatArray, FloatArray]:
    """Return the Jensen gap, at least 0, and its rounding error.

    >>> float(gap_with_rounding(np.array([0.0, 2.0]), np.square)[0])
    1.0
    """
    gap = np.maximum(jensen_gap(points, f), 0.0)
    return gap, ROUNDING * np.abs(f(points)).max(-1)


def relative_exponential_gap(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the gap of the exponential over exp of the mean, and its rounding error.

    >>> round(float(relative_exponential_gap(np.log([1.0, 4.0]))[0]), 12)
    0.25
    """
    deviations = points - points.mean(-1, keepdims=True)
    excess, slope = exp_excess(deviations), np.abs(np.expm1(deviations))
    largest = np.abs(points).max(-1) + np.abs(deviations).max(-1)
    # The rounding error of a deviation is that of the subtracted numbers.
    return excess.mean(-1), ROUNDING * (excess.max(-1) + slope.max(-1) * largest)
