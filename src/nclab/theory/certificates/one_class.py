"""Lower bounds for one class: its alignment and its intra-class cosine.

The alignment is the cosine of the class mean and the centred classifier row. A class has
intra-class cosine at least R^2 if the mean cosine r of its features with its classifier row is at
least R. Let sigma_i be the norm of feature i times the norm of the row, and g(s) the smallest loss
of a class whose score, the inner product of mean feature and row, is s. The smallest class loss
with mean sigma^2 = p^2 and mean r = R is (docs/certificates.md)

    min over theta in [0, (1 - R)/2] of theta g(0) + (1 - theta) g(p (R + theta)/(1 - theta)^1.5)

A class reaches it if a share theta of its features has norm almost zero and points away from the
row, and the other features are equal. If theta = 0 is the minimiser, the bound is sharp: R is the
alignment.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nclab.theory.certificates.norms_and_loss import NormsAndLoss, bias_shift, score_range
from nclab.theory.layer_peeled import (
    FloatArray,
    g,
    g_inverse,
    g_prime,
    g_rise,
    g_rise_inverse,
    wrong_probability,
)

ZOOMS = 12
POINTS = 65
COARSE_POINTS = 17
CELLS = 48
CLASS_CELLS = 640
"""Numbers of intervals of theta at the start: `CELLS` if the bound is for all classes, and
`CLASS_CELLS` for the bound on one class. A bound holds in whole intervals, not only at ends."""
ROUNDS = 6
MOST_CELLS = 800
DROPPED = 1e-6


def alignment_lower(inputs: NormsAndLoss, excluded: int = 0) -> float:
    r"""Return a lower bound on the alignment of all but `excluded` classes.

    The alignment of class c is cos(w_c, h_c), with the centred classifier row w_c and the class
    mean h_c. C classes have the loss L, $A = \alpha\beta$, and g(s) is the smallest loss of a class
    with the score s.

    $$\rho^*_k = \sup\{\rho: F_k(\rho) > L\},\quad F_k(\rho) = \min_p
    \tfrac kC\,g(\rho p)+\tfrac{C-k}C\,g\bigl(\tfrac{CA-kp}{C-k}\bigr),\quad k = \text{excluded}+1$$

    Source: pan2023, Eq. (2.21)
    Range: (0, 1], or -1 if the loss allows an alignment of 0.

    The bound also holds for |h_c| / alpha_c, with alpha_c the rms norm of the features of class c.
    """
    classes, product, k = inputs.num_classes, inputs.product, excluded + 1
    loss = inputs.loss
    if k >= classes:
        return _clip(g_inverse(loss, classes) / product)
    if _needed(np.array([0.0]), inputs, k)[0] <= 0:
        return -1.0
    largest = (
        classes * product - (classes - k) * g_inverse(classes * loss / (classes - k), classes)
    ) / k
    low, high = 0.0, min(classes * product / k, largest + _bias_reach(inputs, k) / k)
    best = math.inf
    for _ in range(ZOOMS):
        p = np.linspace(low, high, POINTS)[1:]
        with np.errstate(invalid="ignore"):
            ratios = _needed(p, inputs, k) / p
        index = int(np.argmin(ratios))
        best = min(best, float(ratios[index]))
        width = (high - low) / (POINTS - 1)
        low, high = max(low, p[index] - 1.5 * width), min(high, p[index] + 1.5 * width)
    return _clip(best)


def class_alignment_lower(
    num_classes: int,
    losses: FloatArray,
    products: FloatArray,
    *,
    shift: float = 0.0,
    clip: bool = True,
) -> FloatArray:
    r"""Return a lower bound on the alignment of every class from the loss and norms of that class.

    $$\rho_c \ge \frac{g^{-1}(L_c)-\dot b_c}{\alpha_c\beta_c}$$

    g(s) is the smallest loss of a class with the score s.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1]^C, -1 for classes without a guarantee.

    Args:
        losses: (C,) mean loss $L_c$ of every class.
        products: (C,) product $\alpha_c\beta_c$ of feature norm and row norm of every class.
        shift: upper bound on the centred bias $\dot b_c$ of any class.
        clip: whether to clip ratios at 1; ratios above 1 reveal inconsistent inputs.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # Near chance, a rounding error of the loss changes the score by about as much.
        ratios = (g_inverse(losses, num_classes) - shift - 1e-15) / products
    return np.where(ratios > 0, np.minimum(ratios, 1.0) if clip else ratios, -1.0)


def _needed(p: FloatArray, inputs: NormsAndLoss, k: int) -> FloatArray:
    """Return the smallest mean score of k classes that the loss allows; p is their norm product."""
    classes, product = inputs.num_classes, inputs.product
    reach = _bias_reach(inputs, k)
    even = g_inverse(inputs.loss, classes)
    # The bias that helps the k classes most makes all scores equal, or as equal as its norm allows.
    moved = np.clip(classes * product - k * p - (classes - k) * even, -reach, reach)
    others = -(k * (p - product) + moved) / (classes - k)  # change of the others' scores from A
    spent = (classes - k) * g_rise(others, classes, product)
    rise = (classes * inputs.excess - spent) / k
    step = g_rise_inverse(np.maximum(rise, -inputs.optimal_loss), classes, product)
    needed = np.where(rise > -inputs.optimal_loss, product + step - moved / k, np.inf)
    return np.asarray(needed, dtype=np.float64)


