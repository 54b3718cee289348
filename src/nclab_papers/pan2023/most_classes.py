"""Steps (2.19) to (2.23) of the proof of pan2023, Theorem 2.3.1, and the bound on NC3 it prints."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Claim, Finding, Kind, Numbers, claim
from nclab.claims.statements import draws, judge_statement, relative_error, tally, with_hand_check
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import Inequality
from nclab_papers.pan2023.statements import near_optimum as steps
from nclab_papers.pan2023.trial_data import networks

Step = Callable[[ArrayLike, ArrayLike, float], Inequality]

DELTAS = (0.05, 0.2, 0.45)
"""Shares of the classes that are left out."""
SMALL = 0.03
"""Factor of norms that are small."""
PAIR: FloatArray = np.array([[1.0], [-1.0]])
"""Weights of the case with two classes that is worked by hand, scores 2 and 1, and their features;
C/(C-1) is 2 and the arguments are -4 and -2."""
SCORES: FloatArray = np.array([[[2.0]], [[-1.0]]])
HAND_DELTA = 0.4
ROW: FloatArray = np.array([[2.0], [0.0], [1.0]])
"""Weights of the case with three classes, all with the feature 1."""


def _all_of(
    step: Step, preset: str, seed: int, classes: Sequence[int] = (2, 3, 4, 10)
) -> list[Inequality]:
    """A step on networks near the minimum and far from it, some with one heavy class."""
    rng = np.random.default_rng(seed)
    found = []
    for number in classes:
        W, H = networks(rng, draws(preset) // 20, number, 2)
        # Weights and features of one class are longer, and its features turned away.
        heavy = np.where(np.arange(number) == 0, rng.uniform(1, 3, (len(W), 1)), 1.0)
        away = rng.normal(size=(len(W), 1, H.shape[-1])) * (heavy - 1)[..., None]
        for rows, columns in (
            (W, H),
            (W * heavy[..., None], (H * heavy[..., None, None]) + away[:, :, None]),
        ):
            found += [step(rows, columns, delta) for delta in DELTAS]
    return found


def _gaps() -> tuple[float, float, float]:
    """alpha beta, epsilon_3 and the root of (2.19) and (2.20) in the case of two classes."""

    def loss(x: float) -> float:
        return math.log1p(math.exp(x))

    second = (loss(-4) + loss(-2)) / 2 - loss(-3)
    bend = math.exp(-4) / (1 + math.exp(-4)) ** 2
    root = math.sqrt(2 * second * (1 - HAND_DELTA) / (bend * HAND_DELTA))
    return math.sqrt(2.5), -3 + 2 * math.sqrt(2.5), root


def _low_scores(preset: str) -> Numbers:
    hand = steps.low_scores(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product - (third + root) / 2
    return {
        **tally(*_all_of(steps.low_scores, preset, 10)),
        "hand_error": relative_error((hand.left, 1.0), (hand.right, right)),
    }


eq_2_19 = Claim(
    "pan2023/eq-2.19",
    Kind.EQUATION,
    "At most delta C classes have a score w_c h_c below alpha beta - (C-1)/C (epsilon_3 + "
    "sqrt(2 epsilon_2 (1-delta)/(lambda delta))).",
    "pan2023, Eq. (2.19) “Therefore, there are at most”",
    with_hand_check(judge_statement),
    _low_scores,
    code="nclab_papers.pan2023.statements.near_optimum.low_scores",
)


def _large_norms(preset: str) -> Numbers:
    hand = steps.large_norms(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product + (1.5 * third + root) / 2
    return {
        **tally(*_all_of(steps.large_norms, preset, 11)),
        "hand_error": relative_error((hand.left, 2.0), (hand.right, right)),
    }


eq_2_20 = Claim(
    "pan2023/eq-2.20",
    Kind.EQUATION,
    "At most delta C classes have a product of norms alpha_c beta_c above alpha beta + (C-1)/C "
    "((1-delta)/delta epsilon_3 + sqrt(2 epsilon_2 (1-delta)/(lambda delta))).",
    "pan2023, Eq. (2.20) “and also there are at most”",
    with_hand_check(judge_statement),
    _large_norms,
    code="nclab_papers.pan2023.statements.near_optimum.large_norms",
)


def _others(preset: str, *, step: Step, centred: bool) -> Numbers:
    hand = step(ROW, np.ones((3, 1, 1)), HAND_DELTA)
    left, right = [], []
    for own, others in ((1.0, (-1.0, 0.0)), (-1.0, (1.0, 0.0)), (0.0, (1.0, -1.0))):
        middle = sum(others) / 2 - own
        lost = sum(math.exp(other - own) for other in others) - 2 * math.exp(middle)
        rise = math.sqrt(2 * lost / (math.exp(middle) * HAND_DELTA))
        left.append(max(others) - (0.0 if centred else own))
        right.append((-own / 2 if centred else middle) + rise)
    return {
        **tally(*_all_of(step, preset, 12 + centred)),
        "hand_error": relative_error((hand.left, left), (hand.right, right)),
    }


eq_2_22 = Claim(
    "pan2023/eq-2.22",
    Kind.EQUATION,
    "For at least (1 - delta)(C-1) classes c' the difference (w_c' - w_c) h_c is at most m_c + "
    "sqrt(2 epsilon_1c/(exp(m_c) delta)), m_c = -C/(C-1) w_c h_c.",
    "pan2023, Eq. (2.22) “using the definition that”",
    with_hand_check(judge_statement),
    partial(_others, step=steps.high_differences, centred=False),
    code="nclab_papers.pan2023.statements.near_optimum.high_differences",
)

eq_2_23 = Claim(
    "pan2023/eq-2.23",
    Kind.EQUATION,
    "For the same classes c' the score w_c' h_c is at most -1/(C-1) w_c h_c + "
    "sqrt(2 epsilon_1c/(exp(m_c) delta)).",
    "pan2023, Eq. (2.23) “Combining with”",
    with_hand_check(judge_statement),
    partial(_others, step=steps.high_scores_of_others, centred=True),
    code="nclab_papers.pan2023.statements.near_optimum.high_scores_of_others",
)


def _self_duality(preset: str) -> Numbers:
    rng = np.random.default_rng(14)
    batches = _all_of(steps.self_duality, preset, 15, classes=(3, 4, 10))
    telling = sum(int((both.right > 0).sum()) for both in batches)
    for classes in (3, 10):
        W, H = networks(rng, draws(preset) // 50, classes, 2)
        batches += [steps.self_duality(SMALL * W, SMALL * H, delta) for delta in DELTAS]
    hand = steps.self_duality(PAIR, SCORES, HAND_DELTA)
    reach = 2 * math.sqrt(2.5)
    lost = (math.log1p(math.exp(-4)) + math.log1p(math.exp(-2))) / 2 - math.log1p(math.exp(-reach))
    bend = math.exp(-reach) / (1 + math.exp(-reach)) ** 2
    right = 1 - 2 * math.sqrt(2 * lost * (1 - HAND_DELTA) / (bend * HAND_DELTA)) / reach
    return {
        **tally(*batches),
        "telling": telling,
        "hand_error": relative_error((hand.left, 1.0), (hand.right, right)),
    }


@claim(
    "pan2023/proof-nc3",
    Kind.PROOF_STEP,
    "For at least (1 - 2 delta) C classes the cosine of weight and mean feature is at least "
    "1 - (C-1)/(C alpha beta) 2 sqrt(2 epsilon (1-delta)/(lambda delta)), which is the bound on "
    "NC3; read with the factor of (2.21), which our copy does not show in this line.",
    "pan2023, Thm 2.3.1 (proof) “gives the NC3 bound in the theorem”",
    gather=_self_duality,
    code="nclab_papers.pan2023.statements.near_optimum.self_duality",
)
@with_hand_check
def nc3(numbers: Numbers) -> Finding:
    found = judge_statement(numbers)
    evidence = f"{found.evidence} ({numbers['telling']} of the bounds above 0)"
    return Finding(found.verdict, evidence, numbers)
