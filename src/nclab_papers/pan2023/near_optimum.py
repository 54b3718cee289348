"""The steps in the proof of Theorem 2.3.1 near the minimum, from scores to bounds on cosines.

Weights have shape (..., C, d), features (..., C, N, d). The proof splits the excess loss: epsilon_1
is lost where the other classes of a class differ, epsilon_2 where classes differ, epsilon_3 where
the scores are below the product of the norms.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    HAND_TOLERANCE,
    describe,
    describe_tally,
    draws,
    holds_if,
    judge_and_describe,
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
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import (
    ROUNDING,
    Inequality,
    norms,
    sample_losses,
    units,
    weights_and_features,
)
from nclab_papers.pan2023.jensen import SIZES, gap_with_rounding, relative_exponential_gap
from nclab_papers.pan2023.loss_steps import loss_strong_convexity, networks
from nclab_papers.pan2023.unit_means import pairing, unit_mean_norm, vectors_around

LEAST = 1e-290
"""Smallest strong convexity with a finite reciprocal."""
DELTAS = (0.05, 0.2, 0.45)
"""Fractions delta of the exempt classes."""
SMALL = 0.03
"""Factor that makes norms small."""
PAIR: FloatArray = np.array([[1.0], [-1.0]])
"""Weights of the case with two classes that was worked out by hand. Its scores are 2 and 1, its
arguments -4 and -2, and C/(C-1) is 2."""
SCORES: FloatArray = np.array([[[2.0]], [[-1.0]]])
HAND_DELTA = 0.4
ROW: FloatArray = np.array([[2.0], [0.0], [1.0]])
"""Weights of the case with three classes, in which every feature is 1."""

Step = Callable[[ArrayLike, ArrayLike, float], Inequality]


class NearOptimal(NamedTuple):
    """Quantities in (2.19) to (2.21)."""

    classes: int
    product: FloatArray
    """Product alpha beta."""
    scores: FloatArray
    """(..., C) scores."""
    products: FloatArray
    """(..., C) products alpha_c beta_c."""
    third: FloatArray
    """Part epsilon_3 of the excess loss."""
    root: FloatArray
    """The square root in (2.19) and (2.20)."""
    convexity: FloatArray
    rounding: FloatArray


def near_optimal(weight: ArrayLike, features: ArrayLike, delta: float) -> NearOptimal:
    """Return the quantities in (2.19) to (2.21)."""
    w, h = weights_and_features(weight, features)
    classes = w.shape[-2]
    centred = w - w.mean(-2, keepdims=True)
    scores = (centred * h.mean(-2)).sum(-1)
    alphas = np.sqrt(np.square(h).sum(-1).mean(-1))
    product = np.sqrt(np.square(alphas).mean(-1) * np.square(w).sum((-1, -2)) / classes)
    x = -classes / (classes - 1) * scores
    convexity = loss_strong_convexity(classes, x.min(-1), x.max(-1))
    second, rounding = gap_with_rounding(
        x, lambda at: np.logaddexp(0.0, math.log(classes - 1) + at)
    )
    factor = 2 * (1 - delta) / (np.where(convexity > LEAST, convexity, 1.0) * delta)
    root = np.sqrt(factor * second)
    return NearOptimal(
        classes,
        product,
        scores,
        alphas * norms(centred),
        x.mean(-1) + classes / (classes - 1) * product,
        root,
        convexity,
        np.sqrt(factor * (second + rounding)) - root + 4 * ROUNDING * product,
    )


def _apply(
    step: Step, preset: str, seed: int, classes: Sequence[int] = (2, 3, 4, 10)
) -> list[Inequality]:
    """Apply a step to networks near and far from the minimum, some with one heavy class."""
    rng = np.random.default_rng(seed)
    results = []
    for count in classes:
        W, H = networks(rng, draws(preset) // 20, count, 2)
        # Weights and features of one class are longer, and its features point elsewhere.
        heavy = np.where(np.arange(count) == 0, rng.uniform(1, 3, (len(W), 1)), 1.0)
        away = rng.normal(size=(len(W), 1, H.shape[-1])) * (heavy - 1)[..., None]
        for rows, columns in (
            (W, H),
            (W * heavy[..., None], (H * heavy[..., None, None]) + away[:, :, None]),
        ):
            results += [step(rows, columns, delta) for delta in DELTAS]
    return results


def _gaps() -> tuple[float, float, float]:
    """Return alpha beta, epsilon_3 and the root in (2.19) and (2.20) for two classes."""

    def loss(x: float) -> float:
        return math.log1p(math.exp(x))

    second = (loss(-4) + loss(-2)) / 2 - loss(-3)
    curvature = math.exp(-4) / (1 + math.exp(-4)) ** 2
    root = math.sqrt(2 * second * (1 - HAND_DELTA) / (curvature * HAND_DELTA))
    return math.sqrt(2.5), -3 + 2 * math.sqrt(2.5), root


def low_scores(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the smallest score, except for a share delta of the classes, with its lower bound.

    $$\dot w_c\cdot\tilde h_c \ge \alpha\beta - \tfrac{C-1}{C}\Bigl(\varepsilon_3 +
      \sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr)$$

    Source: pan2023, Eq. (2.19)
    Range: shape (...); lambda is the strong convexity where the scores lie.
    """
    near = near_optimal(weight, features, delta)
    few = math.floor(delta * near.classes + 1e-9)
    left = np.sort(near.scores, -1)[..., few]
    share = (near.classes - 1) / near.classes
    right = near.product - share * (near.third + near.root)
    tolerance = share * near.rounding
    return Inequality(left, ">=", right, near.convexity > LEAST, tolerance)


