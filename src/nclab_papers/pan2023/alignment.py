"""The steps in the proof of Theorem 2.3.1 from alignment to the cosines of unit features.

Near the smallest loss m, the classifier row of most classes is nearly parallel to the mean feature
of the class; Eq. (2.21) is a lower bound on this alignment. The last steps of the proof derive
bounds on the intra-class and inter-class cosines from it. The excess loss epsilon is split into
parts, of which epsilon_2 and epsilon_3 enter the bound (see near_optimum.py).
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    HAND_TOLERANCE,
    describe_tally,
    draws,
    hand_error,
    judge_if,
    judge_repair,
    judge_statement,
    relative_error,
    statement,
    tally,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.inter import inter_from_means
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, norms_and_loss
from nclab.theory.certificates.theorem_constants import (
    curvature_printed,
    curvature_reachable,
    thesis_bounds,
)
from nclab.theory.layer_peeled import g
from nclab.theory.statements import ROUNDING, Inequality, sample_losses, units
from nclab_papers.pan2023.jensen import SIZES
from nclab_papers.pan2023.loss_steps import networks
from nclab_papers.pan2023.near_optimum import JUDGE_BOUND
from nclab_papers.pan2023.unit_means import pairing, unit_mean_norm, vectors_around


class Case(NamedTuple):
    """Fixed sizes of a search for the split of epsilon that makes the bound (2.21) loosest."""

    classes: int
    product: float
    """Product alpha beta."""
    excess: float
    """Excess loss epsilon."""
    delta: float
    curvature: float
    """Strong convexity lambda of the loss."""


CASES = (Case(10, 5.0, 1e-4, 0.01, 0.02), Case(10, 5.0, 1e-4, 1e-4, 0.02))
"""Two tested cases. The worst split has epsilon_2 = epsilon in the first one, and
epsilon_2 < epsilon in the second."""
SPLITS = [
    (classes, product, delta, share)
    for classes in (3, 4, 10, 50)
    for product in (0.01, 0.3, 1.0, 3.0, 6.0)
    for delta in (0.001, 0.999 / (2 * classes), 0.3, 0.499)
    for share in (1e-8, 1e-4, 0.1, 0.999)
]
"""Values of C, alpha beta, delta and epsilon/delta at which the split epsilon_2 = epsilon is
compared with the worst split."""


def _gap_error() -> float:
    """Return the largest relative error of `thesis_bounds`, compared with `_gap_by_search`."""
    pairs = []
    for case in CASES:
        best = g(case.product, case.classes)
        given = NormsAndLoss(case.classes, case.product, best, case.excess, 0.0)
        computed = thesis_bounds(given, case.delta, case.curvature).alignment_gap
        pairs.append((computed, _gap_by_search(case)))
    return relative_error(*pairs)


def _gap_by_search(case: Case) -> float:
    """Return 1 minus the bound (2.21) at the worst split of epsilon, found by a search."""
    from scipy.optimize import minimize_scalar

    classes, product, excess, delta, curvature = case
    wrong = (classes - 1) * math.exp(-classes / (classes - 1) * product)

    def gap(second: float) -> float:
        third = (excess - second) * (1 + wrong) / wrong
        spread = third / delta + 2 * math.sqrt(2 * second * (1 - delta) / (curvature * delta))
        return (classes - 1) / (classes * product) * spread

    optimum = minimize_scalar(lambda share: -gap(share * excess), bounds=(0, 1), method="bounded")
    return max(gap(0.0), gap(excess), -float(optimum.fun))


@statement(
    "pan2023/eq-2.21",
    Kind.EQUATION,
    r"For at least $(1 - 2\delta)C$ classes the score $w_c h_c$ over $\alpha_c\beta_c$ is at "
    r"least $1 - \frac{C-1}{C\alpha\beta}\left(\frac{\varepsilon_3}{\delta} + "
    r"2\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.21) “Thus, for at least”",
    thesis_bounds,
    judge=JUDGE_BOUND,
)
def alignment(preset: str) -> Numbers:
    rng = np.random.default_rng(3)
    alignments, bounds = [], []
    for classes in (3, 10):
        for W, H in zip(*networks(rng, draws(preset) // 50, classes, 2), strict=True):
            alpha = math.sqrt(float(np.square(H).sum(-1).mean()))
            beta = math.sqrt(float(np.square(W).sum()) / classes)
            given = norms_and_loss(classes, alpha, beta, float(sample_losses(W, H).mean()))
            # With delta below 1/(2C) no class is exempt, so the bound holds for all classes.
            delta = 0.999 / (2 * classes)
            gap = thesis_bounds(given, delta, curvature_reachable(given)).alignment_gap
            centred, mean = W - W.mean(0), H.mean(1)
            scale = np.linalg.norm(centred, axis=1) * np.sqrt(np.square(H).sum(-1).mean(1))
            alignments.append(float(((centred * mean).sum(1) / scale).min()))
            bounds.append(max(1 - gap, -1.0))
    both = Inequality(np.array(alignments), ">=", np.array(bounds))
    telling = int((np.array(bounds) > 0).sum())
    return {**tally(both), "telling": telling, "hand_error": _gap_error()}


def _split(classes: int, product: float, delta: float, share: float) -> tuple[float, float]:
    """Compare the worst split of epsilon with the split epsilon_2 = epsilon.

    Return the ratio of 1 - bound (2.21) at the two splits, and the largest epsilon/delta for which
    no split is worse than epsilon_2 = epsilon. The strong convexity lambda is that of the printed
    proof.

    Args:
        share: epsilon/delta.
    """
    excess = share * delta
    given = NormsAndLoss(classes, product, g(product, classes), excess, 0.0)
    curvature = curvature_printed(given)
    worst = thesis_bounds(given, delta, curvature).alignment_gap
    alone = 2 * math.sqrt(2 * excess * (1 - delta) / (curvature * delta))
    wrong = (classes - 1) * math.exp(-classes / (classes - 1) * product)
    limit = 2 * (wrong / (1 + wrong)) ** 2 * (1 - delta) / curvature
    return worst / ((classes - 1) / (classes * product) * alone), limit


@statement(
    "pan2023/proof-worst-split",
    Kind.PROOF_STEP,
    r"Where $\varepsilon$ is small the bound on intra-class cosines is worst with all of "
    r"$\varepsilon$ in $\varepsilon_2$.",
    "pan2023, Thm 2.3.1 (proof) “then worst case bound when”",
    thesis_bounds,
    judge=judge_if(
        lambda numbers: abs(numbers["ratio"] - 1) <= HAND_TOLERANCE and numbers["limit"] > 1,
        "no distribution of epsilon over the steps is worse in {cases} cases with epsilon < delta "
        "(ratio {ratio}), and none can be worse up to epsilon = {limit} delta",
    ),
)
def worst_split(preset: str) -> Numbers:
    ratios, limits = zip(*map(_split, *zip(*SPLITS, strict=True)), strict=True)
    return {
        "cases": len(SPLITS),
        "ratio": max(ratios),
        "limit": min(limits),
        "hand_error": _gap_error(),
    }


@statement(
    "pan2023/proof-intra",
    Kind.PROOF_STEP,
    "A cosine of $1 - E$ between weight and mean feature gives the class an intra-class cosine "
    "of at least $1 - 4E$.",
    "pan2023, Thm 2.3.1 (proof) “Therefore, applying lemma Lemma 2.4.5 these classes, there is”",
    unit_mean_norm,
    judge=judge_repair,
)
def intra(preset: str) -> Numbers:
    rng = np.random.default_rng(4)
    printed: list[Inequality] = []
    repaired: list[Inequality] = []
    turned = np.array([[[1.0, 0.0]] * 3 + [[-1e-9, 0.0]]])
    for u, v in [
        (np.array([[1.0, 0.0]]), turned),
        *(vectors_around(rng, draws(preset) // 4, size) for size in SIZES),
    ]:
        data = pairing(u, v)
        short = 1 - data.inner / (data.rms * data.length)
        intra = np.square(units(v).mean(-2)).sum(-1)
        applies = short <= 1 - math.sqrt(0.5)
        for factor, batches in ((4, printed), (8, repaired)):
            right = 1 - factor * short
            batches.append(Inequality(intra, ">=", right, applies, 8 * ROUNDING))
    hand = unit_mean_norm([2.0, 0.0], [[4.0, 0.0], [4.0, 3.0]])
    lemma = (math.hypot(1.8, 0.6) / 2, 2 * 16 / 20.5 - 1)  # both sides of Lemma 2.4.5
    return {"printed": tally(*printed), "repaired": tally(*repaired), **hand_error(hand, *lemma)}


def _inter(preset: str) -> Numbers:
    a, b = np.meshgrid(np.linspace(math.pi / 2, math.pi, 200), np.linspace(0, math.pi / 2, 200))
    right = np.cos(a) + np.sqrt(2 * (1 - np.cos(b)))
    turned = Inequality(np.cos(a - b), "<=", right, True, ROUNDING)
    classes, product = 4, 3.0
    best, root = g(product, classes), math.sqrt(product)
    rows = []
    for relative in (1e-5, 1e-4, 1e-3):
        upper = certify(classes, root, root, best * (1 + relative)).inter_upper.value
        rows.append({"excess": relative * best, "certified": upper})
    cosine, length = -1 / (classes - 1), 0.5
    return {
        "turned": tally(turned),
        "cosine": cosine,
        "inner_product": length**2 * cosine,
        "limit": -1 / (classes - 1),
        "rows": rows,
        "hand_error": relative_error((inter_from_means(-0.25, 0.8, 0.36), -0.16 + 2 * 0.6)),
    }


@claim(
    "pan2023/proof-inter",
    Kind.PROOF_STEP,
    "From the cosines of weights with mean features follows that of two mean unit features, and "
    "because these have norm at most 1, the inter-class bound.",
    "pan2023, Thm 2.3.1 (proof) “Finally, we derive an upper bound on”",
    gather=_inter,
    code="nclab.theory.certificates.inter.inter_from_means",
    figure="guarantees",
)
@with_hand_check
def inter(numbers: Numbers) -> Finding:
    """Require an inequality of angles, and a bound on inter-class cosines that falls with epsilon.

    The claim is corrected if the printed step fails for mean unit features shorter than 1.
    """
    turned = judge_statement(numbers["turned"])
    gaps = [
        math.inf if row["certified"] is None else row["certified"] - numbers["limit"]
        for row in numbers["rows"]
    ]
    survives = all(before < after < 0.5 for before, after in pairwise(gaps))
    survives = survives and turned.verdict is Verdict.HOLDS
    broken = numbers["inner_product"] > numbers["cosine"]
    evidence = (
        f"mean unit features of norm 1/2 at cosine {number(numbers['cosine'])} have inner product "
        f"{number(numbers['inner_product'])}, not less; cos(a - b) <= cos a + sqrt(2 - 2 cos b): "
        f"{describe_tally(numbers['turned'])}; inter + 1/(C-1) is certified to be at most "
        f"{', '.join(number(gap) for gap in gaps)} at excess "
        f"{', '.join(number(row['excess']) for row in numbers['rows'])}"
    )
    if not survives:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.CORRECTED if broken else Verdict.HOLDS, evidence, numbers)
