"""Ranges that the norms and the loss leave to scores and feature norms of one class."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.layer_peeled import FloatArray, g, g_rise, g_rise_inverse


def deviation_upper(given: NormsAndLoss) -> float:
    r"""Bound D on how far weights and features are from being proportional, all classes together.

    $$\sum_c \tfrac1N\sum_i \|\sqrt\tau\,\dot w_c - h_{c,i}/\sqrt\tau\|^2 \le 2D,\qquad
    D = C\alpha\beta-\sum_c \dot w_c\cdot\tilde h_c \le
    (C-1)\log\bigl(1+\tfrac{e^\varepsilon-1}{\pi}\bigr) \le \tfrac{(C-1)\,\varepsilon}{\pi}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, inf); 0 at collapse. tau = alpha / beta; a bias changes nothing.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> round(deviation_upper(norms_and_loss(10, 2.0, 2.5, 0.0342017 + 1e-3)), 3)
    0.264
    """
    step = g_rise_inverse(np.array(given.excess), given.num_classes, given.product)
    return -given.num_classes * float(step)


@lru_cache(maxsize=64)
def score_range(given: NormsAndLoss) -> tuple[float, float]:
    r"""Between which values the inner product of one class's row and mean feature must lie.

    $$\tfrac1C\bigl[g(x)+(C-1)\,g\bigl(\tfrac{CA-x}{C-1}\bigr)\bigr] \le L,\qquad
    |s-x| \le \|\dot b\|\sqrt{(C-1)/C}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> low, high = score_range(norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-4))
    >>> round(low, 3), round(high, 3)
    (4.795, 5.219)
    """
    classes, product = given.num_classes, given.product
    shift = bias_shift(given)

    def above(steps: FloatArray) -> NDArray[np.bool_]:
        own = g_rise(steps, classes, product)
        rest = g_rise(-steps / (classes - 1), classes, product)
        return np.asarray((own + (classes - 1) * rest) / classes > given.excess)

    ends = []
    for sign in (-1.0, 1.0):
        inside, outside = 0.0, 1e-3 * product
        while not above(np.array(sign * outside)):
            outside *= 2
        for _ in range(11):  # each zoom finds the crossing among 32 intervals
            steps = np.linspace(inside, outside, 33)
            crossed = above(sign * steps)
            crossed[-1] = True
            first = max(1, int(np.argmax(crossed)))
            inside, outside = float(steps[first - 1]), float(steps[first])
        ends.append(product + sign * (outside + shift))
    return ends[0], min(ends[1], classes * product)


def excess_for_zero(num_classes: int, product: float) -> float:
    r"""The excess loss below which every class has a positive score.

    $$\dot w_c\cdot\tilde h_c \le 0 \;\Rightarrow\; \varepsilon \ge
    \tfrac1C\bigl[\log C+(C-1)\,g\bigl(\tfrac{C\alpha\beta}{C-1}\bigr)\bigr]-m$$

    Source: pan2023, Thm 2.3.1 (proof, positive scores)
    Range: [0, inf), without a bias; one class at 0, the others alike.

    >>> round(excess_for_zero(10, 5.0), 4)
    0.2128
    """
    rest = float(g(num_classes * product / (num_classes - 1), num_classes))
    lowest = float(g(product, num_classes))
    return (math.log(num_classes) + (num_classes - 1) * rest) / num_classes - lowest


def excess_to_leave(num_classes: int, product: float) -> float:
    r"""The excess loss below which no argument of the convex function leaves the thesis's range.

    $$|x_c| > C\alpha\beta \;\Rightarrow\; \varepsilon \ge \min_{s=\pm(C-1)\alpha\beta}
    \tfrac1C\bigl[g(s)+(C-1)\,g\bigl(\tfrac{C\alpha\beta-s}{C-1}\bigr)\bigr]-m,\quad
    x_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, inf); 0 for two classes, which the theorem leaves out, and without a bias only.

    >>> round(excess_to_leave(10, 5.0), 4), excess_to_leave(2, 5.0)
    (1.5563, 0.0)
    """
    steps = product * np.array([num_classes - 2.0, -num_classes])
    own = g_rise(steps, num_classes, product)
    rest = g_rise(-steps / (num_classes - 1), num_classes, product)
    return float(((own + (num_classes - 1) * rest) / num_classes).min())


def bias_shift(given: NormsAndLoss) -> float:
    r"""How far a centred bias of the given norm can move the score of one class.

    $$|\dot b_c| \le \|\dot b\|\sqrt{(C-1)/C}$$

    Source: pan2023, Sec. 2.2
    Range: [0, inf).

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> round(bias_shift(norms_and_loss(2, 1.0, 1.0, 0.5, bias_norm=2**0.5)), 12)
    1.0
    """
    classes = given.num_classes
    return given.bias_norm * math.sqrt((classes - 1) / classes)


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
