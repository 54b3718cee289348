"""What is known of a network: classes, norms, loss, and how far the loss is above the best."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.metrics.cross_entropy import optimal_loss
from nclab.theory.layer_peeled import FloatArray, g_rise, g_rise_inverse

TOLERANCE = 1e-6
"""How far, relative to the best loss, a loss may lie below it and still count as rounding."""

SMALLEST_PRODUCT = 1e-100
"""Norms beyond this have squares that floats cannot hold."""


@dataclass(frozen=True)
class LossBudget:
    """The inputs of every certificate, checked, with the excess loss widened by rounding."""

    num_classes: int
    product: float
    """alpha * beta."""
    optimal_loss: float
    """m, the smallest loss these norms allow."""
    excess: float
    """The loss above m, plus what rounding of the inputs may hide."""
    bias_norm: float
    """Norm of the centred bias."""

    @property
    def loss(self) -> float:
        """The loss that the certificates assume."""
        return self.optimal_loss + self.excess


def as_number(name: str, value: object) -> float:
    """A finite real number, or one line that says what came instead.

    >>> as_number("alpha", 2)
    2.0
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"Expected {name} as a number, got {value!r}.") from error
    if isinstance(value, str) or not math.isfinite(number):
        raise DataError(f"Expected a finite number as {name}, got {value!r}.")
    return number


def loss_budget(
    num_classes: int, alpha: float, beta: float, loss: float, *, bias_norm: float = 0.0
) -> LossBudget:
    r"""Check the inputs of a certificate and find the excess loss.

    $$\varepsilon = L - m(\alpha\beta)$$

    Source: pan2023, Thm 2.3.1
    Range: excess >= 0.

    >>> budget = loss_budget(10, 2.0, 2.5, 0.0352017)
    >>> round(budget.optimal_loss, 6), round(budget.excess, 6)
    (0.034202, 0.001)
    """
    if as_number("a number of classes", num_classes) % 1 or num_classes < 2:
        raise DataError(f"Expected a whole number of classes, at least 2, got {num_classes}.")
    for name, value in (("alpha", alpha), ("beta", beta), ("loss", loss)):
        if as_number(name, value) <= 0:
            raise DataError(f"Expected a positive finite {name}, got {value}.")
    if as_number("bias norm", bias_norm) < 0:
        raise DataError(f"Expected a finite bias norm >= 0, got {bias_norm}.")
    alpha, beta, loss = float(alpha), float(beta), float(loss)  # they may be tensors of one number
    product = alpha * beta
    if not SMALLEST_PRODUCT < product < 1 / SMALLEST_PRODUCT:
        raise DataError(
            f"Expected alpha * beta between {SMALLEST_PRODUCT:g} and {1 / SMALLEST_PRODUCT:g}, "
            f"got {product:g}."
        )
    best = optimal_loss(int(num_classes), product)
    excess = loss - best
    if excess < -TOLERANCE * (1 + product) * best:
        raise DataError(
            f"Loss {loss:.6g} contradicts the norms: alpha * beta = {product:.6g} and "
            f"{num_classes} classes allow no loss below {best:.6g}. Is the loss averaged over "
            "classes, and are alpha and beta those of the features and weights that gave it?"
        )
    # Rounding of the norms moves m by about (1 + product) ulps; a shortfall counts as error too.
    padding = 4 * np.finfo(float).eps * (1 + product) * best + max(-excess, 0.0)
    return LossBudget(
        int(num_classes), product, best, max(excess, 0.0) + float(padding), float(bias_norm)
    )


def deviation_upper(budget: LossBudget) -> float:
    r"""Bound D on how far weights and features are from being proportional, all classes together.

    $$\sum_c \tfrac1N\sum_i \|\sqrt\tau\,\dot w_c - h_{c,i}/\sqrt\tau\|^2 \le 2D,\qquad
    D = C\alpha\beta-\sum_c \dot w_c\cdot\tilde h_c \le
    (C-1)\log\bigl(1+\tfrac{e^\varepsilon-1}{\pi}\bigr) \le \tfrac{(C-1)\,\varepsilon}{\pi}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, inf); 0 at collapse. tau = alpha / beta; a bias changes nothing.

    >>> round(deviation_upper(loss_budget(10, 2.0, 2.5, 0.0342017 + 1e-3)), 3)
    0.264
    """
    step = g_rise_inverse(np.array(budget.excess), budget.num_classes, budget.product)
    return -budget.num_classes * float(step)


@lru_cache(maxsize=64)
def score_range(budget: LossBudget) -> tuple[float, float]:
    r"""Between which values the inner product of one class's row and mean feature must lie.

    $$\tfrac1C\bigl[g(x)+(C-1)\,g\bigl(\tfrac{CA-x}{C-1}\bigr)\bigr] \le L,\qquad
    |s-x| \le \|\dot b\|\sqrt{(C-1)/C}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta.

    >>> low, high = score_range(loss_budget(10, 2.0, 2.5, 0.0342018 + 1e-4))
    >>> round(low, 3), round(high, 3)
    (4.795, 5.219)
    """
    classes, product = budget.num_classes, budget.product
    shift = bias_shift(budget)

    def above(steps: FloatArray) -> NDArray[np.bool_]:
        own = g_rise(steps, classes, product)
        rest = g_rise(-steps / (classes - 1), classes, product)
        return np.asarray((own + (classes - 1) * rest) / classes > budget.excess)

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


def bias_shift(budget: LossBudget) -> float:
    r"""How far a centred bias of the given norm can move the score of one class.

    $$|\dot b_c| \le \|\dot b\|\sqrt{(C-1)/C}$$

    Source: pan2023, Sec. 2.2
    Range: [0, inf).

    >>> round(bias_shift(loss_budget(2, 1.0, 1.0, 0.5, bias_norm=2**0.5)), 12)
    1.0
    """
    classes = budget.num_classes
    return budget.bias_norm * math.sqrt((classes - 1) / classes)
