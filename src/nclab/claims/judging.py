"""Verdicts on empirical claims, from the effects of their parts, settings and readings.

An empirical claim is a list of parts. A part is a quantity in the units of the paper's figure with
one value per seed, and the range in which the claim says it lies. A seed fixes data, initial
weights and batch order for all arms of a comparison, so differences are paired.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nclab.claims.claim import DECIDED, Finding, Verdict
from nclab.claims.effects import TAIL, Effect, Part, Share, decide, effect_of, intervals_of
from nclab.text import counted

MOST_SETTINGS = 0.9
"""Smallest share of decided settings for a verdict on the claim; they must also agree."""
POWER = 0.8
"""A number of seeds "probably" decides an effect if it does so with at least this probability."""
DRAWS = 200
"""Number of simulations from which this probability is estimated."""
MOST_SEEDS = 100
"""Number of further seeds above which an effect counts as too close to its margin to settle."""
WEAKEST_FIRST = (
    Verdict.CONTRADICTED,
    Verdict.NO_EFFECT,
    Verdict.UNDECIDED,
    Verdict.REPRODUCED,
)
"""Verdicts of effects from the weakest to the strongest."""


def judge_effects(
    parts: Iterable[Part | Share],
    *,
    margin: float = 0.0,
    answer: str = "",
    one_is_enough: bool = False,
) -> Finding:
    """Judge a claim about the sizes of effects.

    Every part must be reproduced, each by its own 95 % interval; this keeps the error of a wrong
    "reproduced" below 2.5 % for any number of parts. One part is enough to contradict the claim or
    to find no effect, so these verdicts use intervals that are corrected for the number of parts.

    Args:
        answer: sentence that states the result; `{estimate}`, `{interval}`, `{needed}`, `{what}`
            and `{seeds}` are replaced by those of the weakest part.
        one_is_enough: one reproduced part reproduces the claim, and all must be contradicted to
            contradict it. The intervals of reproduced parts are then the corrected ones.
    """
    parts = list(parts)
    measured = [part for part in parts if part[1]]
    missing = [part.name for part in parts if not part[1]]
    effects = _corrected(measured, margin, one_is_enough)
    if not effects:
        return Finding(Verdict.OPEN, "nothing to compare: no converged runs", {"effects": []})
    worst = weakest_effect(effects, strongest=one_is_enough)
    verdict, evidence = worst.verdict, worst.describe()
    if len(parts) > 1:
        reproduced = sum(effect.verdict is Verdict.REPRODUCED for effect in effects)
        which = "strongest" if one_is_enough else "weakest"
        evidence = f"{reproduced} of {len(parts)} parts reproduced; the {which} is {evidence}"
    numbers: dict[str, Any] = {
        "effects": [effect.to_dict() for effect in effects],
        "estimate": worst.estimate,
        "interval": [worst.low, worst.high],
        "margin": worst.margin,
        "seeds": worst.seeds,
        "weakest": worst.name,
    }
    if missing:
        evidence = f"{evidence}; not measured: {', '.join(missing)}"
        numbers["missing"] = missing
        if verdict is Verdict.REPRODUCED and not one_is_enough:
            verdict = Verdict.UNDECIDED
    if verdict is Verdict.UNDECIDED and (more := further_seeds(effects, one_is_enough)):
        numbers["more_seeds"] = more if more <= MOST_SEEDS else None
        evidence = f"{evidence}; {_describe_more(more)}"
    return Finding(verdict, evidence, numbers, _answer(worst, answer))


def judge_settings(settings: Mapping[str, Finding], answer: str = "") -> Finding:
    """Judge a claim whose source leaves a choice open, from the findings of all settings.

    The claim takes a verdict if at least 90 % of the settings are decided and all of those agree.
    Otherwise the verdict depends on the setting.

    Args:
        answer: what the settings are about, such as "the curve falls like 1/log t".
    """
    verdicts = {name: finding.verdict for name, finding in settings.items()}
    decided = {verdict for verdict in verdicts.values() if verdict in DECIDED}
    share = sum(verdict in DECIDED for verdict in verdicts.values()) / max(len(verdicts), 1)
    if not decided:
        open_ = all(verdict is Verdict.OPEN for verdict in verdicts.values())
        verdict = Verdict.OPEN if open_ else Verdict.UNDECIDED
    elif len(decided) == 1 and share >= MOST_SETTINGS:
        [verdict] = decided
    else:
        verdict = Verdict.DEPENDS
    split = describe_split(verdicts)
    candidates = [finding for finding in settings.values() if finding.verdict is verdict]
    shown = candidates or list(settings.values())
    numbers = {
        "effects": [
            {**effect, "what": f"{name}, {effect['what']}"}
            for name, finding in settings.items()
            for effect in finding.numbers["effects"]
        ],
        **dict.fromkeys(("estimate", "interval", "margin", "seeds")),
        **(_headline(shown) if shown else {}),
        "choices": {name: verdict.value for name, verdict in verdicts.items()},
        "split": split,
    }
    sentence = f"{answer}: {split}." if answer else f"{split[:1].upper()}{split[1:]}."
    return Finding(verdict, split, numbers, sentence)


def describe_split(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many settings have each verdict, with the names of up to three settings.

    >>> settings = {f"start {n}": Verdict.CONTRADICTED for n in range(14)}
    >>> describe_split({**settings, "start 0.01": Verdict.REPRODUCED})
    'contradicted in 14 of 15 settings, reproduced in 1 (start 0.01)'
    """
    by_verdict: dict[Verdict, list[str]] = {}
    for name, verdict in verdicts.items():
        by_verdict.setdefault(verdict, []).append(name)
    clauses: list[str] = []
    for verdict, names in sorted(by_verdict.items(), key=lambda item: -len(item[1])):
        total = f" of {counted(len(verdicts), 'setting')}" if not clauses else ""
        few = len(names) <= 3 and len(by_verdict) > 1
        where = f" ({'; '.join(names)})" if few else ""
        clauses.append(f"{verdict.value} in {len(names)}{total}{where}")
    return ", ".join(clauses)


