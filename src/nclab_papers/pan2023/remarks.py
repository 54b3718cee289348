"""The remarks of the thesis on its main theorem."""

import math
from itertools import pairwise

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.statements import (
    describe,
    holds_if,
    judge_if,
    relative_error,
    statement,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.certificates.theorem_constants import (
    asymptotic_constants,
    curvature_printed,
    curvature_reachable,
    thesis_bounds,
)
from nclab.theory.layer_peeled import g
from nclab.theory.worst_case import worst_inter
from nclab_papers.pan2023.networks import DECAYS

PRODUCT = 4.0
"""Product alpha beta at which the certificates are compared."""
RELATIVE = 1e-3
"""Excess loss divided by the optimal loss at which `_one_pair` computes its bounds."""
LOOSE = 0.05
"""Largest accepted difference between a bound and the worst pair that a search finds, divided by
the deviation of this pair from -1/(C-1)."""
SEARCHED = 1e-6
"""Largest accepted difference between a bound and the value that a search on a grid finds."""


def _fractions(preset: str) -> Numbers:
    rows = []
    for classes in (3, 4, 10):
        root, loss = math.sqrt(PRODUCT), 1.01 * g(PRODUCT, classes)
        below, at = (
            certify(classes, root, root, loss, delta=share / classes, pairs=False)
            for share in (0.999999, 1.0)
        )
        rows.append(
            {
                "classes": classes,
                "all": float(below.alignment_lower.value or 0.0),
                "below": float(below.fraction_alignment_lower.value or 0.0),
                "at": float(at.fraction_alignment_lower.value or 0.0),
                "all_by_search": least_alignment(classes, PRODUCT, loss, 1),
                "at_by_search": least_alignment(classes, PRODUCT, loss, 2),
            }
        )
    return {"product": PRODUCT, "rows": rows, "pairs": [_one_pair(c) for c in (3, 4)]}


def _one_pair(classes: int) -> Numbers:
    """Return three bounds on inter-class cosines, and the largest cosine that a search finds.

    One bound holds for all pairs of classes, the others for all but a share delta of them, with
    delta just below 1 / (number of pairs) and equal to it.
    """
    root, best = math.sqrt(PRODUCT), g(PRODUCT, classes)
    pairs = classes * (classes - 1) / 2
    below, at = (
        certify(classes, root, root, best * (1 + RELATIVE), delta=share / pairs)
        for share in (0.999999, 1.0)
    )
    worst = worst_inter(classes, PRODUCT, RELATIVE * best, starts=2, per_class=1)
    return {
        "classes": classes,
        "all": below.inter_upper.value,
        "below": below.fraction_inter_upper.value,
        "at": at.fraction_inter_upper.value,
        "attained": worst.value,
    }


def least_alignment(classes: int, product: float, loss: float, few: int) -> float:
    """Return the smallest cosine of classifier row and mean feature that `few` classes can have.

    The mean loss of all classes is `loss`, and `product` is alpha beta. The `few` classes have
    equal cosines rho and a product p of their norms; the other classes share the remaining norms
    and have cosine 1. The smallest rho over all p is found by bisection.

    >>> [round(least_alignment(4, 4.0, 0.02, few), 3) for few in (1, 2)]
    [0.787, 0.882]
    """
    p = np.linspace(0, classes * product / few, 20_001)[1:-1]
    others = g((classes * product - few * p) / (classes - few), classes)
    low, high = 0.0, 1.0
    for _ in range(40):
        rho = (low + high) / 2
        least = (few * g(rho * p, classes) + (classes - few) * others).min() / classes
        low, high = (rho, high) if least > loss else (low, rho)
    return low


@claim(
    "pan2023/remark-delta",
    Kind.REMARK,
    r"With $\delta$ below $1/C$ a bound for a share $1 - \delta$ of the classes holds for every "
    r"class, and with $\delta$ below one pair that for a share of the pairs holds for every "
    "pair.",
    "pan2023, Thm 2.3.1 (remarks) “cosine similarity bound would hold for every class”",
    gather=_fractions,
    code="nclab.theory.certificates.certification.certify",
)
def fractions(numbers: Numbers) -> Finding:
    """Judge bounds for delta just below and exactly at the share of one class or of one pair."""
    rows = numbers["rows"]
    difference = max(abs(row["below"] - row["all"]) for row in rows)
    gain = min(row["at"] - row["below"] for row in rows)
    error = max(abs(row[name] - row[f"{name}_by_search"]) for row in rows for name in ("all", "at"))
    pairs = numbers["pairs"]
    vertices = [1 / (row["classes"] - 1) for row in pairs]
    loose = [
        (row["below"] + vertex) / (row["attained"] + vertex) - 1
        for row, vertex in zip(pairs, vertices, strict=True)
    ]
    relief = min(row["below"] - row["at"] for row in pairs)
    evidence = describe(
        "alignment at delta just below 1/C and for all classes differ by {difference}; at delta = "
        "1/C, where one class is exempt, it is larger by at least {gain}; both are within {error} "
        "of a search over the networks that attain them; the inter-class bound at delta just below "
        "one pair is the better of the bounds on all pairs and exceeds the worst pair found by at "
        "most {loose} of its deviation; with one pair exempt it is smaller by at least {relief}",
        {
            "difference": difference,
            "gain": gain,
            "error": error,
            "loose": max(loose),
            "relief": relief,
        },
    )
    every = all(row["below"] <= row["all"] + SEARCHED for row in pairs)
    every = every and min(loose) >= 0 and max(loose) <= LOOSE and relief > 0
    right = difference == 0 and gain > 0 and error <= SEARCHED and every
    return holds_if(right, evidence, numbers)


@statement(
    "pan2023/remark-regime",
    Kind.REMARK,
    r"Outside the regime $\varepsilon \ll 1$ the bound is vacuous.",
    "pan2023, Thm 2.3.1 (remarks) “if this assumption does not hold”",
    curvature_printed,
    judge=judge_if(
        lambda numbers: numbers["outside"] == 0 and 0 < numbers["largest_excess"]["printed"] < 1,
        "C = {classes}, alpha beta = {product}, delta = {delta}: from epsilon = 1 to 100 the bound "
        "is not vacuous in {outside} cases; with its constants written out it is not vacuous up to "
        "epsilon = {largest_excess[printed]:.1e}, with the curvature of the reachable scores up to "
        "{largest_excess[reachable]:.1e}, nclab's certificate up to "
        "{largest_excess[certificate]:.1e}",
    ),
    figure="certified",
)
def regime(preset: str) -> Numbers:
    classes, product, delta = 10, 5.0, 0.05
    best, root = g(product, classes), math.sqrt(product)
    largest = {"printed": 0.0, "reachable": 0.0, "certificate": 0.0}
    outside = 0  # bounds that are not vacuous at epsilon >= 1
    for power in np.arange(-60, 2.25, 0.25):
        excess = float(10.0**power)
        given = NormsAndLoss(classes, product, best, excess, 0.0)
        for name, curvature in (
            ("printed", curvature_printed(given)),
            ("reachable", curvature_reachable(given)),
        ):
            bounds = thesis_bounds(given, delta, curvature)
            if bounds.intra_lower > 0:
                largest[name] = excess
            outside += excess >= 1 and (bounds.intra_lower > 0 or bounds.inter_upper < 1)
        certificate = certify(classes, root, root, best + excess, pairs=False)
        if power > -8 and certificate.intra_lower.valid:
            largest["certificate"] = excess
    end = (classes - 1) * math.exp(classes * product)
    return {
        "classes": classes,
        "product": product,
        "delta": delta,
        "largest_excess": largest,
        "outside": outside,
        "hand_error": relative_error((curvature_printed(given), end / (1 + end) ** 2)),
    }


def _exponent(preset: str) -> Numbers:
    classes = 10
    products = np.linspace(10, 20, 5)
    slopes = [asymptotic_constants(classes, float(a)).intra for a in products]
    # c epsilon <= sqrt(c epsilon) up to epsilon = 1/c; at larger epsilon the bound is vacuous.
    best = [0.5 * math.log(slope * a) for slope, a in zip(slopes, products, strict=True)]
    proof = [
        -0.5 * math.log(curvature_printed(NormsAndLoss(classes, float(a), 0.0, 0.0, 0.0)))
        for a in products
    ]
    wrong = (classes - 1) * math.exp(-classes / (classes - 1) * 10.0)
    small = 1e-6 * g(5.0, classes)
    certified = certify(classes, 5**0.5, 5**0.5, g(5.0, classes) + small, pairs=False).intra_lower
    return {
        "classes": classes,
        "claimed": classes / (classes - 1),
        "best": float(np.polyfit(products, best, 1)[0]),
        "proved": float(np.polyfit(products, proof, 1)[0]),
        "certified_ratio": (1 - float(certified.value or 0.0))
        / (asymptotic_constants(classes, 5.0).intra * small),
        "hand_error": relative_error((slopes[0], 2 * (classes - 1) * (1 + wrong) / wrong / 10)),
    }


@claim(
    "pan2023/remark-exponent",
    Kind.REMARK,
    r"The term $e^{O(\alpha\beta)}$ is about $\exp\left(\frac{C}{C-1}\alpha\beta\right)$, close "
    r"to $e^{\alpha\beta}$.",
    "pan2023, Thm 2.3.1 (remarks) “which is close to”",
    gather=_exponent,
    code="nclab.theory.certificates.theorem_constants.asymptotic_constants",
)
@with_hand_check
def exponent(numbers: Numbers) -> Finding:
    claimed, best, proved = numbers["claimed"], numbers["best"], numbers["proved"]
    evidence = (
        f"per unit of alpha beta, C = {numbers['classes']}: the bound on intra-class cosines is "
        f"true with exponent {claimed:.3f} and with every exponent from {best:.3f} on (1 - intra "
        f"is c epsilon, with c within {abs(numbers['certified_ratio'] - 1):.1e} of the proved one; "
        f"the lambda of the proof, with the O, has {proved:.3f})"
    )
    right = abs(numbers["certified_ratio"] - 1) <= 1e-3 and best <= claimed
    return holds_if(right, evidence, numbers)


def _turning_point(preset: str) -> Numbers:
    rows, pairs = [], []
    for classes in (3, 4, 10):
        rate = classes / (classes - 1)
        grid = np.linspace(0.05, 5, 20_001)
        smallest = float(grid[np.argmin(rate * grid - np.log(grid))])
        products = [regularised_optimum(classes, decay).product for decay in DECAYS]
        for decay, product in zip(DECAYS, products, strict=True):
            # At the optimum, loss and penalty have equal slopes in alpha beta: lambda sqrt(C).
            wrong = (classes - 1) * math.exp(-rate * product)
            pairs.append((rate * wrong / (1 + wrong), decay * math.sqrt(classes)))
        rows.append(
            {
                "classes": classes,
                "turning_point": smallest,
                "claimed": 1 / rate,
                "smallest_product": min(products),
            }
        )
    return {"rows": rows, "hand_error": relative_error(*pairs)}


@claim(
    "pan2023/remark-increasing",
    Kind.REMARK,
    r"$\frac{1}{\alpha\beta}\exp\left(\frac{C}{C-1}\alpha\beta\right)$ increases once "
    r"$\alpha\beta > \frac{C-1}{C}$, which is nearly always so: the bound weakens with both "
    "norms.",
    "pan2023, Thm 2.3.1 (remarks) “can be viewed as an increasing term with regard to both”",
    gather=_turning_point,
    code="nclab.theory.certificates.regularised.regularised_optimum",
)
@with_hand_check
def turning_point(numbers: Numbers) -> Finding:
    rows = numbers["rows"]
    error = max(abs(row["turning_point"] - row["claimed"]) for row in rows)
    above = min(row["smallest_product"] / row["claimed"] for row in rows)
    evidence = describe(
        "exp(C x/(C-1))/x has its minimum at (C-1)/C (error {error}); at the optimum of the "
        "regularised loss alpha beta is at least {above} times this value for every weight decay "
        "of the thesis",
        {"error": error, "above": above},
    )
    right = error <= 1e-3 and above > 1
    return holds_if(right, evidence, numbers)


def _weight_decay(preset: str) -> Numbers:
    classes = 10
    optima = [regularised_optimum(classes, decay) for decay in DECAYS]
    loss = 1.05 * optima[-1].optimal_loss
    guaranteed = [
        certify(classes, optimum.alpha, optimum.beta, loss, pairs=False).intra_lower.value
        for optimum in optima
    ]
    return {
        "loss": loss,
        "alpha": [optimum.alpha for optimum in optima],
        "beta": [optimum.beta for optimum in optima],
        "guaranteed_intra": [float(value or 0.0) for value in guaranteed],
    }


@claim(
    "pan2023/remark-weight-decay",
    Kind.REMARK,
    r"At the same loss larger weight decay means smaller $\alpha$ and $\beta$, and so a stronger "
    "guarantee of collapse.",
    "pan2023, Thm 2.3.1 (remarks) “larger weight decay values result in smaller”",
    gather=_weight_decay,
    code="nclab.theory.certificates.regularised.regularised_optimum",
    figure="pan2023_norms",
)
def weight_decay(numbers: Numbers) -> Finding:
    alpha, beta, intra = (numbers[name] for name in ("alpha", "beta", "guaranteed_intra"))
    falls = all(a > b for series in (alpha, beta) for a, b in pairwise(series))
    grows = all(a <= b for a, b in pairwise(intra)) and intra[0] < intra[-1]
    evidence = (
        f"from weight decay 1e-4 to 1e-2 alpha falls from {number(alpha[0])} to "
        f"{number(alpha[-1])} and beta from {number(beta[0])} to {number(beta[-1])}; at the same "
        f"loss {number(numbers['loss'])} the guaranteed intra grows from {number(intra[0])} to "
        f"{number(intra[-1])}"
    )
    return holds_if(falls and grows, evidence, numbers)
