"""The remarks of pan2023 on its main theorem."""

import math
from itertools import pairwise

import numpy as np

from nclab.papers.claim import Kind, Numbers, claim
from nclab.papers.pan2023.networks import DECAYS
from nclab.papers.verdict import Finding, Verdict
from nclab.text import number
from nclab.theory.certificates.asymptotic import asymptotic_constants
from nclab.theory.certificates.certificate import certify
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.certificates.thesis import curvature_printed, curvature_reachable, thesis_bounds
from nclab.theory.layer_peeled import g


def _fractions(preset: str) -> Numbers:
    exempt, gaps = [], []
    for classes in (3, 4, 10, 100):
        for share in (0.5, 0.999999):
            exempt.append(math.floor(share / classes * classes))
            pairs = classes * (classes - 1)
            exempt.append(math.floor(share / pairs * pairs))
        root, best = math.sqrt(4.0), g(4.0, classes)
        found = certify(classes, root, root, best * 1.01, delta=0.999999 / classes)
        every, most = found.alignment_lower.value, found.fraction_alignment_lower.value
        gaps.append(abs(float(every or 0.0) - float(most or 0.0)))
    return {"exempt": max(exempt), "certificate_gap": max(gaps)}


@claim(
    "pan2023/remark-delta",
    Kind.REMARK,
    "With delta below 1/C the intra-class bound holds for every class, and below 1/(C(C-1)) "
    "the inter-class bound for every pair.",
    "pan2023, Thm 2.3.1 (remarks)",
    gather=_fractions,
    code="nclab.theory.certificates.certificate.certify",
)
def fractions(numbers: Numbers) -> Finding:
    evidence = (
        f"at delta just below 1/C, or 1/(C(C-1)) for pairs, {numbers['exempt']} classes or pairs "
        f"are exempt; certificates for 1 - delta and for all differ by "
        f"{number(numbers['certificate_gap'])}"
    )
    right = numbers["exempt"] == 0 and numbers["certificate_gap"] == 0
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _regime(preset: str) -> Numbers:
    classes, product, delta = 10, 5.0, 0.05
    best, root = g(product, classes), math.sqrt(product)
    largest = {"printed": 0.0, "reachable": 0.0, "certificate": 0.0}
    outside = 0  # bounds that say something at epsilon >= 1
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
        if power > -8 and float(certify(classes, root, root, best + excess).intra_lower.value or 0):
            largest["certificate"] = excess
    return {
        "classes": classes,
        "product": product,
        "delta": delta,
        "largest_excess": largest,
        "outside": outside,
    }


@claim(
    "pan2023/remark-regime",
    Kind.REMARK,
    "The bound says something in the regime epsilon << 1 and is vacuous outside it.",
    "pan2023, Thm 2.3.1 (remarks)",
    gather=_regime,
    code="nclab.theory.certificates.thesis.curvature_printed",
    figure="guarantees",
)
def regime(numbers: Numbers) -> Finding:
    found = numbers["largest_excess"]
    evidence = (
        f"C = {numbers['classes']}, alpha beta = {numbers['product']:g}, delta = "
        f"{numbers['delta']:g}: with its constants written out the bound says something up to "
        f"epsilon = {found['printed']:.1e}, with the curvature of the reachable scores up to "
        f"{found['reachable']:.1e}; nclab's certificate up to {found['certificate']:.1e}; "
        f"from epsilon = 1 to 100 the bound says something {numbers['outside']} times"
    )
    if numbers["outside"] != 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    if found["printed"] >= 1e-3:
        return Finding(Verdict.HOLDS, evidence, numbers)
    useful = found["certificate"] >= 1e-3
    return Finding(Verdict.CORRECTED if useful else Verdict.REFUTED, evidence, numbers)


