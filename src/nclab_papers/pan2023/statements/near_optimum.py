"""Bounds for all but a share of the classes near the minimum, in the proof of Theorem 2.3.1.

Weights have shape (..., C, d), features (..., C, N, d). The proof splits the excess loss: epsilon_1
is lost where the other classes of a class differ, epsilon_2 where classes differ, epsilon_3 where
the scores are below the product of the norms.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nclab.errors import DataError
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import (
    ROUNDING,
    Inequality,
    norms,
    sample_losses,
    units,
    weights_and_features,
)
from nclab_papers.pan2023.statements.jensen import gap_with_rounding, relative_exponential_gap
from nclab_papers.pan2023.statements.loss_steps import loss_strong_convexity

LEAST = 1e-290
"""Smallest strong convexity with a finite reciprocal."""


def low_scores(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the smallest score, except for a share delta of the classes, with its lower bound.

    $$\dot w_c\cdot\tilde h_c \ge \alpha\beta - \tfrac{C-1}{C}\Bigl(\varepsilon_3 +
      \sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr)$$

    Source: pan2023, Eq. (2.19)
    Range: shape (...); the left side is the smallest score but those of delta C classes, lambda is
    the strong convexity where the scores lie.

    >>> both = low_scores([[1.0], [-1.0]], [[[2.0]], [[-2.0]]], 0.4)
    >>> float(both.left), round(float(both.right), 12)
    (2.0, 2.0)
    """
    near = _near_optimal(weight, features, delta)
    few = math.floor(delta * near.classes + 1e-9)
    left = np.sort(near.scores, -1)[..., few]
    share = (near.classes - 1) / near.classes
    right = near.product - share * (near.third + near.strayed)
    tolerance = share * near.rounding
    return Inequality(left, ">=", right, "pan2023, Eq. (2.19)", near.convexity > LEAST, tolerance)


