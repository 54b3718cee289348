"""Single steps from the loss to its minimum m in the proof of Theorem 2.3.1.

Weights have shape (..., C, d), features (..., C, N, d): row c holds the samples of class c.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from nclab.theory.layer_peeled import FloatArray, g, wrong_probability
from nclab.theory.statements import ROUNDING, Inequality, norms, sample_losses, vectors


def minimal_loss(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the loss with m, the smallest loss of any weights and features with these norms.

    $$\tfrac1{CN}\sum_{c,i}\ell_{c,i} \ge
      m = \log\bigl(1+(C-1)e^{-\frac{C}{C-1}\alpha\beta}\bigr)$$

    Source: pan2023, Thm 2.3.1 (minimality of m)
    Range: every C >= 2 and N >= 1. Equality at a simplex ETF, which needs d >= C - 1.

    >>> both = minimal_loss([[1.0], [-1.0]], [[[2.0]], [[-2.0]]])
    >>> round(float(both.slack), 12), both.always
    (0.0, True)
    """
    w = vectors(weight, "weights (..., C, d)", 2)
    h = vectors(features, "features (..., C, N, d)", 3)
    num_classes = w.shape[-2]
    left = sample_losses(w, h).mean((-1, -2))
    alpha = np.sqrt(np.square(h).sum(-1).mean((-1, -2)))
    beta = np.sqrt(np.square(w).sum((-1, -2)) / num_classes)
    right = np.asarray(g(alpha * beta, num_classes))
    # The condition number of g is at most C/(C-1) times the product of the norms.
    tolerance = ROUNDING * (1 + 2 * alpha * beta) * right
    source = "pan2023, Thm 2.3.1 (minimality of m)"
    return Inequality(left, ">=", right, source, tolerance=tolerance)


