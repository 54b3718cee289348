"""The steps in the proof of Theorem 2.3.1 from the loss to its minimum m.

Weights have shape (..., C, d), features (..., C, N, d): row c holds the N samples of class c. In
formulas, the centred weight of class c is w_c with a dot, and its mean feature h_c with a tilde.
The norms alpha and beta are the root mean squares of the feature norms and of the weight norms.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Finding, Kind, Numbers, Verdict
from nclab.claims.statements import (
    describe,
    draws,
    hand_error,
    judge_and_describe,
    judge_statement,
    relative_error,
    statement,
    tally,
)
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.certificates.norms_and_loss import excess_to_leave
from nclab.theory.layer_peeled import FloatArray, g, wrong_probability
from nclab.theory.statements import (
    ROUNDING,
    Inequality,
    norms,
    sample_losses,
    weights_and_features,
)


def networks(
    rng: np.random.Generator, count: int, num_classes: int, per_class: int
) -> tuple[FloatArray, FloatArray]:
    """Draw weights (count, C, C) and features (count, C, N, C): simplex ETFs with noise."""
    frame = simplex_etf(num_classes, num_classes).numpy()
    size = 10 ** rng.uniform(-0.5, 0.5, size=(count, 1, 1))
    noise = 10 ** rng.uniform(-4, 0.5, size=(count, 1, 1))
    W = size * (frame + noise * rng.normal(size=(count, num_classes, num_classes)))
    spread = rng.normal(size=(count, num_classes, per_class, num_classes))
    H = size[..., None] * (frame[:, None] + noise[..., None] * spread)
    return W, H


def lowest_loss(num_classes: int, dim: int, *, product: float, starts: int = 4) -> float:
    """Return the smallest loss that a search finds if the product alpha beta of norms is given.

    Each class has one feature of dimension `dim`.

    >>> from nclab.theory.layer_peeled import g
    >>> bool(abs(lowest_loss(3, 2, product=2.0, starts=1) / g(2.0, 3) - 1) < 1e-6)
    True
    """
    from scipy.optimize import minimize

    size = math.sqrt(num_classes * product)

    def loss(flat: FloatArray) -> float:
        W, H = flat.reshape(2, num_classes, dim)
        W, H = (size * part / np.linalg.norm(part) for part in (W, H))
        return float(sample_losses(W, H[:, None]).mean())

    rng = np.random.default_rng(0)
    losses = (
        minimize(loss, rng.normal(size=2 * num_classes * dim), method="L-BFGS-B").fun
        for _ in range(starts)
    )
    return float(min(losses))


def minimal_loss(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the loss with m, the smallest loss of any weights and features with its norms.

    $$\tfrac1{CN}\sum_{c,i}\ell_{c,i} \ge
      m = \log\bigl(1+(C-1)e^{-\frac{C}{C-1}\alpha\beta}\bigr)$$

    Source: pan2023, Thm 2.3.1 (minimality of m)
    Range: every C >= 2 and N >= 1. Equality at a simplex ETF, which needs d >= C - 1.
    """
    w, h, alpha, beta = _with_norms(weight, features)
    num_classes = w.shape[-2]
    left = sample_losses(w, h).mean((-1, -2))
    right = np.asarray(g(alpha * beta, num_classes))
    # The condition number of g is at most C/(C-1) times the product of the norms.
    tolerance = ROUNDING * (1 + 2 * alpha * beta) * right
    return Inequality(left, ">=", right, tolerance=tolerance)


