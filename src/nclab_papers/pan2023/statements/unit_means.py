"""Mean features and mean unit features: Lemmas 2.4.4 to 2.4.6.

The unit vector of a zero vector is zero, as in the metrics; the lemmas allow it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import ROUNDING, Inequality, norms, units, vectors


class Pairing(NamedTuple):
    """Norms and inner products of a vector w and features h that the lemmas use."""

    rms: FloatArray
    """Root mean square norm alpha of the features."""
    length: FloatArray
    """Norm beta of the vector."""
    inner: FloatArray
    """Inner product c of the vector with the mean feature."""
    inner_units: FloatArray
    """Inner product of the vector with the mean unit feature."""
    mean_norm: FloatArray
    """Norm of the mean feature."""
    unit_mean_norm: FloatArray
    """Norm of the mean unit feature."""
    mean_length: FloatArray
    """Mean norm of the features."""

    @property
    def ratio(self) -> FloatArray:
        """Norm of the mean feature over alpha, in [0, 1]."""
        return _over(self.mean_norm, self.rms)

    @property
    def length_ratio(self) -> FloatArray:
        """Mean norm of the features over alpha, in [0, 1]."""
        return _over(self.mean_length, self.rms)


def cosine_identity(features: ArrayLike, others: ArrayLike) -> Inequality:
    r"""Compare the average cosine of two classes with the inner product of their mean unit
    features.

    $$\tfrac1{N^2}\sum_{i,j}\cos(h_{c,i},h_{c',j}) = \bar h_c\cdot\bar h_{c'}$$

    Source: pan2023, Lemma 2.4.4
    Range: features (..., N, d); twice the same class gives intra.

    >>> both = cosine_identity([[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0]])
    >>> float(both.left), float(both.right)
    (0.5, 0.5)
    """
    first = units(vectors(features, "features (..., N, d)", 2))
    second = units(vectors(others, "features (..., N, d)", 2))
    left = (first @ np.swapaxes(second, -1, -2)).mean((-1, -2))
    right = (first.mean(-2) * second.mean(-2)).sum(-1)
    return Inequality(left, "==", right, "pan2023, Lemma 2.4.4", tolerance=ROUNDING)


def unit_mean_norm(direction: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the norm of the mean unit feature with its bound, for features mostly along u.

    $$\Bigl\|\tfrac1N\sum_i\frac{v_i}{\|v_i\|}\Bigr\| \ge
      2\Bigl(\frac{c}{\alpha\beta}\Bigr)^2-1,\quad
      c = \tfrac1N\sum_i\langle u,v_i\rangle \ge \frac{\alpha\beta}{\sqrt2}$$

    Source: pan2023, Lemma 2.4.5
    Range: alpha, beta and c are measured from the data, the strongest choice. Tight.

    The printed proof rests on `ratio_sum_printed`, which is false. With r_i the cosine of u and
    v_i and r⁺ its positive part: Cauchy-Schwarz gives c ≤ αβ √mean(r⁺²); as r⁺ ≥ r⁺², both
    mean(r⁺) and the share of positive r_i are at least (c/αβ)², and the others are at least -1.

    >>> both = unit_mean_norm([1.0, 0.0], [[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [-1e-9, 0.0]])
    >>> float(both.left), round(float(both.right), 6)
    (0.5, 0.5)
    """
    data = pairing(direction, features)
    cosine = _over(data.inner, data.rms * data.length)
    applies = (cosine >= math.sqrt(0.5)) & (data.rms * data.length > 0)
    right = 2 * np.square(cosine) - 1
    source = "pan2023, Lemma 2.4.5"
    return Inequality(data.unit_mean_norm, ">=", right, source, applies, 4 * ROUNDING)


def unit_mean_norm_from_mean(features: ArrayLike) -> Inequality:
    r"""Compare the norm of the mean unit feature with its bound from the mean feature.

    $$\Bigl\|\tfrac1N\sum_i\frac{v_i}{\|v_i\|}\Bigr\| \ge
      2\Bigl(\frac{c}{\alpha}\Bigr)^2-1,\quad
      c = \Bigl\|\tfrac1N\sum_i v_i\Bigr\| \ge \frac{\alpha}{\sqrt2}$$

    Source: pan2023, Cor. 2.4.2
    Range: alpha and c are measured from the data, the strongest choice. Tight.

    >>> both = unit_mean_norm_from_mean([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> both.always, bool(both.slack > 0)
    (True, True)
    """
    array = vectors(features, "features (..., N, d)", 2)
    data = pairing(array.mean(-2), array)
    applies = data.ratio >= math.sqrt(0.5)
    right = 2 * np.square(data.ratio) - 1
    source = "pan2023, Cor. 2.4.2"
    return Inequality(data.unit_mean_norm, ">=", right, source, applies, 4 * ROUNDING)


def ratio_sum_printed(a: ArrayLike, b: ArrayLike) -> Inequality:
    r"""Return both sides of the false proposition in the printed proof of Lemma 2.4.5.

    $$\sum_i\frac{a_i}{b_i} \ge \frac{\sum_i a_i}{\sqrt{\sum_i b_i^2}}\sqrt N,\quad
      a_i\ge0,\ b_i>0$$

    Source: pan2023, Lemma 2.4.5 (proof, proposition by Lagrange multipliers)
    Range: false in general, see `ratio_sum_counterexample`; `ratio_sum` is what the lemma needs.

    >>> ratio_sum_printed([1.0, 1.0], [1.0, 1.0]).always
    True
    """
    tops, bottoms = vectors(a, "numbers (..., N)", 1), vectors(b, "numbers (..., N)", 1)
    left = (tops / bottoms).sum(-1)
    right = tops.sum(-1) / norms(bottoms) * math.sqrt(bottoms.shape[-1])
    applies = np.asarray(((tops >= 0) & (bottoms > 0)).all(-1))
    source = "pan2023, Lemma 2.4.5 (proof)"
    return Inequality(left, ">=", right, source, applies, ROUNDING * (left + np.abs(right)))


def ratio_sum_counterexample() -> Inequality:
    """Return a counterexample to `ratio_sum_printed`: all of a on the one large b, the other b
    tiny.

    Source: pan2023, Lemma 2.4.5 (proof)
    Range: sum 1 against a claimed 2.

    >>> both = ratio_sum_counterexample()
    >>> float(both.left), round(float(both.right), 6), both.always
    (1.0, 2.0, False)
    """
    return ratio_sum_printed([1.0, 0.0, 0.0, 0.0], [1.0, 1e-6, 1e-6, 1e-6])


def ratio_sum(a: ArrayLike, b: ArrayLike, beta: ArrayLike) -> Inequality:
    r"""Return both sides of a true proposition that the proof of Lemma 2.4.5 can use instead.

    $$\sum_i\frac{a_i}{b_i} \ge \frac{(\sum_i a_i)^2}{\beta\sum_i b_i^2},\quad
      0\le a_i\le\beta b_i$$

    Source: pan2023, Lemma 2.4.5 (proof, repaired)
    Range: the ratios r = a / (beta b) are at most 1, so r >= r²; then Cauchy-Schwarz.

    >>> both = ratio_sum([1.0, 0.0], [1.0, 1e-6], 1.0)
    >>> float(both.left), round(float(both.right), 6)
    (1.0, 1.0)
    """
    tops, bottoms = vectors(a, "numbers (..., N)", 1), vectors(b, "numbers (..., N)", 1)
    bound = np.asarray(beta, dtype=np.float64)
    left = (tops / bottoms).sum(-1)
    right = np.square(tops.sum(-1)) / (bound * np.square(bottoms).sum(-1))
    within = (tops >= 0) & (bottoms > 0) & (tops <= bound[..., None] * bottoms)
    applies, rounding = np.asarray(within.all(-1)), ROUNDING * (left + right)
    source = "pan2023, Lemma 2.4.5 (proof, repaired)"
    return Inequality(left, ">=", right, source, applies, rounding)


def pairing(vector: ArrayLike, features: ArrayLike) -> Pairing:
    """Return norms and inner products of a vector (..., d) and features (..., N, d).

    >>> float(pairing([1.0, 0.0], [[3.0, 4.0], [-3.0, 4.0]]).ratio)
    0.8
    """
    w = vectors(vector, "a vector (..., d)", 1)
    h = vectors(features, "features (..., N, d)", 2)
    mean, unit_mean = h.mean(-2), units(h).mean(-2)
    rms = np.sqrt(np.square(h).sum(-1).mean(-1))
    inner, inner_units = (w * mean).sum(-1), (w * unit_mean).sum(-1)
    lengths = norms(mean), norms(unit_mean), norms(h).mean(-1)
    return Pairing(rms, norms(w), inner, inner_units, *lengths)


def _over(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return the quotient; 0 if the denominator is 0, where no lemma applies."""
    result: FloatArray = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)
    return result


def opposed_cosine_printed(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Return both sides of Lemma 2.4.6 as printed.

    It says that a vector opposed to the mean feature is opposed to the mean unit feature.

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
    """Return a counterexample to Lemma 2.4.6 as printed: features of nearly one norm that cancel.

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
    r"""Return both sides of the step before the proof of Lemma 2.4.6 divides by the mean's norm.

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
    r"""Return both sides of Lemma 2.4.6 for a long mean, with a linear error, not a cube root.

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
    r"""Return both sides of Lemma 2.4.6 for features whose mean is long, not only their norms.

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
    """Return both sides for the cosine, with e = 1 - ratio."""
    product = data.rms * data.length
    applies = (data.inner <= 0) & (product > 0) & (data.unit_mean_norm > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = data.inner_units / (data.length * data.unit_mean_norm)
        right = data.inner / product + 4 * np.cbrt(np.maximum(1 - ratio, 0.0))
    tolerance = ROUNDING / np.maximum(data.unit_mean_norm, ROUNDING)
    return Inequality(left, "<=", right, source, applies, tolerance)


def unit_mean_shift(features: ArrayLike) -> Inequality:
    r"""Compare the mean unit feature with the mean feature over the mean norm.

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
    r"""Compare the mean unit feature with the mean feature over the mean norm, by rho alone.

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
    """Return both sides of either form of the shift."""
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
