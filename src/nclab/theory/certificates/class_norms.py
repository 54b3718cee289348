"""Between which values the square feature norm of a class must lie, from the norms and the loss."""

import math
from functools import lru_cache

import numpy as np

from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.scores import bias_shift
from nclab.theory.layer_peeled import FloatArray, g_rise

ZOOMS = 5
COARSE = 3
"""Zooms for the other classifier norm, and for the end itself, which errs to the outside."""
POINTS = 25


@lru_cache(maxsize=64)
def norm_range(given: NormsAndLoss) -> tuple[float, float]:
    r"""Range a of |mean h_c|^2 and of mean |h_c|^2 of every class, over alpha / beta.

    $$\min_b\ \tfrac1C\,g(\sqrt{ab})+\tfrac{C-1}C\,
    g\Bigl(\tfrac{\sqrt{(CA-a)(CA-b)}}{C-1}\Bigr) \le L$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta; the lower end is 0 where a class may be lost.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> low, high = norm_range(norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-4))
    >>> round(low, 1), round(high, 1)
    (4.5, 5.6)
    """
    low, high = _end(given, 0.0), _end(given, given.num_classes * given.product)
    return max(0.0, low * (1 - 1e-9)), high * (1 + 1e-9)


def _end(given: NormsAndLoss, outside: float) -> float:
    """Just beyond the last reachable norm on the way to `outside`: they are an interval."""
    inside = given.product
    for zoom in range(COARSE):
        a = np.linspace(inside, outside, POINTS)
        beyond = _least_rise(given, a) > _allowed(given)
        if zoom == 0 and not beyond[-1]:
            return outside
        beyond[-1] = True
        first = max(1, int(np.argmax(beyond)))
        inside, outside = float(a[first - 1]), float(a[first])
    return outside


def _allowed(given: NormsAndLoss) -> float:
    """The excess, with what the search over b and rounding may miss."""
    return given.excess * (1 + 1e-6) + 1e-10 * (1 + given.product) * given.optimal_loss


def _least_rise(given: NormsAndLoss, a: FloatArray) -> FloatArray:
    """Least loss above the best with a class of square feature norm a: convex in b."""
    start = np.zeros(len(a))
    width = np.full(len(a), given.num_classes * given.product)
    for _ in range(ZOOMS):
        b = start[:, None] + width[:, None] * np.linspace(0.0, 1.0, POINTS)
        rises = _rise(given, a[:, None], b)
        at = np.clip(rises.argmin(1) - 1, 0, POINTS - 3)
        width = width / (POINTS - 1)
        start, width = start + at * width, 2 * width
    return np.asarray(rises.min(1))


def _rise(given: NormsAndLoss, a: FloatArray, b: FloatArray) -> FloatArray:
    classes, product = given.num_classes, given.product
    total = classes * product
    score = np.sqrt(a * b)  # (a, b)
    rest = np.sqrt(np.maximum((total - a) * (total - b), 0.0))
    # The bias that helps most makes all scores even, or as even as it can.
    shift = bias_shift(given)
    own = np.clip((score + rest) / classes, score - shift, score + shift)
    others = (score + rest - own) / (classes - 1)
    own_rise = g_rise(own - product, classes, product)
    rest_rise = g_rise(others - product, classes, product)
    return np.asarray((own_rise + (classes - 1) * rest_rise) / classes)


def norm_ratio(given: NormsAndLoss) -> float:
    """The largest ratio of two class norms, not squared; inf where a class may be lost.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> round(norm_ratio(norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-6)), 2)
    1.01
    """
    low, high = norm_range(given)
    return math.sqrt(high / low) if low > 0 else math.inf
