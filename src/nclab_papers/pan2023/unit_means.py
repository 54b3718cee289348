"""Lemmas 2.4.4 to 2.4.6: mean features and mean unit features.

In formulas h~ is the mean feature and h̄ the mean unit feature, the mean of h_i/‖h_i‖. The unit
vector of a zero vector is zero, as in the metrics; the lemmas allow it.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    describe_tally,
    draws,
    hand_error,
    judge_repair,
    judge_statement,
    statement,
    tally,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import ROUNDING, Inequality, norms, units, vectors
from nclab_papers.pan2023.jensen import SIZES, judge_tight


class Pairing(NamedTuple):
    """Norms and inner products of a vector w and features h, as the lemmas use them."""

    rms: FloatArray
    """alpha, the root mean square norm of the features."""
    length: FloatArray
    """beta, the norm of w."""
    inner: FloatArray
    """c, the inner product of w and the mean feature."""
    inner_units: FloatArray
    """Inner product of w and the mean unit feature."""
    unit_mean_norm: FloatArray
    """Norm of the mean unit feature."""
    ratio: FloatArray
    """Norm of the mean feature divided by alpha, in [0, 1]."""
    length_ratio: FloatArray
    """Mean norm of the features divided by alpha, in [0, 1]."""


def pairing(vector: ArrayLike, features: ArrayLike) -> Pairing:
    """Return norms and inner products of a vector (..., d) and features (..., N, d).

    In the example the mean feature (0, 4) has norm 4, and both features have norm 5:

    >>> float(pairing([1.0, 0.0], [[3.0, 4.0], [-3.0, 4.0]]).ratio)
    0.8
    """
    w = vectors(vector, "a vector (..., d)", 1)
    h = vectors(features, "features (..., N, d)", 2)
    mean, unit_mean = h.mean(-2), units(h).mean(-2)
    rms = np.sqrt(np.square(h).sum(-1).mean(-1))
    inner, inner_units = (w * mean).sum(-1), (w * unit_mean).sum(-1)
    ratios = (_over(norms(mean), rms), _over(norms(h).mean(-1), rms))
    return Pairing(rms, norms(w), inner, inner_units, norms(unit_mean), *ratios)


def _over(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return top / bottom, or 0 where bottom is 0 (no lemma applies there)."""
    result: FloatArray = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)
    return result


def cosine_identity(features: ArrayLike, others: ArrayLike) -> Inequality:
    r"""Compare the mean cosine of two classes with the inner product of their mean unit features.

    $$\tfrac1{N^2}\sum_{i,j}\cos(h_{c,i},h_{c',j}) = \bar h_c\cdot\bar h_{c'}$$

    Source: pan2023, Lemma 2.4.4
    Range: features (..., N, d). For the same class twice, this is its intra-class cosine.
    """
    first = units(vectors(features, "features (..., N, d)", 2))
    second = units(vectors(others, "features (..., N, d)", 2))
    left = (first @ np.swapaxes(second, -1, -2)).mean((-1, -2))
    right = (first.mean(-2) * second.mean(-2)).sum(-1)
    return Inequality(left, "==", right, tolerance=ROUNDING)


