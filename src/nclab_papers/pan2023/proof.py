"""The steps of the proof of pan2023, Theorem 2.3.1, one by one."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nclab.claims.claim import Claim, Finding, Kind, Numbers, claim
from nclab.claims.statements import (
    draws,
    judge_statement,
    relative_error,
    tally,
    with_hand_check,
)
from nclab.text import number
from nclab.theory.certificates.scores import excess_to_leave
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import Inequality
from nclab_papers.pan2023.statements.loss_steps import (
    argument_range_printed,
    class_loss_bound,
    excess_for_zero,
    log_sum_step,
    minimal_loss,
    tangent_step,
)
from nclab_papers.pan2023.trial_data import networks


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
    "The mean loss of a class is at least log(1 + (C-1) exp(-C/(C-1) w_c h_c)) with the "
    "centred weight w_c and the mean feature h_c of the class.",
    "pan2023, Eq. (2.9) “consider the minimum achievable average loss for a single class c”",
    with_hand_check(judge_statement),
    _class_loss,
    code="nclab_papers.pan2023.statements.loss_steps.class_loss_bound",
)


def _log_sum(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    argument = rng.uniform(-12, 0, size=draws(preset) // 4)
    room = 9 * -np.expm1(argument)  # up to a class loss of log C
    gap = np.minimum(room, 10 ** rng.uniform(-6, 1, size=len(argument)))
    hand = log_sum_step(4, -math.log(3), 1.0)  # a = 2; each side less log a
    return {
        **tally(log_sum_step(10, argument, gap)),
        "hand_error": relative_error((hand.left, math.log(1.5)), (hand.right, 0.25)),
    }


log_sum = Claim(
    "pan2023/eq-2.18",
    Kind.PROOF_STEP,
    "A gap inside the logarithm comes out of it divided by C: log(a + epsilon) >= log a + "
    "epsilon/C, where log(a + epsilon) bounds a class loss that is at most log C.",
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
        # One class that takes most of the norms is what could leave the range.
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
    """(count,) the loss above the best of these norms."""
    both = minimal_loss(W, H)
    return np.asarray(both.left - both.right)


def _enough(least: Callable[[int, float], float], W: FloatArray, H: FloatArray) -> FloatArray:
    """(count,) an excess that depends on classes and norms."""
    alpha = np.sqrt(np.square(H).sum(-1).mean((-1, -2)))
    beta = np.sqrt(np.square(W).sum((-1, -2)) / W.shape[-2])
    return np.array([least(W.shape[-2], float(product)) for product in alpha * beta])


@claim(
    "pan2023/proof-range",
    Kind.PROOF_STEP,
    "The arguments of the strongly convex function lie in [-C alpha beta, C alpha beta].",
    "pan2023, Thm 2.3.1 (proof) “the second-order derivative of log(1”",
    gather=_range,
    code="nclab_papers.pan2023.statements.loss_steps.argument_range_printed",
)
@with_hand_check
def norm_range(numbers: Numbers) -> Finding:
    found = judge_statement(numbers)
    evidence = (
        f"where the excess loss is too small to leave the range, which at C = 10, alpha beta = 5 "
        f"it is below {number(numbers['excess_to_leave'])}: {found.evidence}; at a higher loss, "
        f"from {number(numbers['least_share'])} times that on, {numbers['beyond']} networks leave "
        "the range"
    )
    return Finding(found.verdict, evidence, numbers)


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
    "A gap epsilon_3 in the exponent makes the loss larger by about gamma/(1 + gamma) epsilon_3, "
    "gamma = (C-1) exp(-C/(C-1) alpha beta), and by no less.",
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
        turned = H.copy()
        turned[:, 0] *= -1  # a class whose features point away from its row
        for columns in (H, turned):
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
    "Where epsilon is small enough every class has a positive score w_c h_c.",
    "pan2023, Thm 2.3.1 (proof) “there must be”",
    gather=_positive,
    code="nclab_papers.pan2023.statements.loss_steps.excess_for_zero",
)
@with_hand_check
def positive(numbers: Numbers) -> Finding:
    found = judge_statement(numbers)
    evidence = (
        f"of networks with a score of 0 or less, the excess against what that takes: "
        f"{found.evidence}; at C = 10, alpha beta = 5 it takes {number(numbers['enough'])}"
    )
    return Finding(found.verdict, evidence, numbers)