def with_readings(primary: Finding, readings: Mapping[str, Finding]) -> Finding:
    """Add the findings of other readings (interpretations) of a claim to the primary finding.

    The verdict stays that of the primary reading.

    Args:
        readings: findings by the name of their reading; the text prints "if <name>".
    """
    rows = [
        {
            "reading": name,
            "verdict": finding.verdict.value,
            "evidence": finding.evidence,
            **{key: finding.numbers.get(key) for key in ("estimate", "interval", "seeds")},
        }
        for name, finding in readings.items()
    ]
    differing: dict[Verdict, list[str]] = {}
    for name, finding in readings.items():
        if finding.verdict not in (primary.verdict, Verdict.OPEN):
            differing.setdefault(finding.verdict, []).append(f"if {name}")
    answer = primary.sentence
    if differing:
        clauses = (f"{verdict.value} {' or '.join(names)}" for verdict, names in differing.items())
        first = ". ".join(clause[:1].upper() + clause[1:] for clause in clauses)
        answer = f"{primary.verdict.capitalize()}. {first}. {answer}"
    numbers = {**primary.numbers, "readings": rows}
    return Finding(primary.verdict, primary.evidence, numbers, answer)


def further_seeds(effects: Sequence[Effect], one_is_enough: bool = False) -> int:
    """Return how many more seeds would probably decide a claim.

    Return 0 if no effect is undecided or if the number cannot be computed.
    """
    deciding = [(effect.beyond(effect.estimate) > 0) is one_is_enough for effect in effects]
    corrected_for = len(effects) - sum(deciding) + 1
    sufficient: list[int] = []
    needed: list[int] = []
    for effect, is_enough in zip(effects, deciding, strict=True):
        if effect.verdict is Verdict.UNDECIDED:
            seeds = seeds_needed(effect, TAIL / corrected_for if is_enough else TAIL)
            (sufficient if is_enough else needed).append(max(seeds - effect.seeds, 1))
    return min(sufficient) if sufficient else max(needed, default=0)


