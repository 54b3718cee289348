"""Lower bounds on the cosine of class mean and classifier row, from the norms and the loss."""

import math

import numpy as np

from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.layer_peeled import FloatArray, g_inverse, g_rise, g_rise_inverse

ZOOMS = 12
POINTS = 65


def alignment_lower(inputs: NormsAndLoss, excluded: int = 0) -> float:
    r"""Return a lower bound on the alignment of all but `excluded` classes.

    The alignment of class c is cos(w_c, h_c), with the centred classifier row w_c and the class
    mean h_c.

    $$\rho^*_k = \sup\{\rho: F_k(\rho) > L\},\quad F_k(\rho) = \min_p
    \tfrac kC\,g(\rho p)+\tfrac{C-k}C\,g\bigl(\tfrac{CA-kp}{C-k}\bigr),\quad k = \text{excluded}+1$$

    Source: pan2023, Eq. (2.21)
    Range: (0, 1], or -1 if the loss allows a class to be lost entirely.

    The bound holds for s_c / (alpha_c beta_c), so it also holds for |mean h_c| / alpha_c.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> inputs = norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-4)
    >>> round(alignment_lower(inputs) ** 2, 4), alignment_lower(inputs, 3) > 0.997
    (0.9894, True)
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
    r"""Return a lower bound on cos(w_c, h_c) of every class from its own loss and norms.

    $$\rho_c \ge \frac{g^{-1}(L_c)-\dot b_c}{\alpha_c\beta_c}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1]^C, -1 for classes without a guarantee.

    Args:
        shift: upper bound on the centred bias of any class.
        clip: whether to clip ratios at 1; ratios above 1 reveal inconsistent inputs.

    >>> class_alignment_lower(10, np.array([0.1, 3.0]), np.array([5.0, 5.0])).round(4)
    array([ 0.8009, -1.    ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # Near chance, a rounding error of the loss changes the score by about as much.
        ratios = (g_inverse(losses, num_classes) - shift - 1e-15) / products
    return np.where(ratios > 0, np.minimum(ratios, 1.0) if clip else ratios, -1.0)


def _needed(p: FloatArray, inputs: NormsAndLoss, k: int) -> FloatArray:
    """Return the smallest score that k classes of norm product p can have at the given loss."""
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
    """Return the largest possible sum over k classes of a centred bias with the given norm."""
    return inputs.bias_norm * math.sqrt(k * (inputs.num_classes - k) / inputs.num_classes)


def _clip(ratio: float) -> float:
    """Return a ratio as a bound: at most 1, lowered by rounding; -1 if nothing is guaranteed."""
    return min(1.0, ratio) * (1 - 1e-14) if ratio > 0 else -1.0
