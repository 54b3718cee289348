"""From both sides of a statement on many data sets to a verdict with its evidence."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nclab.claims.claim import Judge, Numbers
from nclab.claims.verdict import Finding, Verdict
from nclab.text import number
from nclab.theory.statements import Inequality

ENOUGH = 500
"""Data sets that must meet the hypotheses before silence counts as support."""


SAME = 1e-9
"""Relative deviation up to which code gives what was worked out by hand."""


def draws(preset: str) -> int:
    """Data sets of each kind that a preset draws.

    >>> draws("quick") < draws("paper")
    True
    """
    return {"quick": 20_000, "paper": 200_000}[preset]


def tally(*batches: Inequality) -> dict[str, Any]:
    """How often a statement was tested, how often it failed, and its two sides at the worst.

    >>> tally(Inequality(np.array([1.0, 3.0]), "<=", np.array([2.0, 2.0]), "pan2023, Sec. 2.1"))
    {'tested': 2, 'violated': 1, 'left': 3.0, 'right': 2.0, 'slack': -1.0}
    """
    left, right, slack, holds, applies = (
        np.concatenate([_flat(both, name) for both in batches])
        for name in ("left", "right", "slack", "holds", "applies")
    )
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), np.finfo(float).tiny)
    # Failures by their size come first, then what is relatively nearest to failing.
    order = np.where(holds, slack / scale, slack - 1e9)
    place = int(np.where(applies, order, np.inf).argmin())
    return {
        "tested": int(applies.sum()),
        "violated": int((~holds).sum()),
        "left": float(left[place]),
        "right": float(right[place]),
        "slack": float(slack[place]),
    }


def judge_statement(numbers: Numbers, *, enough: int = ENOUGH) -> Finding:
    """A statement, from its tally: refuted by one failure, supported by many tests without one.

    >>> clean = {"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5}
    >>> judge_statement(clean).verdict.value, judge_statement(clean | {"violated": 1}).verdict.value
    ('holds', 'refuted')
    """
    if numbers["violated"]:
        return Finding(Verdict.REFUTED, in_words(numbers), numbers)
    if numbers["tested"] < enough:
        few = f"only {numbers['tested']} data sets meet the hypotheses, {enough} are needed"
        return Finding(Verdict.OPEN, few, numbers)
    return Finding(Verdict.HOLDS, in_words(numbers), numbers)


def judge_repair(numbers: Numbers, *, enough: int = ENOUGH) -> Finding:
    """A statement that fails as printed, from the tallies of its `printed` and `repaired` forms.

    >>> clean = {"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5}
    >>> broken = clean | {"violated": 7, "left": 2.0, "slack": -0.5}
    >>> judge_repair({"printed": broken, "repaired": clean}).verdict.value
    'holds with a correction'
    >>> judge_repair({"printed": clean, "repaired": clean}).verdict.value
    'holds'
    """
    printed, repaired = numbers["printed"], numbers["repaired"]
    after = judge_statement(repaired, enough=enough)
    if after.verdict is not Verdict.HOLDS:
        return Finding(after.verdict, f"corrected: {after.evidence}", numbers)
    if not printed["violated"]:
        return Finding(Verdict.HOLDS, f"as printed: {in_words(printed)}", numbers)
    evidence = f"as printed: {in_words(printed)}; corrected: {in_words(repaired)}"
    return Finding(Verdict.CORRECTED, evidence, numbers)


def in_words(numbers: Numbers) -> str:
    """A tally as a clause.

    >>> in_words({"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5})
    'no failure in 900 data sets, smallest slack 0.5'
    """
    if numbers["violated"]:
        return (
            f"fails on {numbers['violated']} of {numbers['tested']} data sets, "
            f"{number(numbers['left'])} against {number(numbers['right'])}"
        )
    slack = max(numbers["slack"], 0.0)  # what is below is rounding, else it were a failure
    return f"no failure in {numbers['tested']} data sets, smallest slack {number(slack)}"


def by_hand(*pairs: tuple[Any, Any]) -> float:
    """How far code is from what was worked out by hand, as a plain number: relative, at worst.

    Many data sets on which a statement is true do not tell whether the code computes the
    statement: both sides may be wrong alike, or a bound too generous.

    >>> by_hand((2.0, 2.0), ([1.0, 3.0], [1.0, 2.0])), by_hand((float("nan"), 1.0))
    (0.5, 1000000.0)
    """
    worst = 0.0
    for computed, expected in pairs:
        found, wanted = (np.asarray(side, dtype=np.float64) for side in (computed, expected))
        error = (np.abs(found - wanted) / np.where(wanted == 0, 1.0, np.abs(wanted))).max()
        worst = max(worst, float(error) if error <= 1e6 else 1e6)
    return worst


def worked(judge: Judge) -> Judge:
    """A judge that says nothing where the code misses the case worked by hand, `hand_error`.

    >>> clean = {"tested": 900, "violated": 0, "left": 1.0, "right": 1.5, "slack": 0.5}
    >>> [worked(judge_statement)(clean | {"hand_error": e}).verdict.value for e in (0.0, 0.5)]
    ['holds', 'open']
    """

    @wraps(judge)
    def checked(numbers: Numbers) -> Finding:
        found, error = judge(numbers), float(numbers["hand_error"])
        if error <= SAME:
            return found
        why = f"the code misses a case worked by hand by {number(error)}; else {found.evidence}"
        return Finding(Verdict.OPEN, why, found.numbers)

    return checked


def largest(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The largest absolute value, as a plain number.

    >>> largest([0.5, -2.0])
    2.0
    """
    return float(np.abs(np.asarray(values, dtype=np.float64)).max())


def _flat(both: Inequality, name: str) -> NDArray[Any]:
    value = np.asarray(getattr(both, name))
    return np.broadcast_to(value, np.asarray(both.slack).shape).ravel()