def seeds_needed(effect: Effect, tail: float = TAIL) -> int:
    """Return the number of seeds that would probably decide an effect, found by bisection.

    Further seeds are drawn from the recorded values with replacement.
    """
    rng = np.random.default_rng(0)

    def is_probable(seeds: int) -> bool:
        draws = rng.choice(effect.values, (DRAWS, seeds))
        verdicts = [
            decide(low, high, effect.margin, above=effect.above, below=effect.below)
            for low, high in zip(*intervals_of(effect, draws, tail), strict=True)
        ]
        return sum(verdict in DECIDED for verdict in verdicts) >= POWER * DRAWS

    low, high = max(math.ceil(-math.log2(tail)), effect.seeds + 1), effect.seeds + MOST_SEEDS
    if not is_probable(high):
        return high + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_probable(middle) else (middle + 1, high)
    return low


def weakest_effect(effects: Iterable[Effect], *, strongest: bool = False) -> Effect:
    """Return the effect with the weakest verdict; of several, the least deep in its claimed range.

    With `strongest`, return the opposite end of this order.
    """
    pick = max if strongest else min
    return pick(effects, key=lambda e: (WEAKEST_FIRST.index(e.verdict), e.beyond(e.estimate)))


def _corrected(parts: Sequence[Part | Share], margin: float, one_is_enough: bool) -> list[Effect]:
    """Return the effects of measured parts, corrected by the rule of Hochberg (1988).

    Some verdicts decide the claim even if only one part has them. If j of k parts have such a
    verdict, their intervals are corrected for k - j + 1 parts. Other parts have plain intervals.
    """

    def decides(effect: Effect) -> bool:
        reproduced = effect.verdict is Verdict.REPRODUCED
        return effect.verdict in DECIDED and reproduced is one_is_enough

    plain = strict = [effect_of(part, margin) for part in parts]
    for corrected_for in range(2, len(parts) + 1):
        if sum(map(decides, strict)) > len(parts) - corrected_for + 1:
            break
        strict = [effect_of(part, margin, TAIL / corrected_for) for part in parts]
    return [
        effect
        if not decides(effect)
        else corrected
        if corrected.low is not None
        else replace(effect, verdict=Verdict.UNDECIDED)  # too few seeds for the correction
        for effect, corrected in zip(plain, strict, strict=True)
    ]


def _headline(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return estimate, interval, margin and seeds of the finding whose estimate is the median."""
    known = [finding for finding in findings if finding.numbers.get("seeds")]
    known.sort(key=lambda finding: float(finding.numbers["estimate"]))
    keys = ("estimate", "interval", "margin", "seeds")
    return {key: known[len(known) // 2].numbers[key] for key in keys} if known else {}


def _answer(effect: Effect, template: str) -> str:
    """Return the answer to a claim as a sentence: the template with the numbers of an effect."""
    if not template:
        clauses = {"seeds": "{what} in {estimate}", "%": "{estimate} of {what}"}
        template = clauses.get(effect.unit, "the {what} is {estimate}")
        template += " ({interval}); the claim needs {needed}."
    return template.format(
        what=effect.name,
        estimate=effect.in_unit(effect.estimate),
        interval=effect.interval,
        needed=effect.needed,
        seeds=counted(effect.seeds, "seed"),
    )


def _describe_more(more: int) -> str:
    """Return how many more seeds would probably settle a claim."""
    if more > MOST_SEEDS:
        return "too close to the margin to settle"
    verb = "settles" if more == 1 else "settle"
    return f"probably {counted(more, 'more seed')} {verb} it"
