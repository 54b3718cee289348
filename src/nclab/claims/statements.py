"""Verdicts on mathematical statements, whose two sides are computed on many data sets."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nclab.claims.claim import Claim, Finding, Gather, Judge, Kind, Numbers, Verdict
from nclab.text import number
from nclab.theory.statements import Inequality

ENOUGH = 500
"""Number of data sets that must meet the hypotheses. A statement that never fails on fewer data
sets stays open."""
HAND_TOLERANCE = 1e-9
"""Largest accepted relative error of code on a case that was worked out by hand."""


def draws(preset: str) -> int:
    """Return how many random data sets of each kind a preset draws to test a statement."""
    return {"quick": 20_000, "paper": 200_000}[preset]


def tally(*batches: Inequality) -> dict[str, Any]:
    """Count tests and failures of an inequality, and return both sides of the worst case.

    >>> tally(Inequality(np.array([1.0, 3.0]), "<=", np.array([2.0, 2.0])))
    {'tested': 2, 'violated': 1, 'left': 3.0, 'right': 2.0, 'slack': -1.0}
    """
    fields = ("left", "right", "slack", "holds", "applies")
    left, right, slack, holds, applies = (
        np.concatenate(
            [
                np.broadcast_to(getattr(batch, name), np.shape(batch.slack)).ravel()
                for batch in batches
            ]
        )
        for name in fields
    )
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), np.finfo(float).tiny)
    # Failures come first, ordered by size; then the cases that are relatively closest to failing.
    order = np.where(holds, slack / scale, slack - 1e9)
    worst = int(np.where(applies, order, np.inf).argmin())
    return {
        "tested": int(applies.sum()),
        "violated": int((~holds).sum()),
        "left": float(left[worst]),
        "right": float(right[worst]),
        "slack": float(slack[worst]),
    }


def judge_statement(numbers: Numbers, *, enough: int = ENOUGH) -> Finding:
    """Return the verdict: refuted after one failure, holds after `enough` tests, otherwise open.

    >>> clean = {"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5}
    >>> judge_statement(clean).verdict.value, judge_statement(clean | {"violated": 1}).verdict.value
    ('holds', 'refuted')
    """
    if numbers["violated"]:
        return Finding(Verdict.REFUTED, describe_tally(numbers), numbers)
    if numbers["tested"] < enough:
        evidence = f"only {numbers['tested']} data sets meet the hypotheses; {enough} are needed"
        return Finding(Verdict.OPEN, evidence, numbers)
    return Finding(Verdict.HOLDS, describe_tally(numbers), numbers)


def judge_repair(numbers: Numbers) -> Finding:
    """Return the verdict "corrected" if a statement fails as printed but holds when repaired.

    `numbers` has a tally of the statement as printed, and a tally of the repaired statement.
    """
    printed, repaired = numbers["printed"], numbers["repaired"]
    corrected = judge_statement(repaired)
    if corrected.verdict is not Verdict.HOLDS:
        return Finding(corrected.verdict, f"corrected: {corrected.evidence}", numbers)
    if not printed["violated"]:
        return Finding(Verdict.HOLDS, f"as printed: {describe_tally(printed)}", numbers)
    evidence = f"as printed: {describe_tally(printed)}; corrected: {describe_tally(repaired)}"
    return Finding(Verdict.CORRECTED, evidence, numbers)


def holds_if(
    condition: bool, evidence: str, numbers: Numbers, *, corrected: bool = False
) -> Finding:
    """Return a finding with the verdict "holds" if the condition is true, else "refuted".

    Args:
        corrected: if the condition is false, the verdict is "corrected" instead of "refuted".
    """
    otherwise = Verdict.CORRECTED if corrected else Verdict.REFUTED
    return Finding(Verdict.HOLDS if condition else otherwise, evidence, numbers)


def describe_tally(numbers: Numbers) -> str:
    """Return in words how many data sets violate an inequality, and the smallest slack.

    >>> describe_tally({"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5})
    'no failure in 900 data sets, smallest slack 0.5'
    """
    if numbers["violated"]:
        return (
            f"fails on {numbers['violated']} of {numbers['tested']} data sets; in the worst case "
            f"the left side is {number(numbers['left'])} and the right side "
            f"{number(numbers['right'])}"
        )
    slack = max(numbers["slack"], 0.0)  # a negative slack without a failure is rounding
    return f"no failure in {numbers['tested']} data sets, smallest slack {number(slack)}"


def relative_error(*pairs: tuple[Any, Any]) -> float:
    """Return the largest relative error of computed values against values worked out by hand.

    Random data sets alone may miss wrong code, because an error may change both sides of a
    statement in the same way. The error is absolute where the expected value is 0. It is at most
    1e6, also for nan and inf, because numbers in JSON are finite.

    >>> relative_error((2.0, 2.0), ([1.0, 3.0], [1.0, 2.0])), relative_error((float("nan"), 1.0))
    (0.5, 1000000.0)
    """
    worst = 0.0
    for pair in pairs:
        computed, expected = (np.asarray(side, dtype=np.float64) for side in pair)
        scale = np.where(expected == 0, 1.0, np.abs(expected))
        error = (np.abs(computed - expected) / scale).max()
        worst = max(worst, float(error) if error <= 1e6 else 1e6)
    return worst


def hand_error(case: Inequality, left: ArrayLike, right: ArrayLike) -> dict[str, float]:
    """Return {"hand_error": largest relative error} for a case whose sides were computed by hand.

    >>> hand_error(Inequality(np.array(2.0), "<=", np.array(3.0)), 2.0, 4.0)
    {'hand_error': 0.25}
    """
    return {"hand_error": relative_error((case.left, left), (case.right, right))}


def with_hand_check(judge: Judge) -> Judge:
    """Return a judge whose verdict is open if the code fails the case worked out by hand.

    The numbers contain the relative error on this case as `hand_error`, if there is such a case.
    """

    @wraps(judge)
    def checked(numbers: Numbers) -> Finding:
        finding, error = judge(numbers), float(numbers.get("hand_error", 0.0))
        if error <= HAND_TOLERANCE:
            return finding
        evidence = (
            f"the code has a relative error of {number(error)} on a case worked out by hand; "
            f"otherwise: {finding.evidence}"
        )
        return Finding(Verdict.OPEN, evidence, finding.numbers)

    return checked


def describe(sentence: str, numbers: Numbers, **more: str) -> str:
    """Return a sentence in which every {name} is replaced by its number (four digits) or word.

    >>> describe("{cases} cases, error {error}; {end}", {"cases": 3, "error": 1 / 3}, end="none")
    '3 cases, error 0.3333; none'
    """
    shown = {name: number(x) if isinstance(x, float) else x for name, x in numbers.items()}
    return sentence.format_map({**shown, **more})


def judge_and_describe(
    sentence: str,
    condition: Callable[[Numbers], bool] = lambda numbers: True,
    *,
    enough: int = ENOUGH,
) -> Judge:
    """Return a judge that works like `judge_statement` and has your own sentence as evidence.

    Args:
        sentence: the evidence, with names in braces as for `describe`; {tally} stands for the
            counts of tests and failures in words.
        condition: the statement is refuted if this function of the numbers returns False.
        enough: number of data sets that must meet the hypotheses.
    """

    def judge(numbers: Numbers) -> Finding:
        finding = judge_statement(numbers, enough=enough)
        evidence = describe(sentence, numbers, tally=finding.evidence)
        verdict = finding.verdict if condition(numbers) else Verdict.REFUTED
        return Finding(verdict, evidence, numbers)

    return judge


def judge_if(condition: Callable[[Numbers], bool], sentence: str) -> Judge:
    """Return a judge of a statement that holds if a condition on the numbers is true.

    Args:
        sentence: the evidence, with names in braces as for `describe`.
    """
    return lambda numbers: holds_if(condition(numbers), describe(sentence, numbers), numbers)


def statement(
    id: str,
    kind: Kind,
    text: str,
    source: str,
    code: Callable[..., Any],
    *,
    judge: Judge = judge_statement,
    figure: str = "",
) -> Callable[[Gather], Claim]:
    """Return a decorator that turns a function from a preset to numbers into a claim.

    Args:
        code: function that computes both sides of the statement.
        judge: judge of the numbers, to which the check of `with_hand_check` is added.
    """
    path = f"{code.__module__}.{code.__name__}"
    checked = with_hand_check(judge)
    return lambda gather: Claim(id, kind, text, source, checked, gather, "", path, figure)


def max_abs(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the largest absolute value as a plain number."""
    return float(np.abs(np.asarray(values, dtype=np.float64)).max())
