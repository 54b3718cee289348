"""Lemmas 2.4.1 to 2.4.3: what a small gap in Jensen's inequality says about the numbers.

For numbers x_1 ... x_N with mean x~ (in formulas a tilde) and a convex function f, the gap epsilon
is the mean of f(x_i) minus f(x~). A function is lambda-strongly convex if its second derivative is
at least lambda.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Finding, Kind, Numbers
from nclab.claims.statements import draws, hand_error, judge_statement, statement, tally
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import ROUNDING, BoolArray, Inequality, vectors
from nclab_papers.pan2023.loss_steps import loss_strong_convexity

Function = Callable[[FloatArray], FloatArray]

SIZES = (2, 3, 5, 12)
"""Values of N, the size of a tested data set."""
CLASSES = (2, 10)
"""Numbers of classes of the loss `_loss`, one of the tested functions."""
SERIES_BELOW = 0.03
"""Below this |x|, exp(x) - 1 - x is computed as a series."""


def jensen_weighted(x: ArrayLike, weights: ArrayLike, f: Function, modulus: float) -> Inequality:
    r"""Return both sides of Jensen's inequality with weights for a strongly convex function.

    $$f\Bigl(\sum_i t_i x_i\Bigr) \le \sum_i t_i f(x_i) - c\sum_i t_i (x_i-\tilde x)^2$$

    Source: pan2023, Lemma 2.4.2
    Range: weights t_i that sum to one, with the weighted mean in place of x~. The lemma calls f
    strongly convex of modulus c if f(x) - c x² is convex, that is, 2c-strongly convex.
    """
    points = vectors(x, "numbers (..., N)", 1)
    shares = vectors(weights, "weights (..., N)", 1)
    mean = (shares * points).sum(-1)
    values, spread = f(points), np.square(points - mean[..., None])
    left, right = f(mean), (shares * values).sum(-1) - modulus * (shares * spread).sum(-1)
    scale = np.abs(values).max(-1) + np.abs(left) + modulus * np.square(points).max(-1)
    return Inequality(left, "<=", right, tolerance=ROUNDING * scale)


def jensen_variance(x: ArrayLike, f: Function, strong_convexity: ArrayLike) -> Inequality:
    r"""Compare the variance of numbers with a bound that follows from their Jensen gap.

    $$\tfrac1N\sum_i (x_i-\tilde x)^2 \le \frac{2\varepsilon}{\lambda}$$

    Source: pan2023, Cor. 2.4.1
    Range: f is lambda-strongly convex between the numbers; epsilon is the gap of these numbers.
    """
    points = vectors(x, "numbers (..., N)", 1)
    convexity = np.asarray(strong_convexity, dtype=np.float64)
    gap, rounding = gap_with_rounding(points, f)
    left = points.var(-1)
    tolerance = 2 * rounding / convexity + ROUNDING * np.square(points).max(-1)
    return Inequality(left, "<=", 2 * gap / convexity, convexity > 0, tolerance)


def jensen_subset_mean(
    x: ArrayLike, subset: ArrayLike, f: Function, strong_convexity: ArrayLike
) -> Inequality:
    r"""Compare the distance between a subset's mean and the mean of all numbers with its bound.

    $$\bigl|\tilde x_S - \tilde x\bigr| \le
      \sqrt{\frac{2\varepsilon(1-\delta)}{\lambda\delta}},\quad \delta = |S|/N$$

    Source: pan2023, Lemma 2.4.1
    Range: S is not empty, and f is lambda-strongly convex between the numbers. Tight: both sides
    are equal for a parabola and numbers with two values.
    """
    points = vectors(x, "numbers (..., N)", 1)
    convexity = np.asarray(strong_convexity, dtype=np.float64)
    mean, inside, share = _subset(points, subset)
    gap, rounding = gap_with_rounding(points, f)
    factor = 2 * (1 - share) / (convexity * np.where(share > 0, share, 1.0))
    right = np.sqrt(factor * gap)
    tolerance = np.sqrt(factor * (gap + rounding)) - right + ROUNDING * np.abs(points).max(-1)
    left = np.abs(inside - mean)
    applies = (share > 0) & (convexity > 0)
    return Inequality(left, "<=", right, applies, tolerance)


def exponential_subset_mean(x: ArrayLike, subset: ArrayLike) -> Inequality:
    r"""Compare a subset's mean with an upper bound that follows from the gap of the exponential.

    $$\tilde x_S \le \tilde x + \sqrt{\frac{2\varepsilon}{\delta e^{\tilde x}}},\quad
      \varepsilon = \tfrac1N\sum_i e^{x_i} - e^{\tilde x}$$

    Source: pan2023, Lemma 2.4.3
    Range: S, a fraction delta of the numbers, is not empty. The ratio of the sides can come close
    to 1 as delta goes to 0.
    """
    points = vectors(x, "numbers (..., N)", 1)
    mean, inside, share = _subset(points, subset)
    gap, rounding = relative_exponential_gap(points)
    safe = np.where(share > 0, share, 1.0)
    right = np.sqrt(2 * gap / safe)
    tolerance = np.sqrt(2 * (gap + rounding) / safe) - right + ROUNDING * np.abs(points).max(-1)
    return Inequality(inside, "<=", mean + right, share > 0, tolerance)


def _subset(points: FloatArray, subset: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean of all numbers, the mean of a subset (0 if empty) and the subset's share."""
    chosen: BoolArray = np.asarray(subset, dtype=np.bool_)
    count = chosen.sum(-1)
    inside = np.where(chosen, points, 0.0).sum(-1) / np.maximum(count, 1)
    return points.mean(-1), inside, count / points.shape[-1]