def _exponent(preset: str) -> Numbers:
    classes = 10
    products = np.linspace(10, 20, 5)
    true = [math.log(asymptotic_constants(classes, float(a)).intra * a) for a in products]
    proof = [
        -0.5 * math.log(curvature_printed(NormsAndLoss(classes, float(a), 0.0, 0.0, 0.0)))
        for a in products
    ]
    return {
        "claimed": classes / (classes - 1),
        "attained": float(np.polyfit(products, true, 1)[0]),
        "proved": float(np.polyfit(products, proof, 1)[0]),
    }


@claim(
    "pan2023/remark-exponent",
    Kind.REMARK,
    "The term e^O(alpha beta) is about exp(C/(C-1) alpha beta), close to e^(alpha beta).",
    "pan2023, Thm 2.3.1 (remarks)",
    gather=_exponent,
    code="nclab.theory.certificates.asymptotic.asymptotic_constants",
)
def exponent(numbers: Numbers) -> Finding:
    claimed, attained, proved = numbers["claimed"], numbers["attained"], numbers["proved"]
    evidence = (
        f"per unit of alpha beta the exponent of the exact constant is {attained:.4f}, claimed "
        f"{claimed:.4f}; that of the constant which the proof gives is {proved:.3f}"
    )
    if not abs(attained / claimed - 1) <= 0.01:
        return Finding(Verdict.REFUTED, evidence, numbers)
    same = abs(proved / claimed - 1) <= 0.01
    return Finding(Verdict.HOLDS if same else Verdict.CORRECTED, evidence, numbers)


def _turning_point(preset: str) -> Numbers:
    rows = []
    for classes in (3, 4, 10):
        rate = classes / (classes - 1)
        grid = np.linspace(0.05, 5, 20_001)
        smallest = float(grid[np.argmin(rate * grid - np.log(grid))])
        products = [regularised_optimum(classes, decay).product for decay in DECAYS]
        rows.append(
            {
                "classes": classes,
                "turning_point": smallest,
                "claimed": 1 / rate,
                "smallest_product": min(products),
            }
        )
    return {"rows": rows}


@claim(
    "pan2023/remark-increasing",
    Kind.REMARK,
    "exp(C/(C-1) alpha beta)/(alpha beta) increases once alpha beta > (C-1)/C, which is "
    "nearly always so: the bound weakens with both norms.",
    "pan2023, Thm 2.3.1 (remarks)",
    gather=_turning_point,
    code="nclab.theory.certificates.regularised.regularised_optimum",
)
def turning_point(numbers: Numbers) -> Finding:
    rows = numbers["rows"]
    error = max(abs(row["turning_point"] - row["claimed"]) for row in rows)
    above = min(row["smallest_product"] / row["claimed"] for row in rows)
    evidence = (
        f"exp(C x/(C-1))/x turns at (C-1)/C (error {number(error)}); at the optimum of the "
        f"regularised loss alpha beta is at least {number(above)} times that for every weight "
        "decay of the thesis"
    )
    right = error <= 1e-3 and above > 1
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _weight_decay(preset: str) -> Numbers:
    classes = 10
    optima = [regularised_optimum(classes, decay) for decay in DECAYS]
    loss = 1.05 * optima[-1].optimal_loss
    guaranteed = [certify(classes, one.alpha, one.beta, loss).intra_lower.value for one in optima]
    return {
        "loss": loss,
        "alpha": [one.alpha for one in optima],
        "beta": [one.beta for one in optima],
        "guaranteed_intra": [float(value or 0.0) for value in guaranteed],
    }


@claim(
    "pan2023/remark-weight-decay",
    Kind.REMARK,
    "At the same loss larger weight decay means smaller alpha and beta, and so a stronger "
    "guarantee of collapse.",
    "pan2023, Thm 2.3.1 (remarks)",
    gather=_weight_decay,
    code="nclab.theory.certificates.regularised.regularised_optimum",
    figure="networks",
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
    return Finding(Verdict.HOLDS if falls and grows else Verdict.REFUTED, evidence, numbers)
