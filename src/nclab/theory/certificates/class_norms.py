"""Between which values the square feature norm of a class must lie, from the norms and the loss."""

import math
from functools import lru_cache

import numpy as np

from nclab.theory.certificates.alignment import bias_reach
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.layer_peeled import FloatArray, g_rise

HALVINGS = 36
ZOOMS = 7
POINTS = 33


@lru_cache(maxsize=64)
def norm_range(given: NormsAndLoss, spared: int = 0) -> tuple[float, float]:
    r"""Range of |mean h_c|^2 and of mean |h_c|^2, over alpha / beta, for all but `spared` classes.

    $$\min_b\ \tfrac kC\,g(\sqrt{ab})+\tfrac{C-k}C\,
    g\Bigl(\tfrac{\sqrt{(CA-ka)(CA-kb)}}{C-k}\Bigr) \le L,\qquad k = \text{spared}+1$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta; the lower end is 0 where a class may be lost. The upper
    end holds for every class.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> low, high = norm_range(norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-4))
    >>> round(low, 2), round(high, 2)
    (4.53, 5.48)
    """
    product = given.product
    low = _end(given, spared + 1, 0.0)
    high = _end(given, 1, given.num_classes * product)
    return max(0.0, low * (1 - 1e-9)), high * (1 + 1e-9)


def _end(given: NormsAndLoss, k: int, outside: float) -> float:
    """The last reachable norm on the way to `outside`; the reachable ones are an interval."""
    inside = given.product
    if k >= given.num_classes or _least_rise(given, k, outside) <= _allowed(given):
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        reached = _least_rise(given, k, middle) <= _allowed(given)
        inside, outside = (middle, outside) if reached else (inside, middle)
    return outside


def _allowed(given: NormsAndLoss) -> float:
    """The excess, with what the search over b and rounding may miss."""
    return given.excess * (1 + 1e-6) + 1e-13 * (1 + given.product) * given.optimal_loss


def _least_rise(given: NormsAndLoss, k: int, a: float) -> float:
    """Least loss above the best with k classes of square feature norm a: convex in b."""
    low, high = 0.0, given.num_classes * given.product / k
    for _ in range(ZOOMS):
        b = np.linspace(low, high, POINTS)
        rises = _rise(given, k, a, b)
        at = int(np.argmin(rises))
        low, high = float(b[max(at - 1, 0)]), float(b[min(at + 1, POINTS - 1)])
    return float(rises[at])


def _rise(given: NormsAndLoss, k: int, a: float, b: FloatArray) -> FloatArray:
    classes, product = given.num_classes, given.product
    total = classes * product
    score = np.sqrt(a * b)
    rest = np.sqrt(np.maximum((total - k * a) * (total - k * b), 0.0))
    reach = bias_reach(given, k) / k
    # The bias that helps most makes all scores even, or as even as it can.
    own = np.clip((k * score + rest) / classes, score - reach, score + reach)
    others = (k * score + rest - k * own) / (classes - k)
    own_rise = g_rise(own - product, classes, product)
    rest_rise = g_rise(others - product, classes, product)
    return np.asarray((k * own_rise + (classes - k) * rest_rise) / classes)


def norm_ratio(given: NormsAndLoss, spared: int = 0) -> float:
    """The largest ratio of two class norms, not squared; inf where a class may be lost.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> round(norm_ratio(norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-6)), 3)
    1.009
    """
    low, high = norm_range(given, spared)
    return math.sqrt(high / low) if low > 0 else math.inf
