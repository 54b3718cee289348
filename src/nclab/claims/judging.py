"""From numbers of several seeds to a verdict: effects with intervals beside a margin.

Every empirical claim is a list of parts. A part names its estimand, in the units of the paper's
figure and signed so that the claim says "above the margin", with one value for each seed; the
same seed draws data, start and batch order for all arms, so that differences are paired. The
verdict of a claim is that of its weakest part, whose name is said; a part that was nowhere measured
leaves what the others reproduce undecided, and is named, too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.verdict import Finding, Verdict
from nclab.text import counted, number

LEVEL = 0.95
"""Of the intervals, for all parts of one claim together."""
HALF = 0.5
"""Of the seeds: what happens in more of them happens."""
SAME = 1e-12
"""Of the largest value: values that differ by no more are equal."""
WEAKEST = (
    Verdict.CONTRADICTED,
    Verdict.NO_EFFECT,
    Verdict.UNDECIDED,
    Verdict.REPRODUCED,
)
"""From the weakest to the strongest."""


class Part(NamedTuple):
    """One thing that a claim says: that a quantity lies above a margin."""

    what: str
    """Where: a step of weight decay, a layer."""
    values: Mapping[int, float]
    """By seed; signed so that the claim says that they are large. Empty: nowhere measured."""
    step: float = 0.0
    """Values are whole multiples of it, such as layers; what that hides widens their interval."""
    items: int = 0
    """Where values are shares: of so many things in all seeds together. An interval is at least as
    wide as the exact one of that many independent things, whatever the spread over seeds."""
    ends: tuple[float, float] = (-1.0, 1.0)
    """The values of such shares where it never happens and where it always does."""
    margin: float | None = None
    """Its own, where the parts of a claim have different units."""


class Share(NamedTuple):
    """One thing that a claim says of every run: that something happens."""

    what: str
    happened: Mapping[int, bool]
    """By seed. Empty: nowhere measured."""


@dataclass(frozen=True)
class Effect:
    """An estimate over seeds with its interval, beside the margin below which nobody would care."""

    what: str
    estimate: float
    low: float | None
    """None where one seed says nothing of the others."""
    high: float | None
    margin: float
    seeds: int
    verdict: Verdict
    stated: bool = False
    """Whether the margin is a size that the source itself states; see `decide`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `stated` only where it is so."""
        plain = {**asdict(self), "verdict": self.verdict.value}
        return plain if self.stated else {k: v for k, v in plain.items() if k != "stated"}


def t_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Student's interval of the mean; None for a single value.

    >>> low, high = t_interval([0.0, 1.0])
    >>> round(low, 3), round(high, 3)
    (-5.853, 6.853)
    """
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return None
    middle = math.fsum(values) / n
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    reach = float(t.ppf((1 + level) / 2, n - 1)) * error
    return middle - reach, middle + reach