def gap_with_rounding(points: FloatArray, f: Function) -> tuple[FloatArray, FloatArray]:
    """Return the Jensen gap, mean(f(x)) - f(mean(x)) but at least 0, and its rounding error."""
    gap = np.maximum(f(points).mean(-1) - f(points.mean(-1)), 0.0)
    return gap, ROUNDING * np.abs(f(points)).max(-1)


def relative_exponential_gap(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the Jensen gap of the exponential divided by exp(mean), and its rounding error."""
    deviations = points - points.mean(-1, keepdims=True)
    excess, slope = exp_excess(deviations), np.abs(np.expm1(deviations))
    largest = np.abs(points).max(-1) + np.abs(deviations).max(-1)
    # The rounding error of a deviation is that of the subtracted numbers.
    return excess.mean(-1), ROUNDING * (excess.max(-1) + slope.max(-1) * largest)


def exp_excess(x: FloatArray) -> FloatArray:
    """Return exp(x) - 1 - x without cancellation."""
    series = np.zeros_like(x)
    for order in range(9, 2, -1):
        series = x / order * (1 + series)
    result: FloatArray = np.where(
        np.abs(x) < SERIES_BELOW, np.square(x) / 2 * (1 + series), np.expm1(x) - x
    )
    return result


def judge_tight(numbers: Numbers) -> Finding:
    """Judge an inequality, and say in the evidence whether it is tight (its sides can be equal)."""
    finding = judge_statement(numbers)
    ratio = numbers["tightest_ratio"]
    tight = "tight" if ratio >= 1 - 1e-6 else "not tight"
    evidence = f"{finding.evidence}; {tight}: the largest ratio of the sides is {ratio:.6f}"
    return Finding(finding.verdict, evidence, numbers)


def numbers_with_subset(
    rng: np.random.Generator, count: int, size: int
) -> tuple[FloatArray, BoolArray]:
    """Draw numbers (count, size), and a subset of each row as a mask.

    In the first third of the rows the subset contains the largest numbers, else random ones. In the
    last third the numbers have one value inside the subset and another outside.
    """
    x = rng.normal(size=(count, size)) * 10 ** rng.uniform(-4, 1, size=(count, 1))
    x += rng.normal(size=(count, 1)) * 3
    chosen = rng.random((count, size)) < rng.uniform(0.1, 0.9, size=(count, 1))
    chosen[np.arange(count), rng.integers(size, size=count)] = True
    third = count // 3
    chosen[:third] = x[:third] >= np.median(x[:third], axis=1, keepdims=True)
    # With one value inside and another outside the subset the lemmas are tight.
    x[-third:] = np.where(chosen[-third:], x[-third:, :1], x[-third:, 1:2])
    return x, chosen


def _loss(classes: int) -> Function:
    """Return log(1 + (C - 1) exp(x)), the function to which the thesis applies the lemmas."""
    return lambda x: np.logaddexp(0.0, math.log(classes - 1) + x)


@statement(
    "pan2023/lemma-2.4.1",
    Kind.LEMMA,
    r"If Jensen's inequality for a $\lambda$-strongly convex function has gap $\varepsilon$, the "
    r"mean of a fraction $\delta$ of the numbers is within "
    r"$\sqrt{2\varepsilon(1-\delta)/(\lambda\delta)}$ of the mean of all.",
    "pan2023, Lemma 2.4.1 “if Jensen’s inequality has its gap bounded by”",
    jensen_subset_mean,
    judge=judge_tight,
)
def lemma_2_4_1(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches, tightest = [], 0.0
    for size in SIZES:
        x, chosen = numbers_with_subset(rng, draws(preset) // 8, size)
        for classes in CLASSES:
            convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
            batches.append(jensen_subset_mean(x, chosen, _loss(classes), convexity))
        parabola = jensen_subset_mean(x, chosen, np.square, 2.0)
        batches.append(parabola)
        ratios = parabola.left / np.maximum(parabola.right, 1e-3)
        tightest = max(tightest, float(ratios.max()))
    hand = jensen_subset_mean([0.0, 0.0, 3.0], [False, False, True], np.square, 1.0)
    return {**tally(*batches), "tightest_ratio": tightest, **hand_error(hand, 2.0, 8**0.5)}


@statement(
    "pan2023/lemma-2.4.2",
    Kind.LEMMA,
    "For a strongly convex function of modulus $c$, Jensen's inequality with weights has a gap "
    "of at least $c$ times the weighted variance.",
    "pan2023, Lemma 2.4.2 “is strongly convex with modulus c, then”",
    jensen_weighted,
)
def lemma_2_4_2(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    batches = []
    for size in SIZES:
        x, _ = numbers_with_subset(rng, draws(preset) // 8, size)
        shares = rng.dirichlet(np.full(size, 0.5), size=len(x))
        batches.append(jensen_weighted(x, shares, np.square, 1.0))
        batches.append(jensen_weighted(x, shares, lambda y: y**2 + y**4, 1.0))
    hand = jensen_weighted([0.0, 4.0], [0.75, 0.25], np.square, 0.5)
    return {**tally(*batches), **hand_error(hand, 1.0, 2.5)}


@statement(
    "pan2023/cor-2.4.1",
    Kind.COROLLARY,
    r"If Jensen's inequality for a $\lambda$-strongly convex function has gap $\varepsilon$, the "
    r"variance of the numbers is at most $2\varepsilon/\lambda$.",
    "pan2023, Cor. 2.4.1 “to obtain the following corollary”",
    jensen_variance,
)
def corollary_2_4_1(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    batches = []
    for size in SIZES:
        x, _ = numbers_with_subset(rng, draws(preset) // 4, size)
        for classes in CLASSES:
            convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
            batches.append(jensen_variance(x, _loss(classes), convexity))
    hand = jensen_variance([0.0, 2.0], np.square, 1.0)
    return {**tally(*batches), **hand_error(hand, 1.0, 2.0)}


@statement(
    "pan2023/lemma-2.4.3",
    Kind.LEMMA,
    r"If Jensen's inequality for the exponential has gap $\varepsilon$, the mean of a fraction "
    r"$\delta$ of the numbers exceeds the mean $x$ of all by at most $\sqrt{2\varepsilon/(\delta "
    "e^x)}$.",
    "pan2023, Lemma 2.4.3 “a similar result specific to the function”",
    exponential_subset_mean,
    judge=judge_tight,
)
def lemma_2_4_3(preset: str) -> Numbers:
    rng = np.random.default_rng(3)
    bounds, nearest = [], 0.0
    for size in SIZES:
        x, chosen = numbers_with_subset(rng, draws(preset) // 4, size)
        both = exponential_subset_mean(x, chosen)
        rise, allowed = both.left - x.mean(1), both.right - x.mean(1)
        nearest = max(nearest, float((rise / np.maximum(allowed, 1e-3)).max()))
        bounds.append(both)
    hand = exponential_subset_mean([0.0, math.log(4)], [False, True])
    gap = (1 + 4) / 2 - 2  # mean of the exponentials minus the exponential of the mean, log 2
    right = math.log(2) + math.sqrt(2 * gap / (0.5 * 2))
    return {**tally(*bounds), "tightest_ratio": nearest, **hand_error(hand, math.log(4), right)}
