"""Checked inputs of every certificate, and the ranges of scores and norms that they allow."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.metrics.cross_entropy import optimal_loss
from nclab.theory.layer_peeled import FloatArray, g_rise, g_rise_inverse

TOLERANCE = 1e-6
"""A loss below the optimal loss counts as a rounding error if the relative difference is at most
this number times 1 + alpha * beta."""
SMALLEST_PRODUCT = 1e-100
"""Smallest product of norms; the squares of smaller ones underflow."""
MOST_CLASSES = 10**9
"""Largest number of classes; with more classes, rounding errors would become large."""
ZOOMS = 5
COARSE = 3
"""Number of refinements of the grid that finds an end of the range of norms. The end is rounded
outwards, so few refinements are enough."""
POINTS = 25


@dataclass(frozen=True)
class Bound:
    """A guaranteed number if `valid`; otherwise `reason` says what is missing.

    `value` is None if there is no number. If the bound is not valid, use `value` only for
    comparison: it is too weak to say anything, or true only in a limit.
    """

    value: float | None
    reason: str
    """Why the bound does not hold; empty if it holds."""
    source: str

    @property
    def valid(self) -> bool:
        """Whether the number is guaranteed."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"value": self.value, "valid": self.valid, **vars(self)}


@dataclass(frozen=True)
class NormsAndLoss:
    """Checked inputs of every certificate, with an excess loss that includes rounding errors."""

    num_classes: int
    product: float
    """Product alpha * beta."""
    optimal_loss: float
    """Smallest loss m that these norms allow."""
    excess: float
    """Loss minus m, plus the largest possible rounding error of the inputs."""
    bias_norm: float
    """Norm of the centred bias."""

    @property
    def loss(self) -> float:
        """Loss that the certificates assume: optimal loss plus excess."""
        return self.optimal_loss + self.excess