@statement(
    "pan2023/eq-2.19",
    Kind.EQUATION,
    r"At most $\delta C$ classes have a score $w_c h_c$ below $\alpha\beta - "
    r"\frac{C-1}{C}\left(\varepsilon_3 + "
    r"\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.19) “Therefore, there are at most”",
    low_scores,
)
def eq_2_19(preset: str) -> Numbers:
    hand = low_scores(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product - (third + root) / 2
    return {
        **tally(*_apply(low_scores, preset, 10)),
        "hand_error": relative_error((hand.left, 1.0), (hand.right, right)),
    }


def large_norms(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the largest product of norms, except for a share delta of classes, with its bound.

    $$\alpha_c\beta_c \le \alpha\beta + \tfrac{C-1}{C}\Bigl(\tfrac{1-\delta}\delta\varepsilon_3 +
      \sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr)$$

    Source: pan2023, Eq. (2.20)
    Range: shape (...); alpha_c is the rms feature norm of a class, beta_c the norm of its centred
    weight.
    """
    near = near_optimal(weight, features, delta)
    few = math.floor(delta * near.classes + 1e-9)
    left = np.sort(near.products, -1)[..., near.classes - 1 - few]
    share, odds = (near.classes - 1) / near.classes, (1 - delta) / delta
    right = near.product + share * (odds * near.third + near.root)
    tolerance = share * (1 + odds) * near.rounding
    return Inequality(left, "<=", right, near.convexity > LEAST, tolerance)


@statement(
    "pan2023/eq-2.20",
    Kind.EQUATION,
    r"At most $\delta C$ classes have a product of norms $\alpha_c\beta_c$ above $\alpha\beta + "
    r"\frac{C-1}{C}\left(\frac{1-\delta}{\delta}\varepsilon_3 + "
    r"\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.20) “and also there are at most”",
    large_norms,
)
def eq_2_20(preset: str) -> Numbers:
    hand = large_norms(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product + (1.5 * third + root) / 2
    return {
        **tally(*_apply(large_norms, preset, 11)),
        "hand_error": relative_error((hand.left, 2.0), (hand.right, right)),
    }


JUDGE_BOUND = judge_and_describe("{tally} ({telling} bounds are positive)")


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
SPLITS = [
    (classes, product, delta, share)
    for classes in (3, 4, 10, 50)
    for product in (0.01, 0.3, 1.0, 3.0, 6.0)
    for delta in (0.001, 0.999 / (2 * classes), 0.3, 0.499)
    for share in (1e-8, 1e-4, 0.1, 0.999)
]
"""C, alpha beta, delta and epsilon/delta < 1 at which epsilon_2 = epsilon is tested."""


def _gap_error() -> float:
    """Return the largest relative error of the code for (2.21) against a search."""
    pairs = []
    for case in CASES:
        best = g(case.product, case.classes)
        given = NormsAndLoss(case.classes, case.product, best, case.excess, 0.0)
        computed = thesis_bounds(given, case.delta, case.curvature).alignment_gap
        pairs.append((computed, _gap_by_search(case)))
    return relative_error(*pairs)


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
            # With delta below half a class no class is exempt, and the bound holds for all.
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


def _worst_split(preset: str) -> Numbers:
    ratios, limits = zip(*map(_split, *zip(*SPLITS, strict=True)), strict=True)
    return {
        "cases": len(SPLITS),
        "ratio": max(ratios),
        "limit": min(limits),
        "hand_error": _gap_error(),
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
    evidence = describe(
        "no distribution of epsilon over the steps is worse in {cases} cases with epsilon < delta "
        "(ratio {ratio}), and none can be worse up to epsilon = {limit} delta",
        numbers,
    )
    right = abs(ratio - 1) <= HAND_TOLERANCE and limit > 1
    return holds_if(right, evidence, numbers)


def other_classes(
    weight: ArrayLike, features: ArrayLike, delta: float, *, centred: bool
) -> Inequality:
    r"""Compare the largest score of other classes, except for a share delta, with its bound.

    $$(\dot w_{c'}-\dot w_c)\cdot\tilde h_c \le m_c +
      \sqrt{\tfrac{2\varepsilon_{1,c}}{e^{m_c}\delta}},\quad
      m_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Eq. (2.22) and (2.23)
    Range: shape (..., C); epsilon_{1,c} is the sum of the C - 1 exponentials minus
    (C - 1) exp(m_c). Lemma 2.4.3 would allow to divide it by C - 1.

    Args:
        centred: add the score of the class itself to both sides, which gives (2.23).
    """
    w, h = weights_and_features(weight, features)
    classes = w.shape[-2]
    scores = h.mean(-2) @ np.swapaxes(w - w.mean(-2, keepdims=True), -1, -2)  # (..., C, C)
    true_score = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]
    rest = scores[..., ~np.eye(classes, dtype=bool)].reshape(*scores.shape[:-1], classes - 1)
    with np.errstate(over="ignore"):
        gap, rounding = relative_exponential_gap(rest - true_score)
    known = np.isfinite(gap + rounding)
    gap, rounding = np.where(known, gap, 0.0), np.where(known, rounding, 0.0)
    factor = 2 * (classes - 1) / delta  # the gap of the sum is that of C - 1 means
    rise = np.sqrt(factor * gap)
    few = math.floor(delta * (classes - 1) + 1e-9)
    left = np.sort(rest, -1)[..., classes - 2 - few]
    true_score = true_score[..., 0]
    right = -true_score / (classes - 1) + rise
    if not centred:
        left, right = left - true_score, right - true_score
    tolerance = np.sqrt(factor * (gap + rounding)) - rise
    tolerance = tolerance + ROUNDING * norms(w).max(-1)[..., None] * norms(h).max(-1)
    return Inequality(left, "<=", right, known, tolerance)


def _others(preset: str, *, centred: bool) -> Numbers:
    step = partial(other_classes, centred=centred)
    hand = step(ROW, np.ones((3, 1, 1)), HAND_DELTA)
    left, right = [], []
    for score, others in ((1.0, (-1.0, 0.0)), (-1.0, (1.0, 0.0)), (0.0, (1.0, -1.0))):
        middle = sum(others) / 2 - score
        lost = sum(math.exp(other - score) for other in others) - 2 * math.exp(middle)
        rise = math.sqrt(2 * lost / (math.exp(middle) * HAND_DELTA))
        left.append(max(others) - (0.0 if centred else score))
        right.append((-score / 2 if centred else middle) + rise)
    return {
        **tally(*_apply(step, preset, 12 + centred)),
        "hand_error": relative_error((hand.left, left), (hand.right, right)),
    }


eq_2_22 = statement(
    "pan2023/eq-2.22",
    Kind.EQUATION,
    r"For at least $(1-\delta)(C-1)$ classes $c'$ the difference $(w_{c'} - w_c)h_c$ is at most "
    r"$m_c + \sqrt{2\varepsilon_{1c}/(\exp(m_c)\delta)}$ with $m_c = -\frac{C}{C-1}w_c h_c$.",
    "pan2023, Eq. (2.22) “using the definition that”",
    other_classes,
)(partial(_others, centred=False))

eq_2_23 = statement(
    "pan2023/eq-2.23",
    Kind.EQUATION,
    r"For the same classes $c'$ the score $w_{c'}h_c$ is at most $-\frac{1}{C-1}w_c h_c + "
    r"\sqrt{2\varepsilon_{1c}/(\exp(m_c)\delta)}$.",
    "pan2023, Eq. (2.23) “Combining with”",
    other_classes,
)(partial(_others, centred=True))


def self_duality(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare NC3 with the printed bound, for all but a share 2 delta of the classes.

    $$\cos(\dot w_c,\tilde h_c) \ge 1 - \tfrac{C-1}{C\alpha\beta}\cdot
      2\sqrt{\tfrac{2\varepsilon(1-\delta)}{\lambda\delta}}$$

    Source: pan2023, Thm 2.3.1 (proof, NC3)
    Range: shape (...), delta below 1/2, lambda on [-C alpha beta, C alpha beta] as in the proof,
    epsilon below delta. Our copy shows the factor (C-1)/(C alpha beta) in the lines before and
    after, not in this one; at small norms the bound needs it.
    """
    near = near_optimal(weight, features, delta)
    w, h = weights_and_features(weight, features)
    cosines = (units(w - w.mean(-2, keepdims=True)) * units(h.mean(-2))).sum(-1)
    few = math.floor(2 * delta * near.classes + 1e-9)
    best = np.asarray(g(near.product, near.classes))
    loss = sample_losses(w, h).mean((-1, -2))
    reach = near.classes * near.product
    convexity = loss_strong_convexity(near.classes, -reach, reach)
    excess, rounding = np.maximum(loss - best, 0.0), ROUNDING * (1 + near.product) * best
    applies = (convexity > LEAST) & (near.product > 0) & (excess < delta)
    spread = 8 * (1 - delta) / (np.where(applies, convexity, 1.0) * delta)
    share = (near.classes - 1) / (near.classes * np.where(applies, near.product, 1.0))
    right = 1 - share * np.sqrt(spread * excess)
    tolerance = share * (np.sqrt(spread * (excess + rounding)) - np.sqrt(spread * excess))
    left = np.sort(cosines, -1)[..., few]
    return Inequality(left, ">=", right, applies, tolerance + ROUNDING)


@statement(
    "pan2023/proof-nc3",
    Kind.PROOF_STEP,
    r"For at least $(1 - 2\delta)C$ classes the cosine of weight and mean feature is at least $1 "
    r"- \frac{C-1}{C\alpha\beta} \cdot 2\sqrt{2\varepsilon(1-\delta)/(\lambda\delta)}$, which is "
    "the bound on NC3; read with the factor of (2.21), which our copy does not show in this "
    "line.",
    "pan2023, Thm 2.3.1 (proof) “gives the NC3 bound in the theorem”",
    self_duality,
    judge=JUDGE_BOUND,
)
def nc3(preset: str) -> Numbers:
    rng = np.random.default_rng(14)
    batches = _apply(self_duality, preset, 15, classes=(3, 4, 10))
    telling = sum(int((both.right > 0).sum()) for both in batches)
    for classes in (3, 10):
        W, H = networks(rng, draws(preset) // 50, classes, 2)
        batches += [self_duality(SMALL * W, SMALL * H, delta) for delta in DELTAS]
    hand = self_duality(PAIR, SCORES, HAND_DELTA)
    reach = 2 * math.sqrt(2.5)
    lost = (math.log1p(math.exp(-4)) + math.log1p(math.exp(-2))) / 2 - math.log1p(math.exp(-reach))
    curvature = math.exp(-reach) / (1 + math.exp(-reach)) ** 2
    right = 1 - 2 * math.sqrt(2 * lost * (1 - HAND_DELTA) / (curvature * HAND_DELTA)) / reach
    error = relative_error((hand.left, 1.0), (hand.right, right))
    return {**tally(*batches), "telling": telling, "hand_error": error}


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
    lemma = (math.hypot(1.8, 0.6) / 2, 2 * 16 / 20.5 - 1)  # the lemma that the step applies
    return {
        "printed": tally(*printed),
        "repaired": tally(*repaired),
        "hand_error": relative_error((hand.left, lemma[0]), (hand.right, lemma[1])),
    }


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