def large_norms(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the largest product of norms, except for a share delta of the classes, with its
    bound.

    $$\alpha_c\beta_c \le \alpha\beta + \tfrac{C-1}{C}\Bigl(\tfrac{1-\delta}\delta\varepsilon_3 +
      \sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr)$$

    Source: pan2023, Eq. (2.20)
    Range: shape (...); alpha_c is the rms feature norm of a class, beta_c the norm of its centred
    weight, the left side the largest product but those of delta C classes.

    >>> both = large_norms([[1.0], [-1.0]], [[[2.0]], [[-2.0]]], 0.4)
    >>> float(both.left), round(float(both.right), 12)
    (2.0, 2.0)
    """
    near = _near_optimal(weight, features, delta)
    few = math.floor(delta * near.classes + 1e-9)
    left = np.sort(near.products, -1)[..., near.classes - 1 - few]
    share, odds = (near.classes - 1) / near.classes, (1 - delta) / delta
    right = near.product + share * (odds * near.third + near.strayed)
    tolerance = share * (1 + odds) * near.rounding
    return Inequality(left, "<=", right, "pan2023, Eq. (2.20)", near.convexity > LEAST, tolerance)


def high_differences(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare how near other classes come to a class, except for a share delta, with the bound.

    $$(\dot w_{c'}-\dot w_c)\cdot\tilde h_c \le m_c +
      \sqrt{\tfrac{2\varepsilon_{1,c}}{e^{m_c}\delta}},\quad
      m_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Eq. (2.22)
    Range: shape (..., C); epsilon_{1,c} is what the sum of the C - 1 exponentials has above
    (C - 1) exp(m_c), where that is a number. Lemma 2.4.3 would allow to divide it by C - 1.

    >>> both = high_differences([[1.0], [-1.0]], [[[2.0]], [[-1.0]]], 0.4)
    >>> both.left.tolist(), both.right.tolist()
    ([-4.0, -2.0], [-4.0, -2.0])
    """
    return _others(weight, features, delta, "pan2023, Eq. (2.22)", centred=False)


def high_scores_of_others(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the largest score of other classes, except for a share delta, with its bound.

    $$\dot w_{c'}\cdot\tilde h_c \le -\tfrac1{C-1}\dot w_c\cdot\tilde h_c +
      \sqrt{\tfrac{2\varepsilon_{1,c}}{e^{m_c}\delta}}$$

    Source: pan2023, Eq. (2.23)
    Range: shape (..., C); as (2.22).

    >>> both = high_scores_of_others([[1.0], [-1.0]], [[[2.0]], [[-1.0]]], 0.4)
    >>> both.left.tolist(), both.right.tolist()
    ([-2.0, -1.0], [-2.0, -1.0])
    """
    return _others(weight, features, delta, "pan2023, Eq. (2.23)", centred=True)


def self_duality(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare NC3 with the printed bound, for all but a share 2 delta of the classes.

    $$\cos(\dot w_c,\tilde h_c) \ge 1 - \tfrac{C-1}{C\alpha\beta}\cdot
      2\sqrt{\tfrac{2\varepsilon(1-\delta)}{\lambda\delta}}$$

    Source: pan2023, Thm 2.3.1 (proof, NC3)
    Range: shape (...), delta below 1/2, lambda on [-C alpha beta, C alpha beta] as the proof takes
    it, epsilon below delta. Our copy shows the factor (C-1)/(C alpha beta) in the lines before and
    after, not in this one; at small norms the bound needs it.

    >>> both = self_duality([[2.0], [-2.0]], [[[0.1]], [[-0.1]]], 0.2)
    >>> both.tested, round(float(both.right), 9)
    (1, 1.0)
    """
    if delta >= 0.5:
        raise DataError(f"Expected delta between 0 and 1/2, got {delta}.")
    near = _near_optimal(weight, features, delta)
    w, h = weights_and_features(weight, features)
    cosines = (units(w - w.mean(-2, keepdims=True)) * units(h.mean(-2))).sum(-1)
    few = math.floor(2 * delta * near.classes + 1e-9)
    best = np.asarray(g(near.product, near.classes))
    loss = sample_losses(w, h).mean((-1, -2))
    reach = near.classes * near.product
    convexity = loss_strong_convexity(near.classes, -reach, reach)
    excess, rounding = np.maximum(loss - best, 0.0), ROUNDING * (1 + near.product) * best
    applies = (convexity > LEAST) & (near.product > 0) & (excess < delta)
    spread = 8 * (1 - delta) / (np.where(applies, convexity, 1.0) * delta)
    share = (near.classes - 1) / (near.classes * np.where(applies, near.product, 1.0))
    right = 1 - share * np.sqrt(spread * excess)
    tolerance = share * (np.sqrt(spread * (excess + rounding)) - np.sqrt(spread * excess))
    left = np.sort(cosines, -1)[..., few]
    source = "pan2023, Thm 2.3.1 (proof, NC3)"
    return Inequality(left, ">=", right, source, applies, tolerance + ROUNDING)


class _NearOptimal(NamedTuple):
    """Quantities in (2.19) to (2.21)."""

    classes: int
    product: FloatArray
    """Product alpha beta."""
    scores: FloatArray
    """(..., C) scores."""
    products: FloatArray
    """(..., C) products alpha_c beta_c."""
    third: FloatArray
    """Part epsilon_3 of the excess loss."""
    strayed: FloatArray
    """Largest distance of the mean score of a share of the classes from that of all, in units of
    x."""
    convexity: FloatArray
    rounding: FloatArray


def _near_optimal(weight: ArrayLike, features: ArrayLike, delta: float) -> _NearOptimal:
    """Return the quantities in (2.19) to (2.21), or raise."""
    w, h = weights_and_features(weight, features)
    if not 0 < delta < 1:
        raise DataError(f"Expected delta between 0 and 1, got {delta}.")
    classes = w.shape[-2]
    centred = w - w.mean(-2, keepdims=True)
    scores = (centred * h.mean(-2)).sum(-1)
    alphas = np.sqrt(np.square(h).sum(-1).mean(-1))
    product = np.sqrt(np.square(alphas).mean(-1) * np.square(w).sum((-1, -2)) / classes)
    x = -classes / (classes - 1) * scores
    convexity = loss_strong_convexity(classes, x.min(-1), x.max(-1))
    second, rounding = gap_with_rounding(
        x, lambda at: np.logaddexp(0.0, math.log(classes - 1) + at)
    )
    factor = 2 * (1 - delta) / (np.where(convexity > LEAST, convexity, 1.0) * delta)
    strayed = np.sqrt(factor * second)
    return _NearOptimal(
        classes,
        product,
        scores,
        alphas * norms(centred),
        x.mean(-1) + classes / (classes - 1) * product,
        strayed,
        convexity,
        np.sqrt(factor * (second + rounding)) - strayed + 4 * ROUNDING * product,
    )


def _others(
    weight: ArrayLike, features: ArrayLike, delta: float, source: str, *, centred: bool
) -> Inequality:
    """Return both sides of either form of the bound on the other classes."""
    w, h = weights_and_features(weight, features)
    if not 0 < delta < 1:
        raise DataError(f"Expected delta between 0 and 1, got {delta}.")
    classes = w.shape[-2]
    scores = h.mean(-2) @ np.swapaxes(w - w.mean(-2, keepdims=True), -1, -2)  # (..., C, C)
    own = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]
    rest = scores[..., ~np.eye(classes, dtype=bool)].reshape(*scores.shape[:-1], classes - 1)
    with np.errstate(over="ignore"):
        gap, rounding = relative_exponential_gap(rest - own)
    known = np.isfinite(gap + rounding)
    gap, rounding = np.where(known, gap, 0.0), np.where(known, rounding, 0.0)
    factor = 2 * (classes - 1) / delta  # the gap of the sum is that of C - 1 means
    rise = np.sqrt(factor * gap)
    few = math.floor(delta * (classes - 1) + 1e-9)
    left = np.sort(rest, -1)[..., classes - 2 - few]
    own = own[..., 0]
    right = -own / (classes - 1) + rise
    if not centred:
        left, right = left - own, right - own
    tolerance = np.sqrt(factor * (gap + rounding)) - rise
    tolerance = tolerance + ROUNDING * norms(w).max(-1)[..., None] * norms(h).max(-1)
    return Inequality(left, "<=", right, source, known, tolerance)