def class_loss_bound(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the mean loss of each class with g of its centred weight against its mean feature.

    $$\tfrac1N\sum_i\ell_{c,i} \ge
      \log\bigl(1+(C-1)e^{-\frac{C}{C-1}\dot w_c\cdot\tilde h_c}\bigr)$$

    Source: pan2023, Eq. (2.9)
    Range: shape (..., C).

    >>> both = class_loss_bound([[1.0], [-1.0]], [[[2.0]], [[-1.0]]])
    >>> [round(slack, 12) for slack in both.slack.tolist()]
    [0.0, 0.0]
    """
    w = vectors(weight, "weights (..., C, d)", 2)
    h = vectors(features, "features (..., C, N, d)", 3)
    left = sample_losses(w, h).mean(-1)
    centred = w - w.mean(-2, keepdims=True)
    inner = (centred * h.mean(-2)).sum(-1)
    right = np.asarray(g(inner, w.shape[-2]))
    reach = norms(w).max(-1)[..., None] * norms(h).max(-1)
    # Logits have a rounding error of `reach`, which changes the loss by at most twice as much.
    tolerance = 4 * ROUNDING * (1 + reach) * np.maximum(left, right)
    return Inequality(left, ">=", right, "pan2023, Eq. (2.9)", tolerance=tolerance)


def excess_for_zero(num_classes: int, product: float) -> float:
    r"""Return the excess loss below which every class has a positive score.

    $$\dot w_c\cdot\tilde h_c \le 0 \;\Rightarrow\; \varepsilon \ge
    \tfrac1C\bigl[\log C+(C-1)\,g\bigl(\tfrac{C\alpha\beta}{C-1}\bigr)\bigr]-m$$

    Source: pan2023, Thm 2.3.1 (proof, positive scores)
    Range: [0, inf), without a bias; one class at 0, the others alike.

    >>> round(excess_for_zero(10, 5.0), 4)
    0.2128
    """
    other_classes = float(g(num_classes * product / (num_classes - 1), num_classes))
    lowest = float(g(product, num_classes))
    return (math.log(num_classes) + (num_classes - 1) * other_classes) / num_classes - lowest


def argument_range(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the arguments of the strongly convex function with their range at any loss.

    $$|x_c| \le C\sqrt{\tfrac{C}{C-1}}\,\alpha\beta,\quad
      x_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Thm 2.3.1 (proof, range of the arguments at every loss)
    Range: shape (..., C). Reached by one class that takes all of the norms.

    >>> both = argument_range([[1.0], [-1.0]], [[[2.0]], [[0.0]]])
    >>> [round(slack, 12) for slack in both.slack.tolist()]
    [0.0, 4.0]
    """
    return _range(weight, features, printed=False)


def argument_range_printed(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the arguments of the strongly convex function with the range that the proof uses.

    $$|x_c| \le C\alpha\beta$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: shape (..., C). True of three classes or more whose loss is near m, as the theorem has
    it; one class that takes nearly all of the norms, at a high loss, leaves it.

    >>> argument_range_printed([[1.0], [-1.0]], [[[2.0]], [[0.0]]]).always
    False
    """
    return _range(weight, features, printed=True)


def log_sum_step(num_classes: int, argument: ArrayLike, epsilon: ArrayLike) -> Inequality:
    r"""Return both sides of the step to (2.18): a gap leaves the logarithm divided by C.

    $$\log(a+\varepsilon) \ge \log a + \frac{\varepsilon}{C},\quad
      a = 1+(C-1)e^{x},\ \varepsilon\ge0,\ a+\varepsilon\le C$$

    Source: pan2023, Eq. (2.18)
    Range: log(a + epsilon) is the bound on the class loss, at most log C near the optimum; each
    side is less log a.

    >>> both = log_sum_step(10, -5.0, [0.1, 20.0])
    >>> both.always, both.tested
    (True, 1)
    """
    a = 1 + (num_classes - 1) * np.exp(np.asarray(argument, dtype=np.float64))
    gap = np.asarray(epsilon, dtype=np.float64)
    left = np.log1p(gap / a)
    applies = (gap >= 0) & (a + gap <= num_classes)
    source = "pan2023, Eq. (2.18)"
    return Inequality(left, ">=", gap / num_classes, source, applies, ROUNDING * left)


def tangent_step(num_classes: int, product: ArrayLike, epsilon: ArrayLike) -> Inequality:
    r"""Return both sides of the tangent inequality that the thesis writes as an approximate
    equality.

    $$\log\bigl(1+(C-1)e^{x_0+\varepsilon}\bigr) \ge m + (1-e^{-m})\,\varepsilon,\quad
      x_0 = -\tfrac{C}{C-1}\alpha\beta$$

    Source: pan2023, Thm 2.3.1 (proof, the gap epsilon_3)
    Range: every real epsilon, by convexity.

    >>> both = tangent_step(10, 5.0, 0.0)
    >>> float(both.left) == float(both.right)
    True
    """
    norm_product = np.asarray(product, dtype=np.float64)
    gap = np.asarray(epsilon, dtype=np.float64)
    left = np.asarray(g(norm_product - (num_classes - 1) / num_classes * gap, num_classes))
    lowest = np.asarray(g(norm_product, num_classes))
    right = lowest + np.asarray(wrong_probability(norm_product, num_classes)) * gap
    scale = (1 + np.abs(norm_product) + np.abs(gap)) * np.maximum(left, lowest)
    source = "pan2023, Thm 2.3.1 (proof, epsilon_3)"
    return Inequality(left, ">=", right, source, tolerance=2 * ROUNDING * scale)


def loss_strong_convexity(num_classes: int, low: ArrayLike, high: ArrayLike) -> FloatArray:
    r"""Return the strong convexity of the loss as a function of x on an interval.

    $$\lambda = \min_{x\in[a,b]}\varphi''(x),\quad
      \varphi(x) = \log(1+(C-1)e^x),\ \varphi'' = q(1-q)$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4]; the second derivative has one peak, so the minimum is at an end.

    >>> float(loss_strong_convexity(2, 0.0, 0.0))
    0.25
    """
    shrink = -(num_classes - 1) / num_classes
    first, last = (
        np.asarray(wrong_probability(shrink * end, num_classes))
        * np.exp(-np.asarray(g(shrink * end, num_classes)))
        for end in (np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    )
    return np.minimum(first, last)


def _range(weight: ArrayLike, features: ArrayLike, *, printed: bool) -> Inequality:
    """Return both sides of either form of the range of the arguments."""
    w = vectors(weight, "weights (..., C, d)", 2)
    h = vectors(features, "features (..., C, N, d)", 3)
    num_classes = w.shape[-2]
    centred = w - w.mean(-2, keepdims=True)
    left = num_classes / (num_classes - 1) * np.abs((centred * h.mean(-2)).sum(-1))
    alpha = np.sqrt(np.square(h).sum(-1).mean((-1, -2)))
    beta = np.sqrt(np.square(w).sum((-1, -2)) / num_classes)
    factor = num_classes * (1.0 if printed else math.sqrt(num_classes / (num_classes - 1)))
    right = np.broadcast_to((factor * alpha * beta)[..., None], left.shape)
    source = "pan2023, Thm 2.3.1 (proof" + (")" if printed else ", range at every loss)")
    return Inequality(left, "<=", right, source, tolerance=ROUNDING * right)