def share_interval(happened: int, of: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a share.

    >>> [round(end, 3) for end in share_interval(8, 8)]
    [0.631, 1.0]
    """
    from scipy.stats import beta

    side = (1 - level) / 2
    low = float(beta.ppf(side, happened, of - happened + 1)) if happened else 0.0
    high = float(beta.ppf(1 - side, happened + 1, of - happened)) if happened < of else 1.0
    return low, high


def decide(
    low: float | None, high: float | None, margin: float, *, stated: bool = False
) -> Verdict:
    """The verdict of one interval: where it lies beside ± the margin.

    Args:
        stated: the margin is a size that the source itself states ("with very few exceptions"), not
            one below which nobody would care. Then an effect that is there, but surely smaller,
            contradicts it.

    >>> decide(0.2, 0.4, 0.1).value, decide(-0.4, -0.2, 0.1).value
    ('reproduced', 'contradicted')
    >>> decide(-0.05, 0.05, 0.1).value, decide(0.0, 0.4, 0.1).value, decide(None, None, 0.1).value
    ('no effect', 'undecided', 'undecided')
    >>> [decide(low, 0.4, 0.8, stated=True).value for low in (-0.2, 0.2)]
    ['no effect', 'contradicted']
    """
    if low is None or high is None:
        return Verdict.UNDECIDED
    if low > margin:
        return Verdict.REPRODUCED
    if high < -margin or (stated and (high < 0 or (low > 0 and high < margin))):
        return Verdict.CONTRADICTED
    return Verdict.NO_EFFECT if low >= -margin and high <= margin else Verdict.UNDECIDED


def judge_effects(
    parts: Iterable[Part],
    *,
    margin: float,
    unit: str = "",
    stated: bool = False,
    where_converged: bool = False,
    chosen_of: int = 1,
) -> Finding:
    """The parts of a claim about sizes, each with its simultaneous interval; see `decide`.

    Args:
        chosen_of: the parts were chosen by their values among so many, over all of which the
            intervals are then simultaneous.
        where_converged: the source itself speaks only of where training converges ("within the
            range of convergence"), so that a part without converged runs is outside of its
            sentence and is not missed.

    >>> step = Part("1e-4 to 1e-3", {seed: 0.3 + 0.01 * seed for seed in range(8)})
    >>> finding = judge_effects([step], margin=0.01)
    >>> finding.verdict.value, finding.evidence
    ('reproduced', '1e-4 to 1e-3: 0.335 [0.3145, 0.3555], margin 0.01, 8 seeds')
    """
    every = list(parts)
    missing = [] if where_converged else [part.what for part in every if not part.values]
    effects = _effects(every, margin, stated=stated, chosen_of=chosen_of)
    return weakest(effects, missing=missing, unit=unit)


def judge_choices(choices: Mapping[str, Sequence[Part | Share]], *, margin: float) -> Finding:
    """A claim whose source leaves a choice or its reading open, judged for every choice alike.

    Reproduced where every choice reproduces it, contradicted where every choice contradicts it;
    else the verdict is a matter of the choice, and undecided. Intervals are simultaneous over all
    parts of all choices.

    >>> up, down = (Part("rise", {s: sign + 0.01 * s for s in range(8)}) for sign in (1, -1))
    >>> judge_choices({"size 1": [down], "size 2": [down]}, margin=0.0).verdict.value
    'contradicted'
    >>> found = judge_choices({"size 1": [up], "size 2": [down]}, margin=0.0)
    >>> found.verdict.value, found.numbers["choices"]
    ('undecided', {'size 1': 'reproduced', 'size 2': 'contradicted'})
    """
    named: dict[str, list[Part | Share]] = {
        choice: [part._replace(what=f"{choice}, {part.what}") for part in parts]
        for choice, parts in choices.items()
    }
    every = [part for parts in named.values() for part in parts]
    effects = _effects(every, margin)
    missing = [part.what for part in every if not part[1]]
    found = weakest(effects, missing=missing)
    if not effects:
        return Finding(found.verdict, found.evidence, {**found.numbers, "choices": {}})
    own = {choice: {part.what for part in parts} for choice, parts in named.items()}
    verdicts = {
        choice: weakest(
            [one for one in effects if one.what in names],
            missing=[what for what in missing if what in names],
        ).verdict
        for choice, names in own.items()
    }
    same = len(set(verdicts.values())) == 1
    verdict = next(iter(verdicts.values())) if same else Verdict.UNDECIDED
    said = "; ".join(
        f"{one.value} at {', '.join(c for c, v in verdicts.items() if v is one)}"
        for one in dict.fromkeys(verdicts.values())
    )
    numbers = {**found.numbers, "choices": {c: one.value for c, one in verdicts.items()}}
    return Finding(verdict, f"{said}; {found.evidence}", numbers)


def _effects(
    parts: Iterable[Part | Share], margin: float, *, stated: bool = False, chosen_of: int = 1
) -> list[Effect]:
    """Every part that was measured, with an interval that is simultaneous over all of them."""
    known = [part for part in parts if part[1]]
    level = 1 - (1 - LEVEL) / max(chosen_of, len(known))
    return [
        _share(part, level) if isinstance(part, Share) else _effect(part, level, margin, stated)
        for part in known
    ]


def _effect(part: Part, level: float, margin: float, stated: bool) -> Effect:
    """The mean over seeds with Student's interval, wider where values are rounded or shares."""
    values = list(part.values.values())
    if not all(map(math.isfinite, values)):
        raise ValueError(f"Expected finite numbers, got {values} for {part.what}.")
    if part.items and not (part.ends[0] <= min(values) and max(values) <= part.ends[1]):
        raise ValueError(f"Expected shares within {part.ends}, got {values} for {part.what}.")
    middle = math.fsum(values) / len(values)
    low, high = t_interval(values, level) or (None, None)
    alike = not _tell(values)
    if alike and not part.items:
        low = high = None
    if low is not None and high is not None:
        low, high = low - part.step / 2, high + part.step / 2
        if part.items:
            never, always = part.ends
            things = len(values) if alike else part.items  # equal seeds may be one thing each
            happened = round(things * (middle - never) / (always - never))
            exact = share_interval(happened, things, level)
            ends = [never + (always - never) * end for end in exact]
            low, high = min(low, ends[0]), max(high, ends[1])
    own = margin if part.margin is None else part.margin
    verdict = decide(low, high, own, stated=stated)
    return Effect(part.what, middle, low, high, own, len(values), verdict, stated)


def _tell(values: Sequence[float]) -> bool:
    """Whether the spread over seeds says something: equal values do where as many seeds would
    decide a share, which six do."""
    spread = max(values) - min(values)
    alike = spread <= SAME * max(map(abs, values))
    return not alike or share_interval(len(values), len(values))[0] > HALF


def _share(part: Share, level: float) -> Effect:
    """How far the share of the seeds is from one half, with its exact interval."""
    count, seeds = sum(part.happened.values()), len(part.happened)
    low, high = (end - HALF for end in share_interval(count, seeds, level))
    return Effect(part.what, count / seeds - HALF, low, high, 0.0, seeds, decide(low, high, 0.0))


def judge_shares(parts: Iterable[Share]) -> Finding:
    """The parts of a claim about what happens: in more than half of all seeds, by exact intervals.

    Shares are centred: the estimate is the share minus one half, and the margin is zero.

    >>> judge_shares([Share("1e-2", dict.fromkeys(range(8), True))]).verdict.value
    'reproduced'
    >>> judge_shares([Share("1e-2", dict.fromkeys(range(4), True))]).verdict.value
    'undecided'
    """
    every = list(parts)
    missing = [part.what for part in every if not part.happened]
    return weakest(_effects(every, 0.0), missing=missing, unit="of the seeds beyond one half")


def weakest(effects: Sequence[Effect], *, missing: Sequence[str] = (), unit: str = "") -> Finding:
    """The verdict of the weakest part, named, with all parts as numbers; open if there is none.

    Args:
        missing: the parts that were nowhere measured. What the others reproduce is undecided then;
            what one of them contradicts stays contradicted, as a claim is about all its parts.
    """
    if not effects:
        return Finding(Verdict.OPEN, "nothing to compare: no converged runs", {"effects": []})
    worst = min(effects, key=lambda one: (WEAKEST.index(one.verdict), one.estimate - one.margin))
    every = len(effects) + len(missing)
    holding = sum(one.verdict is Verdict.REPRODUCED for one in effects)
    verdict, evidence = worst.verdict, in_words(worst, unit)
    if every > 1:
        evidence = f"{holding} of {every} parts; the weakest, {evidence}"
    numbers: dict[str, Any] = {
        "effects": [one.to_dict() for one in effects],
        "estimate": worst.estimate,
        "interval": [worst.low, worst.high],
        "margin": worst.margin,
        "seeds": worst.seeds,
        "weakest": worst.what,
    }
    if missing:
        evidence = f"{evidence}; nowhere measured: {', '.join(missing)}"
        numbers["missing"] = list(missing)
        if verdict is Verdict.REPRODUCED:
            verdict = Verdict.UNDECIDED
    return Finding(verdict, evidence, numbers)


def in_words(effect: Effect, unit: str = "") -> str:
    """An effect as a clause."""
    ends = "without an interval"
    if effect.low is not None:
        ends = f"[{number(effect.low)}, {number(effect.high)}]"
    return (
        f"{effect.what}: {number(effect.estimate)}{f' {unit}' if unit else ''} {ends}, "
        f"margin {number(effect.margin)}, {counted(effect.seeds, 'seed')}"
    )
