"""The steps in the proof of Theorem 2.3.1 near the minimum: scores, norms and self-duality.

Weights have shape (..., C, d), features (..., C, N, d). The score of a class is the inner product
of its centred weight and its mean feature. The proof splits the excess loss into three parts:
epsilon_1 comes from unequal logits of the wrong classes, epsilon_2 from unequal scores of the
classes, and epsilon_3 from scores below alpha beta, the product of the norms. Its bounds hold for
all classes except for a fraction delta, the exempt classes; they use lambda, the strong convexity
of the loss.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Kind, Numbers
from nclab.claims.statements import draws, hand_error, judge_and_describe, statement, tally
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import (
    ROUNDING,
    Inequality,
    norms,
    sample_losses,
    units,
    weights_and_features,
)
from nclab_papers.pan2023.jensen import gap_with_rounding, relative_exponential_gap
from nclab_papers.pan2023.loss_steps import loss_strong_convexity, networks

LEAST = 1e-290
"""Bounds with a strong convexity of at most this number are skipped, as they would be infinite."""
DELTAS = (0.05, 0.2, 0.45)
"""Tested values of delta, the fraction of exempt classes."""
SMALL = 0.03
"""Factor that makes the norms of weights and features small in some tests."""
PAIR: FloatArray = np.array([[1.0], [-1.0]])
"""Weights of a case with two classes that was worked out by hand; its features are `SCORES`. The
scores are 2 and 1, and C/(C-1) is 2, so the arguments x of the loss are -4 and -2."""
SCORES: FloatArray = np.array([[[2.0]], [[-1.0]]])
HAND_DELTA = 0.4
ROW: FloatArray = np.array([[2.0], [0.0], [1.0]])
"""Weights of a case with three classes that was worked out by hand; every feature is 1."""

JUDGE_BOUND = judge_and_describe("{tally} ({telling} of the bounds are positive)")
"""Function that judges a lower bound on cosines and reports how often the bound is positive."""

Step = Callable[[ArrayLike, ArrayLike, float], Inequality]


class NearOptimal(NamedTuple):
    """Scores and norms of a network, and the parts of the bounds (2.19) to (2.21) on them."""

    classes: int
    product: FloatArray
    """Product alpha beta."""
    scores: FloatArray
    """(..., C) scores."""
    products: FloatArray
    """(..., C) products alpha_c beta_c."""
    third: FloatArray
    """The part epsilon_3 of the excess loss."""
    root: FloatArray
    """sqrt(2 epsilon_2 (1 - delta) / (lambda delta)), a part of the bounds."""
    convexity: FloatArray
    """Strong convexity lambda of the loss between the smallest and the largest score."""
    rounding: FloatArray
    """Largest rounding error of `root`."""


def near_optimal(weight: ArrayLike, features: ArrayLike, delta: float) -> NearOptimal:
    """Return the scores and norms of a network, and the parts of the bounds on them."""
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
    """Evaluate an inequality for random networks near and far from the smallest loss.

    In half of them one class has larger weights and features.
    """
    rng = np.random.default_rng(seed)
    results = []
    for count in classes:
        W, H = networks(rng, draws(preset) // 20, count, 2)
        # One class has longer weights and features, and its features have another direction.
        heavy = np.where(np.arange(count) == 0, rng.uniform(1, 3, (len(W), 1)), 1.0)
        away = rng.normal(size=(len(W), 1, H.shape[-1])) * (heavy - 1)[..., None]
        for rows, columns in (
            (W, H),
            (W * heavy[..., None], (H * heavy[..., None, None]) + away[:, :, None]),
        ):
            results += [step(rows, columns, delta) for delta in DELTAS]
    return results


def _hand_bounds() -> tuple[float, float]:
    """Return the bounds (2.19) and (2.20) for the case `PAIR`, computed by hand."""

    def loss(x: float) -> float:
        return math.log1p(math.exp(x))

    product, third = math.sqrt(2.5), -3 + 2 * math.sqrt(2.5)
    second = (loss(-4) + loss(-2)) / 2 - loss(-3)
    curvature = math.exp(-4) / (1 + math.exp(-4)) ** 2
    root = math.sqrt(2 * second * (1 - HAND_DELTA) / (curvature * HAND_DELTA))
    return product - (third + root) / 2, product + (1.5 * third + root) / 2


def low_scores(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the smallest score with its bound, leaving out the delta C classes of lowest score.

    $$\dot w_c\cdot\tilde h_c \ge \alpha\beta - \tfrac{C-1}{C}\Bigl(\varepsilon_3 +
      \sqrt{\tfrac{2\varepsilon_2(1-\delta)}{\lambda\delta}}\Bigr)$$

    Source: pan2023, Eq. (2.19)
    Range: shape (...). The score of class c is the left side. lambda is the smallest second
    derivative of the loss between the arguments that belong to the smallest and largest score.
    epsilon_2 and epsilon_3 are parts of the excess loss.
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
    right, _ = _hand_bounds()
    return {**tally(*_apply(low_scores, preset, 10)), **hand_error(hand, 1.0, right)}


def large_norms(weight: ArrayLike, features: ArrayLike, delta: float) -> Inequality:
    r"""Compare the largest norm product of a class with its bound, leaving out the delta C largest.

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
    _, right = _hand_bounds()
    return {**tally(*_apply(large_norms, preset, 11)), **hand_error(hand, 2.0, right)}


def other_classes(
    weight: ArrayLike, features: ArrayLike, delta: float, *, centred: bool
) -> Inequality:
    r"""Compare the largest score of a wrong class with its bound, leaving out a share delta.

    $$(\dot w_{c'}-\dot w_c)\cdot\tilde h_c \le m_c +
      \sqrt{\tfrac{2\varepsilon_{1,c}}{e^{m_c}\delta}},\quad
      m_c = -\tfrac{C}{C-1}\dot w_c\cdot\tilde h_c$$

    Source: pan2023, Eq. (2.22) and (2.23)
    Range: shape (..., C): for the mean feature of class c, over the wrong classes c' except the
    share delta of them with the largest scores. The part epsilon_{1,c} is the sum of exp of the
    left side over c', minus (C - 1) exp(m_c). By Lemma 2.4.3 the bound is true even with
    epsilon_{1,c} divided by C - 1.

    Args:
        centred: add the score of class c to both sides, which gives (2.23).
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
    factor = 2 * (classes - 1) / delta  # a sum has C - 1 times the gap of the mean
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
    return {**tally(*_apply(step, preset, 12 + centred)), **hand_error(hand, left, right)}


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
    r"""Compare the smallest cosine of centred weight and mean feature with the printed bound (NC3).

    $$\cos(\dot w_c,\tilde h_c) \ge 1 - \tfrac{C-1}{C\alpha\beta}\cdot
      2\sqrt{\tfrac{2\varepsilon(1-\delta)}{\lambda\delta}}$$

    Source: pan2023, Thm 2.3.1 (proof, NC3)
    Range: shape (...), for all classes but a share 2 delta, delta below 1/2, epsilon below delta.
    lambda is the strong convexity on [-C alpha beta, C alpha beta], as in the proof. In our copy of
    the thesis the factor (C-1)/(C alpha beta) is missing in this line, but not in the lines before
    and after; without it the bound is false at small norms.
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
    return {**tally(*batches), "telling": telling, **hand_error(hand, 1.0, right)}
