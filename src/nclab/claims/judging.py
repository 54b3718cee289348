"""Verdicts on empirical claims, from the effects of their parts, settings and readings.

An empirical claim is a list of parts. A part is a quantity in the units of the paper's figure with
one value per seed, and the range in which the claim says it lies. A seed fixes data, initial
weights and batch order for all arms of a comparison, so differences are paired.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist, stdev
from typing import Any

from nclab.claims.claim import DECIDED, Finding, Verdict
from nclab.claims.effects import TAIL, Effect, Part, Share, effect_of
from nclab.text import counted

MOST_SETTINGS = 0.9
"""Share of the settings that must be decided, and agree, for a verdict on all settings."""
POWER = 0.8
"""Probability of a decision that counts as "probably" in a number of further seeds."""
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
            contradict it; the corrections are exchanged.
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
    """Add other readings of a claim, which have no veto, to the finding of its primary reading.

    Args:
        readings: findings by reading, named such that "if <name>" is a clause.
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
    sufficient: list[float] = []
    needed: list[float] = []
    for effect, is_enough in zip(effects, deciding, strict=True):
        if effect.verdict is Verdict.UNDECIDED:
            seeds = seeds_needed(effect, TAIL / corrected_for if is_enough else TAIL)
            (sufficient if is_enough else needed).append(max(seeds - effect.seeds, 1))
    more = min(sufficient) if sufficient else max(needed, default=0)
    return int(more) if math.isfinite(more) else 0


def seeds_needed(effect: Effect, tail: float = TAIL) -> float:
    """Return the number of seeds that would probably decide an effect of this size and spread.

    The median of n values has a standard error of about 1.25 standard deviations over the root
    of n. The ends of an interval of whole numbers move in steps instead. If one of them lies within
    half a step of the margin, the number is unknown, and infinity is returned.
    """
    fewest = math.ceil(-math.log2(tail))
    margin = effect.margin if effect.above is None or effect.below is None else 0.0
    edges = [edge for edge in (effect.above, effect.below) if edge is not None]
    bounds = [edge + sign * margin for edge in edges for sign in (-1, 1)]
    if len(effect.values) < 2:
        return fewest
    half_step = effect.step / 2
    distance = min(abs(effect.estimate - bound) for bound in bounds) - half_step
    if distance <= 0:
        return MOST_SEEDS + effect.seeds + 1
    if not (spread := stdev(effect.values)):
        return fewest
    if half_step and effect.low is not None and effect.high is not None:
        ends = effect.low + half_step, effect.high - half_step
        if any(abs(end - bound) <= half_step for end in ends for bound in bounds):
            return math.inf
    z = NormalDist().inv_cdf(1 - tail) + NormalDist().inv_cdf(POWER)
    return max(fewest, math.ceil(math.pi / 2 * (z * spread / distance) ** 2))


def weakest_effect(effects: Iterable[Effect], *, strongest: bool = False) -> Effect:
    """Return the effect with the weakest verdict, and of these the one least inside its range."""
    pick = max if strongest else min
    return pick(effects, key=lambda e: (WEAKEST_FIRST.index(e.verdict), e.beyond(e.estimate)))


def _corrected(parts: Sequence[Part | Share], margin: float, one_is_enough: bool) -> list[Effect]:
    """Return the effects of measured parts, corrected by the rule of Hochberg (1988).

    If j of k parts have a verdict of which one is enough to decide the claim, their intervals are
    corrected for k - j + 1 parts. A part without such a verdict has a plain interval.
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
    """Return estimate, interval, margin and seeds of the finding with the middle estimate."""
    known = [finding for finding in findings if finding.numbers.get("seeds")]
    known.sort(key=lambda finding: float(finding.numbers["estimate"]))
    keys = ("estimate", "interval", "margin", "seeds")
    return {key: known[len(known) // 2].numbers[key] for key in keys} if known else {}


def _answer(effect: Effect, template: str) -> str:
    """Return the sentence of a claim with the numbers of an effect."""
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
