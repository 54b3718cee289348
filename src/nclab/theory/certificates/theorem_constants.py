"""Constants of pan2023, Thm 2.3.1: the exact ones for small excess loss, and those of its proof."""

import math
from dataclasses import dataclass

import numpy as np

from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, score_range
from nclab.theory.certificates.one_class import jensen_intra
from nclab.theory.layer_peeled import FloatArray, g_rise, wrong_probability


@dataclass(frozen=True)
class AsymptoticConstants:
    """Deviations of the worst network from collapse, to leading order in a small excess loss eps.

    They are exact in the limit eps -> 0, but they are not bounds for a given eps.
    """

    intra: float
    """In the worst class, 1 - intra-class cosine is intra * eps."""
    kappa: float | None
    """The worst pair has inter-class cosine -1/(C-1) + kappa sqrt(eps); None for two classes."""
    mu_standard: float
    mu_pairs: float
    """The squared deviations of the inter-class cosines from -1/(C-1), summed over all pairs, are
    at most max(mu_standard, mu_pairs) eps."""

    def inter(self, num_classes: int, excess: float) -> float | None:
        """Return the leading-order inter-class cosine of the worst pair; None for two classes."""
        if self.kappa is None:
            return None
        return -1 / (num_classes - 1) + self.kappa * math.sqrt(excess)


def asymptotic_constants(num_classes: int, product: float) -> AsymptoticConstants:
    r"""Return the constants of the worst network for small excess loss $\varepsilon$.

    $$1-\mathrm{intra}\le\frac{2C\,\varepsilon}{\min(aA,\ (\log C-m)/2-aA/4)},\quad
    a = |g'(A)| = \tfrac{C\pi}{C-1}$$

    A is the product of norms, m the smallest loss it allows, and $\pi$ the probability of the wrong
    classes at this loss. A class whose equal features turn away from their row reaches the first
    term of the minimum. A class reaches the second term if a small share of its features has a
    norm near 0 and points away from the row.

    $$\kappa^2 = \frac{(C-1)\mu_{std}+(M-C)\mu_2}{M},\quad
    \mu_2 = \frac{C(C-1+A)}{A^2\pi},\quad M = \tfrac{C(C-1)}2$$

    $\mu_{std}$ is `mu_standard` and $\mu_2$ is `mu_pairs`; M is the number of pairs.

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
    """Return the matrix of the second-order change of the loss, divided by p.

    p is the probability of the wrong classes. The change is a quadratic form of three numbers
    e, f, Omega that describe a small deviation from the optimum; eta is Omega - e / C.
    """
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
    """Strong convexity constant lambda of the loss, by which the proof divides."""
    alignment_gap: float
    """Gap E: the alignment is at least 1 - E, which says nothing if E is above 1."""
    intra_lower: float
    inter_upper: float
    """Leading two terms of the theorem's bound on the inter-class cosine; the rest is missing."""


def curvature_printed(inputs: NormsAndLoss) -> float:
    r"""Return the strong convexity constant on the range that the proof of pan2023 uses.

    $$\lambda = \varphi''(C\alpha\beta) = q(1-q)$$

    $\varphi$ is the loss of a class as a function of $x_c$ (see `excess_to_leave`), which the
    proof limits to $[-C\alpha\beta, C\alpha\beta]$; q is the probability of the wrong classes at
    its ends. The limits are correct for an excess loss below `excess_to_leave`.

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4]; about e^(-C alpha beta), so small that the theorem's bounds say nothing.
    """
    classes = inputs.num_classes
    worst = (classes - 1) * inputs.product  # the score at the ends of the range
    return min(_second_derivative(classes, -worst), _second_derivative(classes, worst))


def curvature_reachable(inputs: NormsAndLoss) -> float:
    r"""Return the strong convexity constant on the range of scores that the loss allows.

    No larger constant is possible in this proof.

    $$\lambda = \min_s \varphi''(s)\ \text{for } s \text{ in the range of the scores}$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4].
    """
    low, high = score_range(inputs)
    return min(
        _second_derivative(inputs.num_classes, low), _second_derivative(inputs.num_classes, high)
    )


def thesis_bounds(inputs: NormsAndLoss, delta: float, curvature: float) -> ThesisBounds:
    r"""Return the bounds of pan2023, Thm 2.3.1, with the constants of its proof written out.

    $$E = \tfrac{C-1}{C\alpha\beta}\max_{\varepsilon_2+\pi\varepsilon_3\le\varepsilon}
    \Bigl(\tfrac{\varepsilon_3}\delta+2\sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr),
    \quad \mathrm{inter} \lesssim -\tfrac1{C-1}+4E^{1/3}+\sqrt{8E}$$

    The alignment $\rho$ is at least 1 - E, and the intra-class cosine at least $(2\rho^2-1)^2$,
    for a share $1-2\delta$ of the classes. $\lambda$ is the strong convexity constant `curvature`,
    and $\pi$ the probability of the wrong classes at the smallest loss. The proof splits the excess
    loss into two parts $\varepsilon_2$ and $\pi\varepsilon_3$; nclab takes the worst split.

    Source: pan2023, Eq. (2.21)
    Range: E in [0, inf).
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
    """Return q (1 - q) for a score, with q the probability of the wrong classes, to full accuracy.

    This is the second derivative of the loss.
    """
    wrong = wrong_probability(score, num_classes)
    others = num_classes - 1
    right = 1 / (1 + others * math.exp(min(-num_classes / others * score, 700.0)))
    return wrong * right