def as_number(name: str, value: object) -> float:
    """Return the value as a finite float, or raise an error that shows the value."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"Expected {name} as a number, got {value!r}.") from error
    if isinstance(value, str) or not math.isfinite(number):
        raise DataError(f"Expected a finite number as {name}, got {value!r}.")
    return number


def norms_and_loss(
    num_classes: int, alpha: float, beta: float, loss: float, *, bias_norm: float = 0.0
) -> NormsAndLoss:
    r"""Check the inputs of a certificate and return them with the excess loss.

    $$\varepsilon = L - m(\alpha\beta)$$

    m is the smallest loss that the norms allow.

    Source: pan2023, Thm 2.3.1
    Range: excess >= 0.
    """
    if as_number("a number of classes", num_classes) % 1 or not 2 <= num_classes <= MOST_CLASSES:
        raise DataError(
            f"Expected a whole number of classes from 2 to {MOST_CLASSES:.0e}, got {num_classes}."
        )
    for name, value in (("alpha", alpha), ("beta", beta), ("loss", loss)):
        if as_number(name, value) <= 0:
            raise DataError(f"Expected a positive finite {name}, got {value}.")
    if as_number("bias norm", bias_norm) < 0:
        raise DataError(f"Expected a finite bias norm >= 0, got {bias_norm}.")
    # Inputs may be tensors with one element.
    alpha, beta, loss = float(alpha), float(beta), float(loss)
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
    return NormsAndLoss(
        int(num_classes), product, best, max(excess, 0.0) + float(padding), float(bias_norm)
    )


def deviation_upper(inputs: NormsAndLoss) -> float:
    r"""Return an upper bound D on how far weights and features are from being proportional.

    $$\sum_c \tfrac1N\sum_i \|\sqrt\tau\,\dot w_c - h_{c,i}/\sqrt\tau\|^2 \le 2D,\qquad
    D = C\alpha\beta-\sum_c \dot w_c\cdot\tilde h_c \le
    (C-1)\log\bigl(1+\tfrac{e^\varepsilon-1}{\pi}\bigr) \le \tfrac{(C-1)\,\varepsilon}{\pi}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, 2 C alpha beta]; 0 at collapse.

    $\dot w_c$ is the centred row of class c, $h_{c,i}$ its i-th of N features, $\tilde h_c$ its
    mean, $\tau = \alpha/\beta$, and $\pi$ the probability of the wrong classes at the optimum. The
    bound is the same with a bias.
    """
    step = g_rise_inverse(np.array(inputs.excess), inputs.num_classes, inputs.product)
    return inputs.num_classes * min(-float(step), 2 * inputs.product)


@lru_cache(maxsize=64)
def score_range(inputs: NormsAndLoss) -> tuple[float, float]:
    r"""Return the range of scores that the loss allows for one class.

    $$\tfrac1C\bigl[g(x)+(C-1)\,g\bigl(\tfrac{CA-x}{C-1}\bigr)\bigr] \le L,\qquad
    |s-x| \le \|\dot b\|\sqrt{(C-1)/C}$$

    The score s of a class is the inner product of its centred row and its mean feature; x is the
    score plus the centred bias of the class, $A = \alpha\beta$, and g(x) the smallest loss at x.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta.
    """
    classes, product = inputs.num_classes, inputs.product
    shift = bias_shift(inputs)

    def above(steps: FloatArray) -> NDArray[np.bool_]:
        """Return for each step whether a class score of alpha * beta + step exceeds the loss."""
        one_class = g_rise(steps, classes, product)
        other_classes = g_rise(-steps / (classes - 1), classes, product)
        return np.asarray((one_class + (classes - 1) * other_classes) / classes > inputs.excess)

    bounds = []
    for sign in (-1.0, 1.0):
        inside, outside = 0.0, 1e-3 * product
        while not above(np.array(sign * outside)):
            outside *= 2
        for _ in range(11):  # each zoom finds the crossing in one of 32 intervals
            steps = np.linspace(inside, outside, 33)
            crossed = above(sign * steps)
            crossed[-1] = True
            first = max(1, int(np.argmax(crossed)))
            inside, outside = float(steps[first - 1]), float(steps[first])
        bounds.append(product + sign * (outside + shift))
    return bounds[0], min(bounds[1], classes * product)


def excess_to_leave(num_classes: int, product: float) -> float:
    r"""Return the excess loss below which the range of scores in pan2023's proof is correct.

    $$|x_c| > C\alpha\beta \;\Rightarrow\; \varepsilon \ge \min_{s=\pm(C-1)\alpha\beta}
    \tfrac1C\bigl[g(s)+(C-1)\,g\bigl(\tfrac{C\alpha\beta-s}{C-1}\bigr)\bigr]-m,\quad
    x_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    The proof assumes $|x_c| \le C\alpha\beta$ for every class c. $\dot w_c$ is its centred row,
    $\tilde h_c$ its mean feature, and g(s) the smallest loss at the score s.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, inf); 0 for two classes, which the theorem excludes; only without a bias.
    """
    steps = product * np.array([num_classes - 2.0, -num_classes])
    one_class = g_rise(steps, num_classes, product)
    other_classes = g_rise(-steps / (num_classes - 1), num_classes, product)
    return float(((one_class + (num_classes - 1) * other_classes) / num_classes).min())


def bias_shift(inputs: NormsAndLoss) -> float:
    r"""Return the largest entry that a centred bias of the given norm can have.

    $$|\dot b_c| \le \|\dot b\|\sqrt{(C-1)/C}$$

    Source: pan2023, Sec. 2.2
    Range: [0, inf).
    """
    classes = inputs.num_classes
    return inputs.bias_norm * math.sqrt((classes - 1) / classes)


@lru_cache(maxsize=64)
def norm_range(inputs: NormsAndLoss) -> tuple[float, float]:
    r"""Return the range of squared feature norms that the loss allows for one class.

    $$\min_b\ \tfrac1C\,g(\sqrt{ab})+\tfrac{C-1}C\,
    g\Bigl(\tfrac{\sqrt{(CA-a)(CA-b)}}{C-1}\Bigr) \le L$$

    The range is that of a, which is |mean h_c|^2 or mean |h_c|^2 of class c, divided by
    alpha / beta. b is the squared norm of its centred row times alpha / beta, and A = alpha * beta.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: an interval around alpha * beta; the lower end is 0 if a class mean may be zero.
    """
    low, high = _end(inputs, 0.0), _end(inputs, inputs.num_classes * inputs.product)
    return max(0.0, low * (1 - 1e-9)), high * (1 + 1e-9)


def _end(inputs: NormsAndLoss, outside: float) -> float:
    """Return the squared norm closest to `outside` that the loss allows.

    The search starts at the product of the norms; the result is rounded outwards.
    """
    inside = inputs.product
    for zoom in range(COARSE):
        a = np.linspace(inside, outside, POINTS)
        unreachable = _least_rise(inputs, a) > _allowed(inputs)
        if zoom == 0 and not unreachable[-1]:
            return outside
        unreachable[-1] = True
        first = max(1, int(np.argmax(unreachable)))
        inside, outside = float(a[first - 1]), float(a[first])
    return outside


def _allowed(inputs: NormsAndLoss) -> float:
    return inputs.excess * (1 + 1e-6) + 1e-10 * (1 + inputs.product) * inputs.optimal_loss


def _least_rise(inputs: NormsAndLoss, a: FloatArray) -> FloatArray:
    """Return the smallest excess loss with a class of squared feature norm a.

    The excess loss is convex in the squared row norm b, which is found on finer and finer grids.
    """
    start = np.zeros(len(a))
    width = np.full(len(a), inputs.num_classes * inputs.product)
    for _ in range(ZOOMS):
        b = start[:, None] + width[:, None] * np.linspace(0.0, 1.0, POINTS)
        rises = _rise(inputs, a[:, None], b)
        at = np.clip(rises.argmin(1) - 1, 0, POINTS - 3)
        width = width / (POINTS - 1)
        start, width = start + at * width, 2 * width
    return np.asarray(rises.min(1))


def _rise(inputs: NormsAndLoss, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the smallest excess loss if a class has the squared norms a (features) and b (row)."""
    classes, product = inputs.num_classes, inputs.product
    total = classes * product
    score = np.sqrt(a * b)  # (a, b)
    other_scores = np.sqrt(np.maximum((total - a) * (total - b), 0.0))
    # The bias that helps most makes all scores equal, or as equal as its norm allows.
    shift = bias_shift(inputs)
    class_score = np.clip((score + other_scores) / classes, score - shift, score + shift)
    mean_other = (score + other_scores - class_score) / (classes - 1)
    class_rise = g_rise(class_score - product, classes, product)
    other_rise = g_rise(mean_other - product, classes, product)
    return np.asarray((class_rise + (classes - 1) * other_rise) / classes)


def norm_ratio(inputs: NormsAndLoss) -> float:
    """Return the largest ratio of the feature norms of two classes; inf if one may be zero."""
    low, high = norm_range(inputs)
    return math.sqrt(high / low) if low > 0 else math.inf
