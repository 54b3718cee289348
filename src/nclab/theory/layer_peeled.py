"""The layer-peeled loss g of one class as a function of its score: value, derivative and inverse,
for losses down to 1e-300."""

import math

import numpy as np
from scipy.special import expit, log_expit

from nclab.metrics.cross_entropy import FloatArray as FloatArray
from nclab.metrics.cross_entropy import Real
from nclab.metrics.cross_entropy import g as g

TINY_LOG = -30.0
"""If log L is below this number, log(e^L - 1) is computed by a series of two terms."""


def wrong_probability(s: Real, num_classes: int) -> Real:
    r"""Return the probability of the wrong classes when the loss is g(s).

    $$q(s) = 1-e^{-g(s)}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1); decreasing, (C-1)/C at 0.
    """
    others = num_classes - 1
    value = expit(math.log(others) - num_classes / others * s)
    return value if isinstance(s, np.ndarray) else float(value)


def g_prime(s: Real, num_classes: int) -> Real:
    r"""Return the derivative of the layer-peeled loss g at the score s.

    $$g'(s) = -\tfrac{C}{C-1}\,(1-e^{-g(s)})$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (-C/(C-1), 0); increasing, -1 at 0.
    """
    return -num_classes / (num_classes - 1) * wrong_probability(s, num_classes)


def g_inverse(loss: Real, num_classes: int) -> Real:
    r"""Return the score s, an inner product of row and feature, at which g(s) equals the loss.

    $$g^{-1}(L) = \tfrac{C-1}{C}\bigl(\log(C-1) - \log(e^L-1)\bigr)$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: real; inf at loss 0, 0 at log C, negative above.

    >>> round(g_inverse(g(5.0, 10), 10), 12), g_inverse(0.0, 10)
    (5.0, inf)
    >>> round(g_inverse(1e-300, 10), 6)
    623.675477
    """
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.asarray(loss, dtype=np.float64))
    small = np.minimum(logarithm, TINY_LOG)
    large = np.exp(np.maximum(logarithm, TINY_LOG))
    # log(e^L - 1): a series for tiny losses, and L + log(1 - e^-L) so that large ones stay finite.
    exact = large + np.log(-np.expm1(-large))
    with np.errstate(invalid="ignore"):
        series = np.where(np.isneginf(small), small, small + np.exp(small) / 2)
    log_expm1 = np.where(logarithm < TINY_LOG, series, exact)
    others = num_classes - 1
    value = others / num_classes * (math.log(others) - log_expm1)
    return value if isinstance(loss, np.ndarray) else float(value)


def g_rise(step: FloatArray, num_classes: int, start: float) -> FloatArray:
    r"""Return g(start + step) - g(start) without subtracting two close numbers.

    $$g(A+\delta)-g(A) = \log\bigl(1 + q(A)\,(e^{-\frac{C}{C-1}\delta}-1)\bigr)$$

    A is `start`, $\delta$ the step, and q(A) is `wrong_probability`.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (-g(A), inf); positive for a negative step.
    """
    others = num_classes - 1
    exponent = -num_classes / others * step
    near = np.log1p(wrong_probability(start, num_classes) * np.expm1(np.minimum(exponent, 30.0)))
    far = g(start + step, num_classes) - g(start, num_classes)
    return np.where(exponent < 30.0, near, far)


def g_rise_inverse(rise: FloatArray, num_classes: int, start: float) -> FloatArray:
    r"""Return the step from `start` that makes g grow by `rise`; inf if g cannot fall that far.

    $$\delta = -\tfrac{C-1}{C}\log\bigl(1 + (e^{r}-1)/q(A)\bigr)$$

    A is `start`, r the rise, and q(A) is `wrong_probability`.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: real or inf; the sign is opposite to that of the rise.
    """
    others = num_classes - 1
    log_wrong = log_expit(math.log(others) - num_classes / others * start)
    size = np.abs(rise)
    with np.errstate(divide="ignore", invalid="ignore"):
        # log|e^r - 1| without overflow on either side, then log(1 +- ratio).
        log_size = np.where(rise < 0, 0.0, size) + np.log(-np.expm1(-size))
        up = np.logaddexp(0.0, log_size - log_wrong)
        down = np.log1p(-np.minimum(np.exp(np.minimum(log_size - log_wrong, 0.0)), 1.0))
    return -others / num_classes * np.where(rise < 0, down, up)
