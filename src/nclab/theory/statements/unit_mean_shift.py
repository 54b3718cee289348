"""Lemma 2.4.6: as printed with its counterexample, repaired, and the linear lemma behind it."""

import math

import numpy as np
from numpy.typing import ArrayLike

from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements.inequality import ROUNDING, Inequality, norms, units, vectors
from nclab.theory.statements.unit_means import Pairing, pairing


def opposed_cosine_printed(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""A vector opposed to the mean feature is opposed to the mean unit feature; as printed.

    $$\cos(w,\bar h) \le \frac{c}{\alpha\beta}
      + 4\Bigl(\frac{\varepsilon}{\alpha\beta}\Bigr)^{1/3},\quad c = w\cdot\tilde h \le 0,\;
      \tfrac1N\sum_i\|h_i\| \ge \alpha - \varepsilon/\beta$$

    Source: pan2023, Lemma 2.4.6
    Range: false, see `opposed_cosine_counterexample`; `opposed_cosine` asks more of the features.
    What epsilon is, our copy of the lemma does not say: this is what its proof begins with, and
    here epsilon is measured from the data, the strongest choice.

    >>> opposed_cosine_printed([1.0, 0.0], [[-1.0, 0.0], [-1.0, 0.1]]).always
    True
    """
    data = pairing(weight, features)
    return _cosine(data, data.length_ratio, "pan2023, Lemma 2.4.6")


def opposed_cosine_counterexample() -> Inequality:
    """Where Lemma 2.4.6 as printed fails: features of nearly one norm that nearly cancel.

    Eleven are (1, 0) and ten are (-1.1, 0): their mean is 0, and so is c, but the mean unit
    feature, however short, points along w.

    Source: pan2023, Lemma 2.4.6
    Range: cosine 1 against a claimed 0.42; the mean norm is within 0.0012 of alpha.

    >>> both = opposed_cosine_counterexample()
    >>> round(float(both.left), 3), round(float(both.right), 3), both.always
    (1.0, 0.417, False)
    """
    return opposed_cosine_printed([1.0, 0.0], [[10.0, 0.0]] * 11 + [[-11.0, 0.0]] * 10)


def opposed_inner(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""What the proof of Lemma 2.4.6 shows before it divides by the norm of the mean unit feature.

    $$w\cdot\bar h \le \frac c\alpha + 4\beta e^{1/3},\quad
      c = w\cdot\tilde h\le0,\ \tfrac1N\sum_i\|h_i\|\ge(1-e)\alpha$$

    Source: pan2023, Lemma 2.4.6 (proof)
    Range: e is measured from the data, the strongest choice. The cube root is not needed, see
    `opposed_inner_linear`.

    >>> opposed_inner([1.0, 0.0], [[10.0, 0.0]] * 11 + [[-11.0, 0.0]] * 10).always
    True
    """
    data = pairing(weight, features)
    missing = np.maximum(1 - data.length_ratio, 0.0)
    applies = (data.inner <= 0) & (data.rms > 0)
    right = data.inner / np.where(applies, data.rms, 1.0) + 4 * data.length * np.cbrt(missing)
    source = "pan2023, Lemma 2.4.6 (proof)"
    return Inequality(data.inner_units, "<=", right, source, applies, ROUNDING * data.length)


def opposed_inner_linear(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Lemma 2.4.6 for features with a long mean, with a linear error instead of a cube root.

    $$w\cdot\bar h \le \frac c\alpha + 2\beta(1-\rho^2),\quad
      c = w\cdot\tilde h\le0,\ \rho = \|\tilde h\|/\alpha \ge 1/\sqrt2$$

    Source: pan2023, Lemma 2.4.6 (linear)
    Range: 2(1 - rho²) is at most 4e for rho = 1 - e.

    With b the mean norm, w·h̄ is w·h̃/b plus the error that `unit_mean_shift_linear` bounds, and
    w·h̃/b ≤ c/α because b ≤ α and c ≤ 0.

    >>> both = opposed_inner_linear([1.0, 0.0], [[-1.0, 0.0], [-1.0, 0.1]])
    >>> both.always, bool(both.right < -0.98)
    (True, True)
    """
    data = pairing(weight, features)
    applies = (data.inner <= 0) & (data.ratio >= math.sqrt(0.5))
    error = 2 * data.length * (1 - np.square(data.ratio))
    right = data.inner / np.where(data.rms > 0, data.rms, 1.0) + error
    source = "pan2023, Lemma 2.4.6 (linear)"
    return Inequality(data.inner_units, "<=", right, source, applies, 4 * ROUNDING * data.length)


def opposed_cosine(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Lemma 2.4.6 for features whose mean is long, not only their norms.

    $$\cos(w,\bar h) \le \frac{c}{\alpha\beta} + 4e^{1/3},\quad
      c = w\cdot\tilde h\le0,\ \|\tilde h\|\ge(1-e)\alpha$$

    Source: pan2023, Lemma 2.4.6 (repaired)
    Range: e is measured from the data, the strongest choice. Where the theorem applies the lemma,
    with epsilon = alpha_c beta_c - w_c h_c, its features are such.

    The printed step, dividing by ‖h̄‖ ≤ 1, is right only where the bound is negative. The linear
    lemma closes the rest: with x = c/αβ, cos ≤ (x + 4e)/(1 - 4e) where x + 4e > 0, which is at
    most x + 4e^(1/3) for e ≤ 0.15; above that x ≥ e - 1 makes the right side exceed 1.

    >>> opposed_cosine([1.0, 0.0], [[10.0, 0.0]] * 11 + [[-11.0, 0.0]] * 10).always
    True
    """
    data = pairing(weight, features)
    return _cosine(data, data.ratio, "pan2023, Lemma 2.4.6 (repaired)")


def _cosine(data: Pairing, ratio: FloatArray, source: str) -> Inequality:
    """Both sides for the cosine, with e = 1 - ratio."""
    product = data.rms * data.length
    applies = (data.inner <= 0) & (product > 0) & (data.unit_mean_norm > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = data.inner_units / (data.length * data.unit_mean_norm)
        right = data.inner / product + 4 * np.cbrt(np.maximum(1 - ratio, 0.0))
    tolerance = ROUNDING / np.maximum(data.unit_mean_norm, ROUNDING)
    return Inequality(left, "<=", right, source, applies, tolerance)


def unit_mean_shift(features: ArrayLike) -> Inequality:
    r"""How far the mean unit feature is from the mean feature over the mean norm.

    $$\Bigl\|\bar h - \frac{\tilde h}{b}\Bigr\| \le
      \mathrm{cv}(\|h\|)\sqrt{1-\|\bar h\|^2},\quad b = \tfrac1N\sum_i\|h_i\|$$

    Source: pan2023, Lemma 2.4.6 (linear)
    Range: features not all zero; cv is the standard deviation of the norms over their mean.

    The difference is the covariance of the unit features with the relative norms, so
    Cauchy-Schwarz bounds it.

    >>> both = unit_mean_shift([[1.0, 0.0], [0.0, 3.0]])
    >>> round(float(both.left), 12) == round(float(both.right), 12)
    True
    """
    return _shift(features, linear=False)


def unit_mean_shift_linear(features: ArrayLike) -> Inequality:
    r"""How far the mean unit feature is from the mean feature over the mean norm, by rho alone.

    $$\Bigl\|\bar h - \frac{\tilde h}{b}\Bigr\| \le 2(1-\rho^2),\quad
      \rho = \|\tilde h\|/\alpha \ge 1/\sqrt2$$

    Source: pan2023, Lemma 2.4.6 (linear)
    Range: [0, 1]. From `unit_mean_shift` with cv² ≤ 1/rho² - 1 and Corollary 2.4.2.

    >>> both = unit_mean_shift_linear([[1.0, 0.0], [1.0, 0.5]])
    >>> both.always, both.tested
    (True, 1)
    """
    return _shift(features, linear=True)


def _shift(features: ArrayLike, *, linear: bool) -> Inequality:
    """Left side of both forms, with the right side asked for."""
    h = vectors(features, "features (..., N, d)", 2)
    lengths, unit_mean = norms(h), units(h).mean(-2)
    mean_length = lengths.mean(-1)
    applies = mean_length > 0
    safe = np.where(applies, mean_length, 1.0)
    left = norms(unit_mean - h.mean(-2) / safe[..., None])
    if linear:
        ratio_square = np.square(pairing(h.mean(-2), h).ratio)
        applies, right = ratio_square >= 0.5, 2 * (1 - ratio_square)
        rounding = np.full_like(left, 4 * ROUNDING)
    else:
        spread = np.maximum(1 - np.square(norms(unit_mean)), 0.0)
        variation = lengths.std(-1) / safe
        right = variation * np.sqrt(spread)
        # Near collapse both factors are differences of numbers near 1.
        rounding = (variation + ROUNDING) * np.sqrt(spread + ROUNDING) - right + ROUNDING
    return Inequality(left, "<=", right, "pan2023, Lemma 2.4.6 (linear)", applies, rounding)