def _bias_reach(inputs: NormsAndLoss, k: int) -> float:
    return inputs.bias_norm * math.sqrt(k * (inputs.num_classes - k) / inputs.num_classes)


def _clip(ratio: float) -> float:
    """Return a ratio as a bound: at most 1, minus the rounding error; -1 if it is not positive."""
    return min(1.0, ratio) * (1 - 1e-14) if ratio > 0 else -1.0


@dataclass(frozen=True)
class IntraBound:
    """A lower bound on the intra-class cosine of every class, and whether it is sharp."""

    value: float
    sharp: bool
    """Whether the condition of `sharp_holds` is met, so that the bound is the squared alignment."""


def jensen_intra(alignment: float | FloatArray) -> FloatArray:
    r"""Return a lower bound on the intra-class cosine from the alignment alone, whatever the loss.

    $$\mathrm{intra}_c \ge (2\rho_c^2-1)_+^2$$

    Source: pan2023, Lemma 2.4.5
    Range: [0, 1]; 0 below an alignment of 0.7071.

    >>> jensen_intra(np.array([1.0, 0.9, 0.5, -1.0])).round(4)
    array([1.    , 0.3844, 0.    , 0.    ])
    """
    positive = np.maximum(alignment, 0.0)
    return np.maximum(2 * positive**2 - 1, 0.0) ** 2


def sharp_holds(
    num_classes: int, alignment: float, low: float, high: float, *, shift: float = 0.0
) -> bool:
    r"""Whether a class with equal features has the smallest loss, for all scores in [low, high].

    $$3y\,\tfrac{C}{C-1}(1-q(y+b)) \ge 1 \quad\text{and}\quad
    g(b) \ge g(y+b)+\bigl(\tfrac32+\tfrac1R\bigr)\,y\,|g'(y+b)|$$

    The classes that are compared have the same mean cosine R, `alignment`, with their row. y is the
    score, g(y) the smallest loss at this score, q(y) the probability of the wrong classes, and b
    the bias; b = -shift is the worst case.

    Source: pan2023, Lemma 2.4.5
    Range: exact for the whole interval, not sampled.
    """
    if not (0 < alignment <= 1 and 0 < low <= high):
        return False
    slope = num_classes / (num_classes - 1)

    def steepness(y: float) -> float:
        return y * slope * (1 - wrong_probability(y - shift, num_classes))

    if 3 * steepness(low) < 1:
        return False
    factor = 1.5 + 1 / alignment
    # The right-hand side rises until steepness(y) = (factor - 1)/factor, then falls.
    inside, outside = low, high
    if steepness(low) * factor >= factor - 1:
        outside = low
    elif steepness(high) * factor <= factor - 1:
        inside = high
    for _ in range(60 if inside < outside else 0):
        middle = (inside + outside) / 2
        rising = steepness(middle) * factor < factor - 1
        inside, outside = (middle, outside) if rising else (inside, middle)
    y = min(max(outside, low), high)
    loss = g(y - shift, num_classes) - factor * y * g_prime(y - shift, num_classes)
    return g(-shift, num_classes) >= loss * (1 + 1e-9)


@lru_cache(maxsize=64)
def intra_lower(inputs: NormsAndLoss, alignment: float) -> IntraBound:
    r"""Return a lower bound on the intra-class cosine of every class.

    $$\mathrm{intra}_c \ge \rho^{*2}\ \text{if the sharp form holds},\quad
    \text{else } \max\bigl(R^2, (2\rho^{*2}-1)_+^2\bigr)$$

    R is the largest number such that every class whose features have a mean cosine below R with
    their row has a larger loss than the given one; see the module docstring.

    Source: pan2023, Thm 2.3.1
    Range: [0, 1].

    Args:
        alignment: the bound $\rho^*$ for all classes, from `alignment_lower`.
    """
    if alignment <= 0:
        return IntraBound(0.0, sharp=False)
    low, high = score_range(inputs)
    high = min(high / alignment, inputs.num_classes * inputs.product)
    shift = bias_shift(inputs)
    if sharp_holds(inputs.num_classes, alignment, low * alignment, high * alignment, shift=shift):
        return IntraBound(alignment**2, sharp=True)
    value = float(jensen_intra(alignment))
    if inputs.bias_norm == 0:
        mixed = min(_mixture(inputs, alignment, max(low, 0.0), high), alignment)
        value = max(value, max(mixed, 0.0) ** 2)
    return IntraBound(value, sharp=False)


