"""Constants of pan2023, Thm 2.3.1: the exact leading ones, and those of the written-out proof."""

import math
from dataclasses import dataclass

import numpy as np

from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, score_range
from nclab.theory.certificates.one_class import jensen_intra
from nclab.theory.layer_peeled import FloatArray, g_rise, wrong_probability


@dataclass(frozen=True)
class AsymptoticConstants:
    """Leading constants for small excess loss eps; equalities in the limit, not bounds."""

    intra: float
    """Constant of the worst class of any network: 1 - intra-class cosine is at most intra * eps."""
    kappa: float | None
    """Constant of the worst pair: inter = -1/(C-1) + kappa sqrt(eps); None for two classes."""
    mu_standard: float
    mu_pairs: float
    """Constant of all pairs: squared deviations sum to at most max(mu_standard, mu_pairs) eps."""

    def inter(self, num_classes: int, excess: float) -> float | None:
        """Return the leading-order inter-class cosine of the worst pair, or None for two
        classes."""
        if self.kappa is None:
            return None
        return -1 / (num_classes - 1) + self.kappa * math.sqrt(excess)


def asymptotic_constants(num_classes: int, product: float) -> AsymptoticConstants:
    r"""Return the leading constants of the worst case, from second-order perturbation.

    $$1-\mathrm{intra}\le\frac{2C\,\varepsilon}{\min(aA,\ (\log C-m)/2-aA/4)},\quad
    a = |g'(A)| = \tfrac{C\pi}{C-1}$$

    Equal features that turn away from their row reach the first term of the minimum; a small share
    of features of norm near 0 that point backwards reaches the second one.

    $$\kappa^2 = \frac{(C-1)\mu_{std}+(M-C)\mu_2}{M},\quad
    \mu_2 = \frac{C(C-1+A)}{A^2\pi},\quad M = \tfrac{C(C-1)}2$$

    Source: pan2023, Thm 2.3.1
    Range: positive; the rates of the theorem are eps and sqrt(eps), not sqrt(eps) and eps^(1/6).

    >>> constants = asymptotic_constants(10, 5.0)
    >>> round(constants.kappa, 5), round(constants.mu_standard, 4), round(constants.mu_pairs, 4)
    (12.10827, 85.3547, 166.5506)
    """
    if num_classes < 2 or not product > 0:
        raise DataError(
            f"Expected at least 2 classes and a positive product of norms, "
            f"got {num_classes} and {product}."
        )
    classes, pi = num_classes, wrong_probability(product, num_classes)
    others = classes - 1
    if pi == 0:
        return AsymptoticConstants(math.inf, None, math.inf, math.inf)
    pairs = classes * others / 2
    mu_pairs = classes * (others + product) / (product**2 * pi)
    linear = np.array([-0.5, -0.5, float(classes)])
    mu_standard, kappa = 0.0, None
    if classes > 2:
        wrong = pi / others
        with np.errstate(over="ignore"):
            solved = np.linalg.solve(_curvature(classes, product, wrong), linear) / wrong
        mu_standard = (classes - 2) / (product * others) ** 2 * float(linear @ solved)
        kappa = math.sqrt((others * mu_standard + (pairs - classes) * mu_pairs) / pairs)
    turned, rise = 2 * others / (pi * product), float(g_rise(np.array(-product), classes, product))
    backwards = 2 * classes / (rise / 2 - classes / others * pi * product / 4)
    return AsymptoticConstants(max(turned, backwards), kappa, mu_standard, mu_pairs)


