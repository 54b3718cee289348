"""The steps of the proof of pan2023, Theorem 2.3.1: from the loss to the bounds on cosines."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nclab.claims.claim import Claim, Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    HAND_TOLERANCE,
    describe_tally,
    draws,
    holds_if,
    judge_repair,
    judge_statement,
    relative_error,
    tally,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.inter import inter_from_means
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, norms_and_loss
from nclab.theory.certificates.scores import excess_to_leave
from nclab.theory.certificates.theorem_constants import (
    curvature_printed,
    curvature_reachable,
    thesis_bounds,
)
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import ROUNDING, Inequality, sample_losses, units
from nclab_papers.pan2023.data_sets import SIZES, networks, vectors_around
from nclab_papers.pan2023.statements.loss_steps import (
    argument_range_printed,
    class_loss_bound,
    excess_for_zero,
    log_sum_step,
    minimal_loss,
    tangent_step,
)
from nclab_papers.pan2023.statements.unit_means import pairing, unit_mean_norm


def _class_loss(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches = []
    for classes in (2, 4, 10):
        batches.append(class_loss_bound(*networks(rng, draws(preset) // 20, classes, 3)))
    hand = class_loss_bound([[1.0], [-1.0]], [[[2.0], [0.0]], [[-1.0], [-1.0]]])
    left = [(math.log1p(math.exp(-4)) + math.log(2)) / 2, math.log1p(math.exp(-2))]
    return {
        **tally(*batches),
        "hand_error": relative_error(
            (hand.left, left), (hand.right, [math.log1p(math.exp(-2))] * 2)
        ),
    }


class_loss = Claim(
    "pan2023/eq-2.9",
    Kind.EQUATION,
    r"The mean loss of a class is at least $\log\left(1 + (C-1)\exp\left(-\frac{C}{C-1}w_c "
    r"h_c\right)\right)$ with the centred weight $w_c$ and the mean feature $h_c$ of the class.",
    "pan2023, Eq. (2.9) “consider the minimum achievable average loss for a single class c”",
    with_hand_check(judge_statement),
    _class_loss,
    code="nclab_papers.pan2023.statements.loss_steps.class_loss_bound",
)


def _log_sum(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    argument = rng.uniform(-12, 0, size=draws(preset) // 4)
    largest = 9 * -np.expm1(argument)  # at a class loss of log C
    gap = np.minimum(largest, 10 ** rng.uniform(-6, 1, size=len(argument)))
    hand = log_sum_step(4, -math.log(3), 1.0)  # a = 2; log a is subtracted from both sides
    return {
        **tally(log_sum_step(10, argument, gap)),
        "hand_error": relative_error((hand.left, math.log(1.5)), (hand.right, 0.25)),
    }


log_sum = Claim(
    "pan2023/eq-2.18",
    Kind.PROOF_STEP,
    r"A gap inside the logarithm comes out of it divided by $C$: $\log(a + \varepsilon) \ge \log "
    r"a + \varepsilon/C$, where $\log(a + \varepsilon)$ bounds a class loss that is at most "
    r"$\log C$.",
    "pan2023, Eq. (2.18) “to represent the gap introduced by each inequality in the above proof”",
    with_hand_check(judge_statement),
    _log_sum,
    code="nclab_papers.pan2023.statements.loss_steps.log_sum_step",
)


def _range(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    ranges, beyond = [], []
    for classes in (3, 4, 10):
        W, H = networks(rng, draws(preset) // 20, classes, 2)
        # Only a class with most of the norms could leave the range.
        light = 10 ** rng.uniform(-3, 0, size=(len(W), 1))
        heavy = np.where(np.arange(classes) == 0, 1.0, light)  # (count, C)
        for rows, columns in ((W, H), (W * heavy[..., None], H * heavy[..., None, None])):
            share = _excess(rows, columns) / _enough(excess_to_leave, rows, columns)
            near = share < 1
            inside = argument_range_printed(rows, columns)
            ranges.append(replace(inside, applies=near[:, None]))
            beyond += share[(~inside.holds).any(-1)].tolist()
    hand = argument_range_printed([[1.0], [-1.0]], [[[2.0]], [[1.0]]])
    leaving = [math.log1p(2 * math.exp(-1.5 * score)) for score in (2.0, 0.5, 1.0)]
    return {
        **tally(*ranges),
        "beyond": len(beyond),
        "least_share": min(beyond, default=math.inf),
        "excess_to_leave": excess_to_leave(10, 5.0),
        "hand_error": relative_error(
            (hand.left, [4.0, 2.0]),
            (hand.right, [10**0.5] * 2),
            (excess_to_leave(3, 1.0), (leaving[0] + 2 * leaving[1]) / 3 - leaving[2]),
        ),
    }


def _excess(W: FloatArray, H: FloatArray) -> FloatArray:
    """Return (count,) the excess of the loss over the smallest loss for these norms."""
    both = minimal_loss(W, H)
    return np.asarray(both.left - both.right)


def _enough(least: Callable[[int, float], float], W: FloatArray, H: FloatArray) -> FloatArray:
    """Return (count,) the value of `least` for the classes and norms of every network."""
    alpha = np.sqrt(np.square(H).sum(-1).mean((-1, -2)))
    beta = np.sqrt(np.square(W).sum((-1, -2)) / W.shape[-2])
    return np.array([least(W.shape[-2], float(product)) for product in alpha * beta])


@claim(
    "pan2023/proof-range",
    Kind.PROOF_STEP,
    r"The arguments of the strongly convex function lie in $[-C\alpha\beta, C\alpha\beta]$.",
    "pan2023, Thm 2.3.1 (proof) “the second-order derivative of log(1”",
    gather=_range,
    code="nclab_papers.pan2023.statements.loss_steps.argument_range_printed",
)
@with_hand_check
def norm_range(numbers: Numbers) -> Finding:
    """Judge the range for small excess losses, and report where networks leave it."""
    finding = judge_statement(numbers)
    evidence = (
        f"for excess losses too small to leave the range (below "
        f"{number(numbers['excess_to_leave'])} at C = 10, alpha beta = 5): {finding.evidence}; at "
        f"higher losses, from {number(numbers['least_share'])} times this value on, "
        f"{numbers['beyond']} networks leave the range"
    )
    return Finding(finding.verdict, evidence, numbers)


def _third_gap(preset: str) -> Numbers:
    rng = np.random.default_rng(5)
    batches = []
    for classes in (3, 10, 100):
        product = 10 ** rng.uniform(-1, 1.3, size=draws(preset) // 10)
        gap = rng.choice([-1, 1], size=len(product)) * 10 ** rng.uniform(-6, 1, size=len(product))
        batches.append(tangent_step(classes, product, gap))
    hand = tangent_step(3, 2 * math.log(2) / 3, math.log(4))  # C A/(C-1) = log 2
    sides = (hand.left, math.log(5)), (hand.right, math.log(2) + math.log(4) / 2)
    return {**tally(*batches), "hand_error": relative_error(*sides)}


third_gap = Claim(
    "pan2023/proof-third-gap",
    Kind.PROOF_STEP,
    r"A gap $\varepsilon_3$ in the exponent makes the loss larger by about "
    r"$\frac{\gamma}{1+\gamma}\varepsilon_3$ with $\gamma = "
    r"(C-1)\exp\left(-\frac{C}{C-1}\alpha\beta\right)$, and by no less.",
    "pan2023, Thm 2.3.1 (proof) “Thus using the fact that”",
    with_hand_check(judge_statement),
    _third_gap,
    code="nclab_papers.pan2023.statements.loss_steps.tangent_step",
)


def _positive(preset: str) -> Numbers:
    rng = np.random.default_rng(6)
    excess, enough = [], []
    for classes in (3, 4, 10):
        W, H = networks(rng, draws(preset) // 20, classes, 2)
        flipped = H.copy()
        flipped[:, 0] *= -1  # the features of one class point away from its classifier row
        for columns in (H, flipped):
            scores = ((W - W.mean(1, keepdims=True)) * columns.mean(2)).sum(-1).min(-1)
            excess += _excess(W, columns)[scores <= 0].tolist()
            enough += _enough(excess_for_zero, W, columns)[scores <= 0].tolist()
    both = Inequality(np.array(excess), ">=", np.array(enough), "pan2023, Thm 2.3.1 (proof)")
    others, all_alike = (math.log1p(2 * math.exp(-1.5 * score)) for score in (1.5, 1.0))
    hand = (math.log(3) + 2 * others) / 3 - all_alike
    return {
        **tally(both),
        "enough": excess_for_zero(10, 5.0),
        "hand_error": relative_error((excess_for_zero(3, 1.0), hand)),
    }


@claim(
    "pan2023/proof-positive",
    Kind.PROOF_STEP,
    r"Where $\varepsilon$ is small enough every class has a positive score $w_c h_c$.",
    "pan2023, Thm 2.3.1 (proof) “there must be”",
    gather=_positive,
    code="nclab_papers.pan2023.statements.loss_steps.excess_for_zero",
)
@with_hand_check
def positive(numbers: Numbers) -> Finding:
    """Judge the excess loss of networks with a score of at most 0."""
    finding = judge_statement(numbers)
    evidence = (
        f"the excess loss of networks with a score of at most 0 is at least the required one: "
        f"{finding.evidence}; at C = 10, alpha beta = 5 the required excess is "
        f"{number(numbers['enough'])}"
    )
    return Finding(finding.verdict, evidence, numbers)


def _alignment(preset: str) -> Numbers:
    rng = np.random.default_rng(3)
    alignments, bounds = [], []
    for classes in (3, 10):
        for W, H in zip(*networks(rng, draws(preset) // 50, classes, 2), strict=True):
            alpha = math.sqrt(float(np.square(H).sum(-1).mean()))
            beta = math.sqrt(float(np.square(W).sum()) / classes)
            given = norms_and_loss(classes, alpha, beta, float(sample_losses(W, H).mean()))
            # With delta below half a class no class is exempt, and the bound holds for all.
            delta = 0.999 / (2 * classes)
            gap = thesis_bounds(given, delta, curvature_reachable(given)).alignment_gap
            centred, mean = W - W.mean(0), H.mean(1)
            scale = np.linalg.norm(centred, axis=1) * np.sqrt(np.square(H).sum(-1).mean(1))
            alignments.append(float(((centred * mean).sum(1) / scale).min()))
            bounds.append(max(1 - gap, -1.0))
    both = Inequality(np.array(alignments), ">=", np.array(bounds), "pan2023, Eq. (2.21)")
    return {
        **tally(both),
        "telling": int((np.array(bounds) > 0).sum()),
        "hand_error": relative_error(
            *((_gap_by_code(case), _gap_by_search(case)) for case in CASES)
        ),
    }


SPLITS = [
    (classes, product, delta, share)
    for classes in (3, 4, 10, 50)
    for product in (0.01, 0.3, 1.0, 3.0, 6.0)
    for delta in (0.001, 0.999 / (2 * classes), 0.3, 0.499)
    for share in (1e-8, 1e-4, 0.1, 0.999)
]
"""C, alpha beta, delta and epsilon/delta < 1 at which epsilon_2 = epsilon is tested."""


class Case(NamedTuple):
    """Sizes at which (2.21) is computed by a search over the distributions of epsilon."""

    classes: int
    product: float
    excess: float
    delta: float
    curvature: float


CASES = (Case(10, 5.0, 1e-4, 0.01, 0.02), Case(10, 5.0, 1e-4, 1e-4, 0.02))
"""In the worst distribution of the first case epsilon_2 = epsilon, in the second epsilon_2 is
smaller."""


def _gap_by_code(case: Case) -> float:
    best = g(case.product, case.classes)
    given = NormsAndLoss(case.classes, case.product, best, case.excess, 0.0)
    return thesis_bounds(given, case.delta, case.curvature).alignment_gap


def _gap_by_search(case: Case) -> float:
    from scipy.optimize import minimize_scalar

    classes, product, excess, delta, curvature = case
    wrong = (classes - 1) * math.exp(-classes / (classes - 1) * product)

    def gap(second: float) -> float:
        third = (excess - second) * (1 + wrong) / wrong
        spread = third / delta + 2 * math.sqrt(2 * second * (1 - delta) / (curvature * delta))
        return (classes - 1) / (classes * product) * spread

    optimum = minimize_scalar(lambda share: -gap(share * excess), bounds=(0, 1), method="bounded")
    return max(gap(0.0), gap(excess), -float(optimum.fun))


def _split(classes: int, product: float, delta: float, share: float) -> tuple[float, float]:
    """Compare the worst distribution of epsilon with epsilon_2 = epsilon, with lambda of the proof.

    Returns the ratio of the bounds and the largest epsilon/delta at which no distribution is worse.
    """
    excess = share * delta
    given = NormsAndLoss(classes, product, g(product, classes), excess, 0.0)
    curvature = curvature_printed(given)
    worst = thesis_bounds(given, delta, curvature).alignment_gap
    alone = 2 * math.sqrt(2 * excess * (1 - delta) / (curvature * delta))
    wrong = (classes - 1) * math.exp(-classes / (classes - 1) * product)
    limit = 2 * (wrong / (1 + wrong)) ** 2 * (1 - delta) / curvature
    return worst / ((classes - 1) / (classes * product) * alone), limit


@claim(
    "pan2023/eq-2.21",
    Kind.EQUATION,
    r"For at least $(1 - 2\delta)C$ classes the score $w_c h_c$ over $\alpha_c\beta_c$ is at "
    r"least $1 - \frac{C-1}{C\alpha\beta}\left(\frac{\varepsilon_3}{\delta} + "
    r"2\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.21) “Thus, for at least”",
    gather=_alignment,
    code="nclab.theory.certificates.theorem_constants.thesis_bounds",
)
@with_hand_check
def alignment(numbers: Numbers) -> Finding:
    """Judge the bound and count the cases in which it is positive."""
    finding = judge_statement(numbers)
    evidence = f"{finding.evidence} ({numbers['telling']} bounds are positive)"
    return Finding(finding.verdict, evidence, numbers)


def _worst_split(preset: str) -> Numbers:
    ratios, limits = zip(*map(_split, *zip(*SPLITS, strict=True)), strict=True)
    return {
        "cases": len(SPLITS),
        "ratio": max(ratios),
        "limit": min(limits),
        "hand_error": relative_error(
            *((_gap_by_code(case), _gap_by_search(case)) for case in CASES)
        ),
    }


@claim(
    "pan2023/proof-worst-split",
    Kind.PROOF_STEP,
    r"Where $\varepsilon$ is small the bound on intra-class cosines is worst with all of "
    r"$\varepsilon$ in $\varepsilon_2$.",
    "pan2023, Thm 2.3.1 (proof) “then worst case bound when”",
    gather=_worst_split,
    code="nclab.theory.certificates.theorem_constants.thesis_bounds",
)
@with_hand_check
def worst_split(numbers: Numbers) -> Finding:
    """Judge that no distribution of epsilon is worse than epsilon_2 = epsilon."""
    ratio, limit = numbers["ratio"], numbers["limit"]
    evidence = (
        f"no distribution of epsilon over the steps is worse in {numbers['cases']} cases with "
        f"epsilon < delta (ratio {number(ratio)}), and none can be worse up to epsilon = "
        f"{number(limit)} delta"
    )
    right = abs(ratio - 1) <= HAND_TOLERANCE and limit > 1
    return holds_if(right, evidence, numbers)


def _intra(preset: str) -> Numbers:
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
            source = "pan2023, Eq. (2.21)"
            batches.append(Inequality(intra, ">=", right, source, applies, 8 * ROUNDING))
    hand = unit_mean_norm([2.0, 0.0], [[4.0, 0.0], [4.0, 3.0]])
    lemma = (math.hypot(1.8, 0.6) / 2, 2 * 16 / 20.5 - 1)  # the lemma that the step applies
    return {
        "printed": tally(*printed),
        "repaired": tally(*repaired),
        "hand_error": relative_error((hand.left, lemma[0]), (hand.right, lemma[1])),
    }


intra = Claim(
    "pan2023/proof-intra",
    Kind.PROOF_STEP,
    "A cosine of $1 - E$ between weight and mean feature gives the class an intra-class cosine "
    "of at least $1 - 4E$.",
    "pan2023, Thm 2.3.1 (proof) “Therefore, applying lemma Lemma 2.4.5 these classes, there is”",
    with_hand_check(judge_repair),
    _intra,
    code="nclab_papers.pan2023.statements.unit_means.unit_mean_norm",
)


def _inter(preset: str) -> Numbers:
    a, b = np.meshgrid(np.linspace(math.pi / 2, math.pi, 200), np.linspace(0, math.pi / 2, 200))
    right = np.cos(a) + np.sqrt(2 * (1 - np.cos(b)))
    turned = Inequality(np.cos(a - b), "<=", right, "pan2023, Thm 2.3.1 (proof)", True, ROUNDING)
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
    """Judge the angle inequality, the step for short vectors, and the certified bound."""
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