def _with_norms(
    weight: ArrayLike, features: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return weights and features as arrays, and their root mean square norms alpha and beta."""
    w, h = weights_and_features(weight, features)
    alpha = np.sqrt(np.square(h).sum(-1).mean((-1, -2)))
    beta = np.sqrt(np.square(w).sum((-1, -2)) / w.shape[-2])
    return w, h, alpha, beta


@statement(
    "pan2023/thm-2.3.1-minimum",
    Kind.THEOREM,
    r"$m = \log\left(1 + (C-1)\exp\left(-\frac{C}{C-1}\alpha\beta\right)\right)$ is the smallest "
    "loss of any weights and features with these norms.",
    "pan2023, Thm 2.3.1 “is the minimum achievable loss for any set of weight and feature”",
    minimal_loss,
    judge=judge_and_describe(
        "no loss is below m: {tally}; simplex ETFs attain m (relative gap {etf_gap}), but they "
        "need d >= C - 1: six classes in two dimensions reach only {plane_loss}, where m is "
        "{plane_minimum}",
        lambda numbers: numbers["etf_gap"] <= 1e-9,
    ),
)
def minimum(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches, gaps = [], []
    for classes in (2, 3, 4, 7):
        for per_class in (1, 3):
            batches.append(minimal_loss(*networks(rng, draws(preset) // 20, classes, per_class)))
        frame = 1.7 * simplex_etf(classes, classes - 1).numpy()
        attained = minimal_loss(frame, 2 * frame[:, None])
        gaps.append(float(abs(attained.left / attained.right - 1)))
    hand = minimal_loss([[1.0], [-1.0]], [[[2.0], [0.0]], [[-2.0], [-2.0]]])
    left = (3 * math.log1p(math.exp(-4)) + math.log(2)) / 4
    right = math.log1p(math.exp(-2 * 3**0.5))
    return {
        **tally(*batches),
        **hand_error(hand, left, right),
        "etf_gap": max(gaps),
        "plane_loss": lowest_loss(6, 2, product=3.0),
        "plane_minimum": g(3.0, 6),
    }


def class_loss_bound(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the mean loss of each class with a lower bound from its weight and mean feature.

    $$\tfrac1N\sum_i\ell_{c,i} \ge
      \log\bigl(1+(C-1)e^{-\frac{C}{C-1}\dot w_c\cdot\tilde h_c}\bigr)$$

    Source: pan2023, Eq. (2.9)
    Range: shape (..., C). The bound depends on the score, the inner product of the centred weight
    and the mean feature.
    """
    w, h, _, _ = _with_norms(weight, features)
    left = sample_losses(w, h).mean(-1)
    centred = w - w.mean(-2, keepdims=True)
    inner = (centred * h.mean(-2)).sum(-1)
    right = np.asarray(g(inner, w.shape[-2]))
    reach = norms(w).max(-1)[..., None] * norms(h).max(-1)
    # Logits have a rounding error of `reach`, which changes the loss by at most twice as much.
    tolerance = 4 * ROUNDING * (1 + reach) * np.maximum(left, right)
    return Inequality(left, ">=", right, tolerance=tolerance)


@statement(
    "pan2023/eq-2.9",
    Kind.EQUATION,
    r"The mean loss of a class is at least $\log\left(1 + (C-1)\exp\left(-\frac{C}{C-1}w_c "
    r"h_c\right)\right)$ with the centred weight $w_c$ and the mean feature $h_c$ of the class.",
    "pan2023, Eq. (2.9) “consider the minimum achievable average loss for a single class c”",
    class_loss_bound,
)
def class_loss(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches = []
    for classes in (2, 4, 10):
        batches.append(class_loss_bound(*networks(rng, draws(preset) // 20, classes, 3)))
    hand = class_loss_bound([[1.0], [-1.0]], [[[2.0], [0.0]], [[-1.0], [-1.0]]])
    right = math.log1p(math.exp(-2))
    left = [(math.log1p(math.exp(-4)) + math.log(2)) / 2, right]
    return {**tally(*batches), **hand_error(hand, left, [right] * 2)}


def log_sum_step(num_classes: int, argument: ArrayLike, epsilon: ArrayLike) -> Inequality:
    r"""Return log(1 + epsilon/a) and its lower bound epsilon/C, where a + epsilon is at most C.

    $$\log(a+\varepsilon) \ge \log a + \frac{\varepsilon}{C},\quad
      a = 1+(C-1)e^{x},\ \varepsilon\ge0,\ a+\varepsilon\le C$$

    Source: pan2023, Eq. (2.18)
    Range: in the proof, log(a + epsilon) is a bound on the loss of a class, which is at most log C
    near the optimum. log a is subtracted from both sides.
    """
    a = 1 + (num_classes - 1) * np.exp(np.asarray(argument, dtype=np.float64))
    gap = np.asarray(epsilon, dtype=np.float64)
    left = np.log1p(gap / a)
    applies = (gap >= 0) & (a + gap <= num_classes)
    return Inequality(left, ">=", gap / num_classes, applies, ROUNDING * left)


@statement(
    "pan2023/eq-2.18",
    Kind.PROOF_STEP,
    r"A gap inside the logarithm comes out of it divided by $C$: $\log(a + \varepsilon) \ge \log "
    r"a + \varepsilon/C$, where $\log(a + \varepsilon)$ bounds a class loss that is at most "
    r"$\log C$.",
    "pan2023, Eq. (2.18) “to represent the gap introduced by each inequality in the above proof”",
    log_sum_step,
)
def log_sum(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    argument = rng.uniform(-12, 0, size=draws(preset) // 4)
    largest = 9 * -np.expm1(argument)  # there the class loss is log C
    gap = np.minimum(largest, 10 ** rng.uniform(-6, 1, size=len(argument)))
    hand = log_sum_step(4, -math.log(3), 1.0)  # a = 2; log a is subtracted from both sides
    return {**tally(log_sum_step(10, argument, gap)), **hand_error(hand, math.log(1.5), 0.25)}


LONGER = 1.0075
"""Norm of one mean feature divided by alpha, in a counterexample to a step of the proof: the proof
says that no mean feature is longer than alpha."""


def one_longer_class(
    num_classes: int, product: float, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """Return weights (C, d) and features (C, 1, d) of a simplex ETF whose first feature is longer.

    Its norm is `ratio` times alpha; `product` is alpha beta.

    >>> W, H = one_longer_class(4, 3.0, 1.5)
    >>> [round(float(np.square(rows).sum(-1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = math.sqrt(product) * simplex_etf(num_classes, num_classes - 1).numpy()
    others = math.sqrt((num_classes - ratio**2) / (num_classes - 1))
    lengths = np.where(np.arange(num_classes) == 0, ratio, others)
    return frame, (lengths[:, None] * frame)[:, None]


def judge_range(numbers: Numbers) -> Finding:
    """Judge whether the arguments are in the range of `argument_range_printed` near the minimum.

    The claim is corrected if the range holds although the reason that the proof gives is false.
    """
    finding = judge_statement(numbers)
    evidence = describe(
        "for excess losses too small to leave the range (below {excess_to_leave} at C = 10, alpha "
        "beta = 5): {tally}; at higher losses, from {least_share} times this value on, {beyond} "
        "networks leave the range. The mean feature of a class may be longer than alpha: at C = 4, "
        "alpha beta = 3 a simplex ETF in which one has the norm {longest} alpha has an excess loss "
        "of {longest_excess}",
        numbers,
        tally=finding.evidence,
        longest=f"{numbers['longest_mean']:.4f}",
    )
    wrong_reason = numbers["longest_mean"] > 1 and numbers["longest_excess"] < 1e-5
    corrected = finding.verdict is Verdict.HOLDS and wrong_reason
    return Finding(Verdict.CORRECTED if corrected else finding.verdict, evidence, numbers)


def argument_range_printed(weight: ArrayLike, features: ArrayLike) -> Inequality:
    r"""Compare the arguments x_c of the loss with the interval in which the proof assumes them.

    $$|x_c| \le C\alpha\beta,\quad x_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: shape (..., C). True for three or more classes if the loss is near m, as the theorem
    assumes. At a high loss, nearly all of the squared norms may belong to one class, and |x_c|
    reaches C sqrt(C/(C-1)) alpha beta.
    """
    w, h, alpha, beta = _with_norms(weight, features)
    num_classes = w.shape[-2]
    centred = w - w.mean(-2, keepdims=True)
    left = num_classes / (num_classes - 1) * np.abs((centred * h.mean(-2)).sum(-1))
    right = np.broadcast_to((num_classes * alpha * beta)[..., None], left.shape)
    return Inequality(left, "<=", right, tolerance=ROUNDING * right)


@statement(
    "pan2023/proof-range",
    Kind.PROOF_STEP,
    r"The mean feature of a class has norm at most $\alpha$, and so the arguments of the strongly "
    r"convex function lie in $[-C\alpha\beta, C\alpha\beta]$.",
    "pan2023, Thm 2.3.1 (proof) “the second-order derivative of log(1”",
    argument_range_printed,
    judge=judge_range,
)
def norm_range(preset: str) -> Numbers:
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
    W, H = one_longer_class(4, 3.0, LONGER)
    _, _, alpha, _ = _with_norms(W, H)
    return {
        **tally(*ranges),
        "longest_mean": float(norms(H.mean(-2)).max() / alpha),
        "longest_excess": float(_excess(W, H)),
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
    """Return (count,) the loss of each network minus the smallest loss m for its norms."""
    loss_and_minimum = minimal_loss(W, H)
    return np.asarray(loss_and_minimum.left - loss_and_minimum.right)


def _enough(least: Callable[[int, float], float], W: FloatArray, H: FloatArray) -> FloatArray:
    """Return (count,) the result of `least(C, alpha beta)` for each network."""
    _, _, alpha, beta = _with_norms(W, H)
    return np.array([least(W.shape[-2], float(product)) for product in alpha * beta])


def tangent_step(num_classes: int, product: ArrayLike, epsilon: ArrayLike) -> Inequality:
    r"""Return the loss at x_0 + epsilon and its tangent at x_0, which is a lower bound.

    $$\log\bigl(1+(C-1)e^{x_0+\varepsilon}\bigr) \ge m + (1-e^{-m})\,\varepsilon,\quad
      x_0 = -\tfrac{C}{C-1}\alpha\beta$$

    Source: pan2023, Thm 2.3.1 (proof, the gap epsilon_3)
    Range: every real epsilon, because the loss is convex. The thesis writes ≈ for this step.
    """
    norm_product = np.asarray(product, dtype=np.float64)
    gap = np.asarray(epsilon, dtype=np.float64)
    left = np.asarray(g(norm_product - (num_classes - 1) / num_classes * gap, num_classes))
    lowest = np.asarray(g(norm_product, num_classes))
    right = lowest + np.asarray(wrong_probability(norm_product, num_classes)) * gap
    scale = (1 + np.abs(norm_product) + np.abs(gap)) * np.maximum(left, lowest)
    return Inequality(left, ">=", right, tolerance=2 * ROUNDING * scale)


@statement(
    "pan2023/proof-third-gap",
    Kind.PROOF_STEP,
    r"A gap $\varepsilon_3$ in the exponent makes the loss larger by about "
    r"$\frac{\gamma}{1+\gamma}\varepsilon_3$ with $\gamma = "
    r"(C-1)\exp\left(-\frac{C}{C-1}\alpha\beta\right)$, and by no less.",
    "pan2023, Thm 2.3.1 (proof) “Thus using the fact that”",
    tangent_step,
)
def third_gap(preset: str) -> Numbers:
    rng = np.random.default_rng(5)
    batches = []
    for classes in (3, 10, 100):
        product = 10 ** rng.uniform(-1, 1.3, size=draws(preset) // 10)
        gap = rng.choice([-1, 1], size=len(product)) * 10 ** rng.uniform(-6, 1, size=len(product))
        batches.append(tangent_step(classes, product, gap))
    hand = tangent_step(3, 2 * math.log(2) / 3, math.log(4))  # C A/(C-1) = log 2
    right = math.log(2) + math.log(4) / 2
    return {**tally(*batches), **hand_error(hand, math.log(5), right)}


def excess_for_zero(num_classes: int, product: float) -> float:
    r"""Return the excess loss below which every class has a positive score.

    $$\dot w_c\cdot\tilde h_c \le 0 \;\Rightarrow\; \varepsilon \ge
    \tfrac1C\bigl[\log C+(C-1)\,g\bigl(\tfrac{C\alpha\beta}{C-1}\bigr)\bigr]-m$$

    Source: pan2023, Thm 2.3.1 (proof, positive scores)
    Range: [0, inf), without a bias. Equality if the score of one class is 0 and the others have
    equal scores.
    """
    other_classes = float(g(num_classes * product / (num_classes - 1), num_classes))
    lowest = float(g(product, num_classes))
    return (math.log(num_classes) + (num_classes - 1) * other_classes) / num_classes - lowest


@statement(
    "pan2023/proof-positive",
    Kind.PROOF_STEP,
    r"Where $\varepsilon$ is small enough every class has a positive score $w_c h_c$.",
    "pan2023, Thm 2.3.1 (proof) “there must be”",
    excess_for_zero,
    judge=judge_and_describe(
        "the excess loss of networks with a score of at most 0 is at least the required one: "
        "{tally}; at C = 10, alpha beta = 5 the required excess is {enough}"
    ),
)
def positive(preset: str) -> Numbers:
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
    both = Inequality(np.array(excess), ">=", np.array(enough))
    others, all_alike = (math.log1p(2 * math.exp(-1.5 * score)) for score in (1.5, 1.0))
    hand = (math.log(3) + 2 * others) / 3 - all_alike
    return {
        **tally(both),
        "enough": excess_for_zero(10, 5.0),
        "hand_error": relative_error((excess_for_zero(3, 1.0), hand)),
    }


def loss_strong_convexity(num_classes: int, low: ArrayLike, high: ArrayLike) -> FloatArray:
    r"""Return the smallest second derivative of the loss phi(x) on the interval from low to high.

    $$\lambda = \min_{x\in[a,b]}\varphi''(x),\quad
      \varphi(x) = \log(1+(C-1)e^x),\ \varphi'' = q(1-q)$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, 1/4]. q is the probability of the wrong classes. The second derivative has one peak,
    so it is smallest at an end of the interval.

    >>> float(loss_strong_convexity(2, 0.0, 0.0))
    0.25
    """
    shrink = -(num_classes - 1) / num_classes
    first, last = (
        np.asarray(wrong_probability(shrink * end, num_classes))
        * np.exp(-np.asarray(g(shrink * end, num_classes)))
        for end in (np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    )
    return np.minimum(first, last)