def _curvature(classes: int, product: float, p: float) -> FloatArray:
    """Return the quadratic form of the loss over p in (e, f, Omega), with eta = Omega - e / C."""
    stretch = classes / (classes - 1) * product
    eta = np.array([-1 / classes, 0.0, 1.0])
    class_form = eta + np.array([1.0, 0.0, 0.0])
    total = np.array([classes - 2.0, 0.0, float(classes)])
    mixed = np.outer(eta, class_form)
    form = (classes - 1) * (np.outer(eta, eta) + np.outer(class_form, class_form)) + mixed + mixed.T
    form = (form - p * np.outer(total, total)) / (2 * classes)
    form[1, 1] += (classes - 2) / (2 * classes * stretch)
    form[2, 2] += classes / (2 * stretch)
    return np.asarray(form)


@dataclass(frozen=True)
class ThesisBounds:
    """Bounds of the proof of pan2023, Thm 2.3.1 for a fraction 1 - 2 delta of the classes."""

    delta: float
    curvature: float
    """Strong convexity constant lambda that the proof divides by."""
    alignment_gap: float
    """Gap E: alignment is at least 1 - E; vacuous above 1."""
    intra_lower: float
    inter_upper: float
    """Two leading terms of the printed chain, so not a full bound; vacuous above 1."""


def curvature_printed(inputs: NormsAndLoss) -> float:
    r"""Return the strong convexity on the proof's range, [-C alpha beta, C alpha beta].

    $$\lambda = \varphi''(C\alpha\beta) = q(1-q)$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4]; about e^(-C alpha beta), so the constants are vacuous. The range is correct for
    an excess below `excess_to_leave`.
    """
    classes = inputs.num_classes
    worst = (classes - 1) * inputs.product  # the score at the ends of the range
    return min(_second_derivative(classes, -worst), _second_derivative(classes, worst))


def curvature_reachable(inputs: NormsAndLoss) -> float:
    r"""Return the strong convexity on the scores that the loss allows.

    No larger constant is possible in this proof.

    $$\lambda = \min_s \varphi''\ \text{over the reachable scores of one class}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4].
    """
    low, high = score_range(inputs)
    return min(
        _second_derivative(inputs.num_classes, low), _second_derivative(inputs.num_classes, high)
    )


def thesis_bounds(inputs: NormsAndLoss, delta: float, curvature: float) -> ThesisBounds:
    r"""Return the bounds of the chain (2.17) to (2.21) with explicit constants.

    $$E = \tfrac{C-1}{C\alpha\beta}\max_{\varepsilon_2+\pi\varepsilon_3\le\varepsilon}
    \Bigl(\tfrac{\varepsilon_3}\delta+2\sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr),
    \quad \mathrm{inter} \lesssim -\tfrac1{C-1}+4E^{1/3}+\sqrt{8E}$$

    Source: pan2023, Eq. (2.21)
    Range: E in [0, inf); intra is (2 rho^2 - 1)^2 at rho = 1 - E.
    """
    if not 0 < delta < 1:
        raise DataError(f"Expected delta between 0 and 1, got {delta}.")
    classes = inputs.num_classes
    share = wrong_probability(inputs.product, classes)
    if curvature <= 0 or share <= 0:
        return ThesisBounds(delta, curvature, math.inf, 0.0, math.inf)
    # Concave in epsilon_2; its maximum is where the derivative vanishes or all is epsilon_2.
    steep = 2 * (1 - delta) / (curvature * delta)
    second = min(inputs.excess, steep * (share * delta) ** 2)
    third = (inputs.excess - second) / share
    spread = third / delta + 2 * math.sqrt(steep * second)
    gap = (classes - 1) / (classes * inputs.product) * spread
    inter = -1 / (classes - 1) + 4 * gap ** (1 / 3) + math.sqrt(8 * gap)
    return ThesisBounds(delta, curvature, gap, float(jensen_intra(1 - gap)), inter)


def _second_derivative(num_classes: int, score: float) -> float:
    """Return the second derivative q (1 - q) of the log-sum, without cancellation."""
    wrong = wrong_probability(score, num_classes)
    others = num_classes - 1
    right = 1 / (1 + others * math.exp(min(-num_classes / others * score, 700.0)))
    return wrong * right
