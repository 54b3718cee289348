"""The exact leading constants of the worst case as the excess loss goes to zero."""

import math
from dataclasses import dataclass

import numpy as np

from nclab.errors import DataError
from nclab.theory.layer_peeled import FloatArray, wrong_probability


@dataclass(frozen=True)
class AsymptoticConstants:
    """Leading behaviour for small excess loss eps; equalities in the limit, not bounds."""

    intra: float
    """1 - intra of the worst class is intra * eps."""
    kappa: float | None
    """The worst pair has inter = -1/(C-1) + kappa sqrt(eps); None for two classes."""
    mu_standard: float
    mu_pairs: float
    """The squared deviations over all pairs sum to at most max(mu_standard, mu_pairs) eps."""

    def inter(self, num_classes: int, excess: float) -> float | None:
        """The inter-class cosine of the worst pair to leading order."""
        if self.kappa is None:
            return None
        return -1 / (num_classes - 1) + self.kappa * math.sqrt(excess)


def asymptotic_constants(num_classes: int, product: float) -> AsymptoticConstants:
    r"""Second-order perturbation of the optimum: how far the worst network moves per root of loss.

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
    return AsymptoticConstants(2 * others / (pi * product), kappa, mu_standard, mu_pairs)


def _curvature(classes: int, product: float, p: float) -> FloatArray:
    """The quadratic form of the loss over p in (e, f, Omega), with eta = Omega - e / C."""
    stretch = classes / (classes - 1) * product
    eta = np.array([-1 / classes, 0.0, 1.0])
    own = eta + np.array([1.0, 0.0, 0.0])
    total = np.array([classes - 2.0, 0.0, float(classes)])
    mixed = np.outer(eta, own)
    form = (classes - 1) * (np.outer(eta, eta) + np.outer(own, own)) + mixed + mixed.T
    form = (form - p * np.outer(total, total)) / (2 * classes)
    form[1, 1] += (classes - 2) / (2 * classes * stretch)
    form[2, 2] += classes / (2 * stretch)
    return np.asarray(form)