def class_intra_lower(
    num_classes: int,
    losses: FloatArray,
    products: FloatArray,
    alignments: FloatArray,
    *,
    shift: float = 0.0,
) -> FloatArray:
    r"""Return a lower bound on the intra-class cosine of each class from the loss of that class.

    $$\mathrm{intra}_c \ge \rho_c^2\ \text{if the sharp form holds, else } R_c^2$$

    $R_c$ is the smallest mean cosine of features and row that the loss of class c allows, see the
    module docstring with $p = \alpha_c\beta_c$.

    Source: pan2023, Thm 2.3.1
    Range: [0, 1]^C.

    Args:
        losses: (C,) mean loss of every class.
        products: (C,) product $\alpha_c\beta_c$ of feature norm and row norm of every class.
        alignments: (C,) bounds $\rho_c$, from `class_alignment_lower`.
        shift: upper bound on the centred bias of any class.
    """
    # A bias lowers g by at most its effect at `shift`, the worst case for this class.
    sharp = [
        sharp_holds(num_classes, float(rho), rho * p, rho * p, shift=-shift)
        for rho, p in zip(alignments, products, strict=True)
    ]
    values = np.where(sharp, alignments**2, jensen_intra(alignments))
    unsettled = ~np.array(sharp) & (alignments > 0)
    if unsettled.any():
        # The share of reversed features is at most 1 - alignment^2, as by `jensen_intra`.
        theta = np.linspace(0.0, 1 - alignments[unsettled] ** 2, CLASS_CELLS + 1).T
        first, last = theta[:, :-1], theta[:, 1:]  # (classes, cells)
        left = losses[unsettled, None] - first * g(shift, num_classes)
        share = _share(left, last, num_classes, products[unsettled, None], shift)
        mixed = np.where(share <= 1 - 2 * first, share, np.inf).min(1)
        mixed = np.clip(mixed, 0.0, alignments[unsettled])
        values[unsettled] = np.maximum(values[unsettled], mixed**2)
    return values


def _mixture(inputs: NormsAndLoss, alignment: float, low: float, high: float) -> float:
    """Return a lower bound on the mean cosine of a class, for all norm products p in [low, high].

    The method is branch and bound over the share theta of reversed features, which is at most
    1 - alignment^2. The ends of an interval of theta give a lower bound for the whole interval.
    Intervals that cannot contain the minimum are dropped, and the others are split. For a given
    theta the mean cosine is quasi-convex in p, so finer and finer grids find its minimum.
    """
    classes, product = inputs.num_classes, inputs.product
    allowed = inputs.optimal_loss + classes * inputs.excess

    def least(first: FloatArray, last: FloatArray) -> FloatArray:
        """Return a lower bound on the mean cosine for all shares theta from `first` to `last`."""
        start, width = np.full(len(first), low), np.full(len(first), high - low)
        for _ in range(ZOOMS):
            p = start[:, None] + width[:, None] * np.linspace(0.0, 1.0, COARSE_POINTS)
            others = (classes - 1) * g_rise(-(p - product) / (classes - 1), classes, product)
            loss = allowed - others - first[:, None] * math.log(classes)
            values = _share(loss, last[:, None], classes, p, 0.0)
            width = width / (COARSE_POINTS - 1)
            index = np.clip(values.argmin(1) - 1, 0, COARSE_POINTS - 3)
            start, width = start + index * width, 2 * width
        return np.asarray(values.min(1))

    largest = 1 - alignment**2
    width = largest / CELLS
    theta: FloatArray = np.arange(CELLS, dtype=np.float64) * width
    best, bound = math.inf, math.inf
    for _ in range(ROUNDS):
        lower, exact = least(theta, np.minimum(theta + width, 1.0)), least(theta, theta)
        lower = np.where(lower <= 1 - 2 * theta, lower, np.inf)
        best = min(best, float(np.where(exact <= 1 - 2 * theta, exact, np.inf).min()))
        # Values in dropped intervals are below the best point by at most `dropped`.
        dropped = DROPPED * largest
        bound = min(float(lower.min()), best - dropped)
        undecided = lower < best - dropped
        if not undecided.any() or 4 * int(undecided.sum()) > MOST_CELLS:
            break
        width = width / 4
        theta = (theta[undecided, None] + width * np.arange(4.0)).ravel()
    return bound * (1 - 1e-14)


def _share(
    loss: FloatArray, theta: FloatArray, num_classes: int, p: FloatArray, shift: float
) -> FloatArray:
    """Return the smallest mean cosine of a class with a share theta of reversed features.

    Reversed features point away from the row of their class. The other features are equal and
    have the given total loss.
    """
    remaining = 1 - theta
    with np.errstate(divide="ignore", invalid="ignore"):
        score = g_inverse(np.maximum(loss, 0.0) / remaining, num_classes) - shift
        value = remaining**1.5 * score / p - theta
    return np.where(loss > 0, np.where(remaining > 0, value, -theta), np.inf)
