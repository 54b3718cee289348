"""The lemmas of pan2023, Section 2.4, each tested on thousands of data sets."""

import math

import numpy as np

from nclab.claims.claim import Claim, Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    describe_tally,
    draws,
    judge_repair,
    judge_statement,
    relative_error,
    tally,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.statements import Inequality
from nclab_papers.pan2023.data_sets import SIZES, numbers_with_subset, vectors_around
from nclab_papers.pan2023.statements import jensen, unit_means
from nclab_papers.pan2023.statements.loss_steps import loss_strong_convexity

CLASSES = (2, 10)
"""Numbers of classes in the loss on which the lemmas on convex functions are tested."""


def _loss(classes: int) -> jensen.Function:
    """Return the strongly convex function of the thesis's proof."""
    return lambda x: np.logaddexp(0.0, math.log(classes - 1) + x)


def _hand_error(case: Inequality, left: float, right: float) -> dict[str, float]:
    """Return the error of both sides of a case whose sides were worked out by hand."""
    return {"hand_error": relative_error((case.left, left), (case.right, right))}


@with_hand_check
def _judge_tight(numbers: Numbers) -> Finding:
    """Judge a statement and report whether its sides can be equal."""
    finding = judge_statement(numbers)
    ratio = numbers["tightest_ratio"]
    tight = "tight" if ratio >= 1 - 1e-6 else "not tight"
    evidence = f"{finding.evidence}; {tight}: the largest ratio of the sides is {ratio:.6f}"
    return Finding(finding.verdict, evidence, numbers)