def unit_mean_norm(direction: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the norm of the mean unit feature with a bound from the inner products with u.

    $$\Bigl\|\tfrac1N\sum_i\frac{v_i}{\|v_i\|}\Bigr\| \ge
      2\Bigl(\frac{c}{\alpha\beta}\Bigr)^2-1,\quad
      c = \tfrac1N\sum_i\langle u,v_i\rangle \ge \frac{\alpha\beta}{\sqrt2}$$

    Source: pan2023, Lemma 2.4.5
    Range: alpha is the root mean square norm of the v_i and beta the norm of u. Tight. The lemma
    has bounds in place of alpha, beta and c; here they are computed from the data, which makes
    the inequality as strong as possible.

    The printed proof uses `ratio_sum_printed`, which is false. A proof: let r_i be the cosine of u
    and v_i, and r⁺ its positive part. Cauchy-Schwarz gives c ≤ αβ √mean(r⁺²). As r⁺ ≥ r⁺², both
    mean(r⁺) and the share of positive r_i are at least (c/αβ)². The other r_i are at least -1.
    """
    data = pairing(direction, features)
    cosine = _over(data.inner, data.rms * data.length)
    applies = (cosine >= math.sqrt(0.5)) & (data.rms * data.length > 0)
    right = 2 * np.square(cosine) - 1
    return Inequality(data.unit_mean_norm, ">=", right, applies, 4 * ROUNDING)


def unit_mean_norm_from_mean(features: ArrayLike) -> Inequality:
    r"""Compare the norm of the mean unit feature with a bound from the norm of the mean feature.

    $$\Bigl\|\tfrac1N\sum_i\frac{v_i}{\|v_i\|}\Bigr\| \ge
      2\Bigl(\frac{c}{\alpha}\Bigr)^2-1,\quad
      c = \Bigl\|\tfrac1N\sum_i v_i\Bigr\| \ge \frac{\alpha}{\sqrt2}$$

    Source: pan2023, Cor. 2.4.2
    Range: alpha is the root mean square norm of the v_i. Tight. As in `unit_mean_norm`, alpha and c
    are computed from the data.
    """
    array = vectors(features, "features (..., N, d)", 2)
    data = pairing(array.mean(-2), array)
    applies = data.ratio >= math.sqrt(0.5)
    right = 2 * np.square(data.ratio) - 1
    return Inequality(data.unit_mean_norm, ">=", right, applies, 4 * ROUNDING)


def ratio_sum_printed(a: ArrayLike, b: ArrayLike) -> Inequality:
    r"""Return both sides of the false proposition in the printed proof of Lemma 2.4.5.

    $$\sum_i\frac{a_i}{b_i} \ge \frac{\sum_i a_i}{\sqrt{\sum_i b_i^2}}\sqrt N,\quad
      a_i\ge0,\ b_i>0$$

    Source: pan2023, Lemma 2.4.5 (proof, proposition by Lagrange multipliers)
    Range: false, for example if only one a_i is not zero and its b_i is the largest. The proof can
    use `ratio_sum` instead.
    """
    tops, bottoms = vectors(a, "numbers (..., N)", 1), vectors(b, "numbers (..., N)", 1)
    left = (tops / bottoms).sum(-1)
    right = tops.sum(-1) / norms(bottoms) * math.sqrt(bottoms.shape[-1])
    applies = np.asarray(((tops >= 0) & (bottoms > 0)).all(-1))
    return Inequality(left, ">=", right, applies, ROUNDING * (left + np.abs(right)))


def ratio_sum(a: ArrayLike, b: ArrayLike, beta: ArrayLike) -> Inequality:
    r"""Return both sides of a true inequality that repairs the proof of Lemma 2.4.5.

    $$\sum_i\frac{a_i}{b_i} \ge \frac{(\sum_i a_i)^2}{\beta\sum_i b_i^2},\quad
      0\le a_i\le\beta b_i$$

    Source: pan2023, Lemma 2.4.5 (proof, repaired)
    Range: as stated. Proof: the ratios r = a / (beta b) are at most 1, so r >= r²; Cauchy-Schwarz
    bounds the sum of r².
    """
    tops, bottoms = vectors(a, "numbers (..., N)", 1), vectors(b, "numbers (..., N)", 1)
    bound = np.asarray(beta, dtype=np.float64)
    left = (tops / bottoms).sum(-1)
    right = np.square(tops.sum(-1)) / (bound * np.square(bottoms).sum(-1))
    within = (tops >= 0) & (bottoms > 0) & (tops <= bound[..., None] * bottoms)
    applies, rounding = np.asarray(within.all(-1)), ROUNDING * (left + right)
    return Inequality(left, ">=", right, applies, rounding)


def opposed_cosine(weight: ArrayLike, features: ArrayLike, *, printed: bool) -> Inequality:
    r"""Return both sides of Lemma 2.4.6, as printed or with a repaired condition on the features.

    The lemma says: if w has a negative inner product with the mean feature h~, its cosine with the
    mean unit feature h̄ is negative up to an error that depends on e.

    $$\cos(w,\bar h) \le \frac{c}{\alpha\beta} + 4e^{1/3},\quad c = w\cdot\tilde h \le 0,\;
      \tfrac1N\sum_i\|h_i\| \ge (1-e)\alpha \text{ as printed, }
      \|\tilde h\|\ge(1-e)\alpha \text{ repaired}$$

    Source: pan2023, Lemma 2.4.6
    Range: false as printed. There e is epsilon/(alpha beta), but our copy of the lemma does not
    define epsilon; the condition is that at the start of the proof. The theorem applies the lemma
    to features that satisfy the repaired condition. Here e is the smallest for which the data
    satisfy the condition.

    The printed step, dividing by ‖h̄‖ ≤ 1, is right only where the bound is negative. The linear
    lemma proves the rest. With x = c/αβ, cos ≤ (x + 4e)/(1 - 4e) where x + 4e > 0. This is at
    most x + 4e^(1/3) for e ≤ 0.15; above that x ≥ e - 1 makes the right side exceed 1.
    """
    data = pairing(weight, features)
    product = data.rms * data.length
    applies = (data.inner <= 0) & (product > 0) & (data.unit_mean_norm > 0)
    ratio = data.length_ratio if printed else data.ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        left = data.inner_units / (data.length * data.unit_mean_norm)
        right = data.inner / product + 4 * np.cbrt(np.maximum(1 - ratio, 0.0))
    tolerance = ROUNDING / np.maximum(data.unit_mean_norm, ROUNDING)
    return Inequality(left, "<=", right, applies, tolerance)


def opposed_inner(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Return both sides of a true step in the proof of Lemma 2.4.6: a bound on an inner product.

    $$w\cdot\bar h \le \frac c\alpha + 4\beta e^{1/3},\quad
      c = w\cdot\tilde h\le0,\ \tfrac1N\sum_i\|h_i\|\ge(1-e)\alpha$$

    Source: pan2023, Lemma 2.4.6 (proof)
    Range: e is the smallest for which the data satisfy the condition. The proof then divides by
    ‖h̄‖, which is false in general.
    """
    data = pairing(weight, features)
    missing = np.maximum(1 - data.length_ratio, 0.0)
    applies = (data.inner <= 0) & (data.rms > 0)
    right = data.inner / np.where(applies, data.rms, 1.0) + 4 * data.length * np.cbrt(missing)
    return Inequality(data.inner_units, "<=", right, applies, ROUNDING * data.length)


def opposed_inner_linear(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Return both sides of a stronger form of Lemma 2.4.6, whose error is linear in 1 - rho.

    $$w\cdot\bar h \le \frac c\alpha + 2\beta(1-\rho^2),\quad
      c = w\cdot\tilde h\le0,\ \rho = \|\tilde h\|/\alpha \ge 1/\sqrt2$$

    Source: pan2023, Lemma 2.4.6 (linear)
    Range: for rho = 1 - e the error 2 beta (1 - rho²) is at most 4 beta e; that of the lemma is
    4 beta e^(1/3).

    A proof: let b be the mean norm. The difference of h̄ and h̃/b is the covariance of the unit
    features with the relative norms. By Cauchy-Schwarz its norm is at most cv √(1 - ‖h̄‖²), with cv
    the standard deviation of the norms over b. As cv² ≤ 1/ρ² - 1 and ‖h̄‖ ≥ 2ρ² - 1 (Cor. 2.4.2),
    this is at most 2(1 - ρ²). And w·h̃/b ≤ c/α because b ≤ α and c ≤ 0.
    """
    data = pairing(weight, features)
    applies = (data.inner <= 0) & (data.ratio >= math.sqrt(0.5))
    error = 2 * data.length * (1 - np.square(data.ratio))
    right = data.inner / np.where(data.rms > 0, data.rms, 1.0) + error
    return Inequality(data.inner_units, "<=", right, applies, 4 * ROUNDING * data.length)


def vectors_around(
    rng: np.random.Generator, count: int, size: int
) -> tuple[FloatArray, FloatArray]:
    """Draw vectors (count, 3) and features (count, size, 3) that mostly point along them.

    In a third of the data sets a few short features are reversed, which is the worst case of the
    lemmas on mean unit features.
    """
    u = rng.normal(size=(count, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    noise = rng.normal(size=(count, size, 3)) * 10 ** rng.uniform(-3, 0.3, size=(count, 1, 1))
    v = (u[:, None] + noise) * 10 ** rng.uniform(-1, 1, size=(count, 1, 1))
    v *= np.exp(rng.normal(size=(count, size, 1)) * rng.uniform(0, 1, size=(count, 1, 1)))
    third = count // 3
    is_reversed = rng.random((third, size, 1)) < 0.2
    v[-third:] = np.where(is_reversed, -1e-3 * v[-third:], v[-third:])
    return u * 10 ** rng.uniform(-1, 1, size=(count, 1)), v


@statement(
    "pan2023/lemma-2.4.4",
    Kind.LEMMA,
    "The intra-class cosine is the squared norm of the mean unit feature, the inter-class "
    "cosine the inner product of two of them.",
    "pan2023, Lemma 2.4.4 “can be computed as the norm and dot product of the vectors”",
    cosine_identity,
)
def lemma_2_4_4(preset: str) -> Numbers:
    rng = np.random.default_rng(4)
    batches = []
    for size in SIZES:
        _, features = vectors_around(rng, draws(preset) // 8, size)
        _, others = vectors_around(rng, draws(preset) // 8, size)
        batches += [cosine_identity(features, features), cosine_identity(features, others)]
    hand = cosine_identity([[2.0, 0.0], [0.0, 1.0]], [[3.0, 4.0]])
    return {**tally(*batches), **hand_error(hand, 0.7, 0.7)}


@statement(
    "pan2023/lemma-2.4.5",
    Kind.LEMMA,
    r"Vectors of root mean square norm $\alpha$ whose mean inner product with $u$, $\|u\| \le "
    r"\beta$, is $c \ge \alpha\beta/\sqrt{2}$ have a mean unit vector of norm at least "
    r"$2(c/(\alpha\beta))^2 - 1$.",
    "pan2023, Lemma 2.4.5 “provides a conversion between these requirements”",
    unit_mean_norm,
    judge=judge_tight,
)
def lemma_2_4_5(preset: str) -> Numbers:
    rng = np.random.default_rng(5)
    batches = [unit_mean_norm(*vectors_around(rng, draws(preset) // 2, size)) for size in SIZES]
    worst = unit_mean_norm([1.0, 0.0], [[1.0, 0.0]] * 3 + [[-1e-12, 0.0]])
    hand = unit_mean_norm([2.0, 0.0], [[4.0, 0.0], [4.0, 3.0]])
    norm, cosine = math.hypot(1.8, 0.6) / 2, 4 / math.sqrt((16 + 25) / 2)
    return {
        **tally(*batches),
        "tightest_ratio": float(worst.right / worst.left),
        **hand_error(hand, norm, 2 * cosine**2 - 1),
    }


def _proposition(preset: str) -> Numbers:
    rng = np.random.default_rng(6)
    # All of a is on the one long b.
    counterexample = ratio_sum_printed([1.0, 0.0, 0.0, 0.0], [1.0, 1e-6, 1e-6, 1e-6])
    printed, repaired = [counterexample], []
    for size in SIZES:
        _, v = vectors_around(rng, draws(preset) // 4, size)
        b = np.linalg.norm(v, axis=-1)
        a = rng.random(b.shape) * b
        printed.append(ratio_sum_printed(a, b))
        repaired.append(ratio_sum(a, b, np.ones(len(b))))
    hand = ratio_sum_printed([1.0, 6.0], [1.0, 2.0])
    return {
        **hand_error(hand, 4.0, 7 * math.sqrt(2 / 5)),
        "printed": tally(*printed),
        "repaired": tally(*repaired),
        "counterexample": {
            "left": float(counterexample.left),
            "right": float(counterexample.right),
        },
    }


@claim(
    "pan2023/lemma-2.4.5-proposition",
    Kind.PROOF_STEP,
    r"For $a_i \ge 0$, $b_i > 0$ with $\sum_i a_i = A$ and $\sum_i b_i^2 \le B^2$, the sum of "
    r"$a_i/b_i$ is at least $\frac{A}{B}\sqrt{N}$.",
    "pan2023, Lemma 2.4.5 (proof) “that can be easily shown through Lagrange multipliers”",
    gather=_proposition,
    code="nclab_papers.pan2023.unit_means.ratio_sum_printed",
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


@statement(
    "pan2023/cor-2.4.2",
    Kind.COROLLARY,
    r"Vectors of root mean square norm $\alpha$ whose mean has norm $c \ge \alpha/\sqrt{2}$ have "
    r"a mean unit vector of norm at least $2(c/\alpha)^2 - 1$.",
    "pan2023, Cor. 2.4.2 “by setting u to be the normalized mean vector”",
    unit_mean_norm_from_mean,
)
def corollary_2_4_2(preset: str) -> Numbers:
    rng = np.random.default_rng(7)
    batches = [
        unit_mean_norm_from_mean(vectors_around(rng, draws(preset) // 2, size)[1]) for size in SIZES
    ]
    hand = unit_mean_norm_from_mean([[4.0, 3.0], [4.0, -3.0]])
    return {**tally(*batches), **hand_error(hand, 0.8, 2 * 0.8**2 - 1)}


def _opposed(preset: str) -> Numbers:
    rng = np.random.default_rng(8)
    forms: dict[str, Callable[..., Inequality]] = {
        "repaired": partial(opposed_cosine, printed=False),
        "inner": opposed_inner,
        "linear": opposed_inner_linear,
    }
    batches: dict[str, list[Inequality]] = {name: [] for name in forms}
    for size in SIZES:
        u, v = vectors_around(rng, draws(preset) // 4, size)
        for name, sides in forms.items():
            batches[name].append(sides(-u, v))
    # The mean feature is 0, but the short mean unit feature points along w.
    cancelling = opposed_cosine([1.0, 0.0], [[10.0, 0.0]] * 11 + [[-11.0, 0.0]] * 10, printed=True)
    hand = opposed_cosine([2.0, 0.0], [[-1.0, 0.0], [-7.0, 0.0]], printed=True)
    return {
        **hand_error(hand, -1.0, -0.8 + 4 * 0.2 ** (1 / 3)),
        "printed": tally(cancelling),
        **{name: tally(*members) for name, members in batches.items()},
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
    code="nclab_papers.pan2023.unit_means.opposed_cosine",
)
@with_hand_check
def lemma_2_4_6(numbers: Numbers) -> Finding:
    """Refute the printed form by a counterexample, and judge its repaired forms."""
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
    verdict = Verdict.CORRECTED if inner.verdict is Verdict.HOLDS else Verdict.REFUTED
    return Finding(verdict, evidence, numbers)