def _subset_means(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches, tightest = [], 0.0
    for size in SIZES:
        x, chosen = numbers_with_subset(rng, draws(preset) // 8, size)
        for classes in CLASSES:
            convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
            batches.append(jensen.jensen_subset_mean(x, chosen, _loss(classes), convexity))
        parabola = jensen.jensen_subset_mean(x, chosen, np.square, 2.0)
        batches.append(parabola)
        ratios = parabola.left / np.maximum(parabola.right, 1e-3)
        tightest = max(tightest, float(ratios.max()))
    hand = jensen.jensen_subset_mean([0.0, 0.0, 3.0], [False, False, True], np.square, 1.0)
    return {**tally(*batches), "tightest_ratio": tightest, **_hand_error(hand, 2.0, 8**0.5)}


lemma_2_4_1 = Claim(
    "pan2023/lemma-2.4.1",
    Kind.LEMMA,
    r"If Jensen's inequality for a $\lambda$-strongly convex function has gap $\varepsilon$, the "
    r"mean of a fraction $\delta$ of the numbers is within "
    r"$\sqrt{2\varepsilon(1-\delta)/(\lambda\delta)}$ of the mean of all.",
    "pan2023, Lemma 2.4.1 “if Jensen’s inequality has its gap bounded by”",
    _judge_tight,
    _subset_means,
    code="nclab_papers.pan2023.statements.jensen.jensen_subset_mean",
)


def _weighted_jensen(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    batches = []
    for size in SIZES:
        x, _ = numbers_with_subset(rng, draws(preset) // 8, size)
        shares = rng.dirichlet(np.full(size, 0.5), size=len(x))
        batches.append(jensen.jensen_weighted(x, shares, np.square, 1.0))
        batches.append(jensen.jensen_weighted(x, shares, lambda y: y**2 + y**4, 1.0))
    hand = jensen.jensen_weighted([0.0, 4.0], [0.75, 0.25], np.square, 0.5)
    return {**tally(*batches), **_hand_error(hand, 1.0, 2.5)}


lemma_2_4_2 = Claim(
    "pan2023/lemma-2.4.2",
    Kind.LEMMA,
    "For a strongly convex function of modulus $c$, Jensen's inequality with weights has a gap "
    "of at least $c$ times the weighted variance.",
    "pan2023, Lemma 2.4.2 “is strongly convex with modulus c, then”",
    with_hand_check(judge_statement),
    _weighted_jensen,
    code="nclab_papers.pan2023.statements.jensen.jensen_weighted",
)


def _variance(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    batches = []
    for size in SIZES:
        x, _ = numbers_with_subset(rng, draws(preset) // 4, size)
        for classes in CLASSES:
            convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
            batches.append(jensen.jensen_variance(x, _loss(classes), convexity))
    hand = jensen.jensen_variance([0.0, 2.0], np.square, 1.0)
    return {**tally(*batches), **_hand_error(hand, 1.0, 2.0)}


corollary_2_4_1 = Claim(
    "pan2023/cor-2.4.1",
    Kind.COROLLARY,
    r"If Jensen's inequality for a $\lambda$-strongly convex function has gap $\varepsilon$, the "
    r"variance of the numbers is at most $2\varepsilon/\lambda$.",
    "pan2023, Cor. 2.4.1 “to obtain the following corollary”",
    with_hand_check(judge_statement),
    _variance,
    code="nclab_papers.pan2023.statements.jensen.jensen_variance",
)


def _exponential(preset: str) -> Numbers:
    rng = np.random.default_rng(3)
    bounds, nearest = [], 0.0
    for size in SIZES:
        x, chosen = numbers_with_subset(rng, draws(preset) // 4, size)
        both = jensen.exponential_subset_mean(x, chosen)
        rise, allowed = both.left - x.mean(1), both.right - x.mean(1)
        nearest = max(nearest, float((rise / np.maximum(allowed, 1e-3)).max()))
        bounds.append(both)
    hand = jensen.exponential_subset_mean([0.0, math.log(4)], [False, True])
    gap = (1 + 4) / 2 - 2  # mean of the exponentials minus the exponential of the mean, log 2
    right = math.log(2) + math.sqrt(2 * gap / (0.5 * 2))
    return {**tally(*bounds), "tightest_ratio": nearest, **_hand_error(hand, math.log(4), right)}


lemma_2_4_3 = Claim(
    "pan2023/lemma-2.4.3",
    Kind.LEMMA,
    r"If Jensen's inequality for the exponential has gap $\varepsilon$, the mean of a fraction "
    r"$\delta$ of the numbers exceeds the mean $x$ of all by at most $\sqrt{2\varepsilon/(\delta "
    "e^x)}$.",
    "pan2023, Lemma 2.4.3 “a similar result specific to the function”",
    _judge_tight,
    _exponential,
    code="nclab_papers.pan2023.statements.jensen.exponential_subset_mean",
)


def _identity(preset: str) -> Numbers:
    rng = np.random.default_rng(4)
    batches = []
    for size in SIZES:
        _, features = vectors_around(rng, draws(preset) // 8, size)
        _, others = vectors_around(rng, draws(preset) // 8, size)
        batches += [unit_means.cosine_identity(features, features)]
        batches += [unit_means.cosine_identity(features, others)]
    hand = unit_means.cosine_identity([[2.0, 0.0], [0.0, 1.0]], [[3.0, 4.0]])
    return {**tally(*batches), **_hand_error(hand, 0.7, 0.7)}


lemma_2_4_4 = Claim(
    "pan2023/lemma-2.4.4",
    Kind.LEMMA,
    "The intra-class cosine is the squared norm of the mean unit feature, the inter-class "
    "cosine the inner product of two of them.",
    "pan2023, Lemma 2.4.4 “can be computed as the norm and dot product of the vectors”",
    with_hand_check(judge_statement),
    _identity,
    code="nclab_papers.pan2023.statements.unit_means.cosine_identity",
)


def _unit_mean(preset: str) -> Numbers:
    rng = np.random.default_rng(5)
    batches = []
    for size in SIZES:
        u, v = vectors_around(rng, draws(preset) // 2, size)
        batches.append(unit_means.unit_mean_norm(u, v))
    worst = unit_means.unit_mean_norm([1.0, 0.0], [[1.0, 0.0]] * 3 + [[-1e-12, 0.0]])
    hand = unit_means.unit_mean_norm([2.0, 0.0], [[4.0, 0.0], [4.0, 3.0]])
    norm, cosine = math.hypot(1.8, 0.6) / 2, 4 / math.sqrt((16 + 25) / 2)
    return {
        **tally(*batches),
        "tightest_ratio": float(worst.right / worst.left),
        **_hand_error(hand, norm, 2 * cosine**2 - 1),
    }


lemma_2_4_5 = Claim(
    "pan2023/lemma-2.4.5",
    Kind.LEMMA,
    r"Vectors of root mean square norm $\alpha$ whose mean inner product with $u$, $\|u\| \le "
    r"\beta$, is $c \ge \alpha\beta/\sqrt{2}$ have a mean unit vector of norm at least "
    r"$2(c/(\alpha\beta))^2 - 1$.",
    "pan2023, Lemma 2.4.5 “provides a conversion between these requirements”",
    _judge_tight,
    _unit_mean,
    code="nclab_papers.pan2023.statements.unit_means.unit_mean_norm",
)


def _proposition(preset: str) -> Numbers:
    rng = np.random.default_rng(6)
    printed, repaired = [unit_means.ratio_sum_counterexample()], []
    for size in SIZES:
        _, v = vectors_around(rng, draws(preset) // 4, size)
        b = np.linalg.norm(v, axis=-1)
        a = rng.random(b.shape) * b
        printed.append(unit_means.ratio_sum_printed(a, b))
        repaired.append(unit_means.ratio_sum(a, b, np.ones(len(b))))
    first = printed[0]
    hand = unit_means.ratio_sum_printed([1.0, 6.0], [1.0, 2.0])
    return {
        **_hand_error(hand, 4.0, 7 * math.sqrt(2 / 5)),
        "printed": tally(*printed),
        "repaired": tally(*repaired),
        "counterexample": {"left": float(first.left), "right": float(first.right)},
    }


@claim(
    "pan2023/lemma-2.4.5-proposition",
    Kind.PROOF_STEP,
    r"For $a_i \ge 0$, $b_i > 0$ with $\sum_i a_i = A$ and $\sum_i b_i^2 \le B^2$, the sum of "
    r"$a_i/b_i$ is at least $\frac{A}{B}\sqrt{N}$.",
    "pan2023, Lemma 2.4.5 (proof) “that can be easily shown through Lagrange multipliers”",
    gather=_proposition,
    code="nclab_papers.pan2023.statements.unit_means.ratio_sum_printed",
)
@with_hand_check
def proposition(numbers: Numbers) -> Finding:
    printed, example = numbers["printed"], numbers["counterexample"]
    if not printed["violated"]:
        return judge_statement(printed)
    evidence = (
        f"a = (1, 0, 0, 0), b = (1, 1e-6, 1e-6, 1e-6) gives {number(example['left'])} instead of "
        f"at least {number(example['right'])}; the lemma needs only sum a/b >= "
        f"(sum a)^2 / (beta sum b^2): {describe_tally(numbers['repaired'])}"
    )
    return Finding(Verdict.REFUTED, evidence, numbers)


def _from_mean(preset: str) -> Numbers:
    rng = np.random.default_rng(7)
    batches = [
        unit_means.unit_mean_norm_from_mean(vectors_around(rng, draws(preset) // 2, size)[1])
        for size in SIZES
    ]
    hand = unit_means.unit_mean_norm_from_mean([[4.0, 3.0], [4.0, -3.0]])
    return {**tally(*batches), **_hand_error(hand, 0.8, 2 * 0.8**2 - 1)}


corollary_2_4_2 = Claim(
    "pan2023/cor-2.4.2",
    Kind.COROLLARY,
    r"Vectors of root mean square norm $\alpha$ whose mean has norm $c \ge \alpha/\sqrt{2}$ have "
    r"a mean unit vector of norm at least $2(c/\alpha)^2 - 1$.",
    "pan2023, Cor. 2.4.2 “by setting u to be the normalized mean vector”",
    with_hand_check(judge_statement),
    _from_mean,
    code="nclab_papers.pan2023.statements.unit_means.unit_mean_norm_from_mean",
)


def _opposed(preset: str) -> Numbers:
    rng = np.random.default_rng(8)
    repaired: list[Inequality] = []
    inner: list[Inequality] = []
    linear: list[Inequality] = []
    for size in SIZES:
        u, v = vectors_around(rng, draws(preset) // 4, size)
        repaired.append(unit_means.opposed_cosine(-u, v))
        inner.append(unit_means.opposed_inner(-u, v))
        linear.append(unit_means.opposed_inner_linear(-u, v))
    hand = unit_means.opposed_cosine_printed([2.0, 0.0], [[-1.0, 0.0], [-7.0, 0.0]])
    return {
        **_hand_error(hand, -1.0, -0.8 + 4 * 0.2 ** (1 / 3)),
        "printed": tally(unit_means.opposed_cosine_counterexample()),
        "repaired": tally(*repaired),
        "inner": tally(*inner),
        "linear": tally(*linear),
    }


@claim(
    "pan2023/lemma-2.4.6",
    Kind.LEMMA,
    r"If $w$, of norm at most $\beta$, has inner product $c \le 0$ with the mean of features of "
    r"root mean square norm $\alpha$ and mean norm at least $\alpha - \varepsilon/\beta$, its "
    r"cosine with the mean unit feature is at most $\frac{c}{\alpha\beta} + "
    r"4\left(\frac{\varepsilon}{\alpha\beta}\right)^{1/3}$.",
    "pan2023, Lemma 2.4.6 “for inter-class cosine similarity, we have the following lemma”",
    gather=_opposed,
    code="nclab_papers.pan2023.statements.unit_means.opposed_cosine_printed",
)
@with_hand_check
def lemma_2_4_6(numbers: Numbers) -> Finding:
    """Judge the printed form, the form for inner products, and features with a long mean."""
    finding = judge_repair(numbers)
    if finding.verdict is not Verdict.CORRECTED:
        return finding
    printed = numbers["printed"]
    inner, linear = (judge_statement(numbers[name]) for name in ("inner", "linear"))
    evidence = (
        f"11 features (1, 0), 10 features (-1.1, 0) and w = (1, 0) have cosine "
        f"{number(printed['left'])}, the printed bound is {number(printed['right'])}; for the "
        f"inner product of w and the mean unit feature: {inner.evidence}; if |mean h| >= (1 - e) "
        f"alpha, as in the theorem: {describe_tally(numbers['repaired'])}; with 2(1 - rho^2) "
        f"instead of 4 e^(1/3): {linear.evidence}"
    )
    if inner.verdict is not Verdict.HOLDS:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return Finding(Verdict.CORRECTED, evidence, numbers)
