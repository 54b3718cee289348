"""Verdicts on empirical claims: effects over seeds, their intervals, and margins.

An empirical claim is a list of parts. A part is a quantity in the units of the paper's figure,
signed such that the claim says "above the margin", with one value per seed. A seed fixes data,
initial weights and batch order for all arms of a comparison, so differences are paired. The verdict
of a claim is that of its weakest part. If a part was never measured, a claim whose other parts are
reproduced is undecided.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.claim import Finding, Verdict
from nclab.text import counted, number

LEVEL = 0.95
"""Confidence level of the intervals, simultaneously for all parts of a claim."""
HALF = 0.5
"""Share of the seeds above which an event counts as happening."""
EQUAL = 1e-12
"""Relative difference up to which values of different seeds count as equal."""
WEAKEST_FIRST = (
    Verdict.CONTRADICTED,
    Verdict.NO_EFFECT,
    Verdict.UNDECIDED,
    Verdict.REPRODUCED,
)
"""Verdicts of effects from the weakest to the strongest."""


class Part(NamedTuple):
    """A quantity that a claim says lies above a margin."""

    name: str
    """Quantity and setting, such as a step of weight decay or a layer."""
    values: Mapping[int, float]
    """Value by seed; empty if the quantity was never measured."""
    step: float = 0.0
    """Resolution of the values, such as 1 for layers; the interval is widened by it."""
    trials: int = 0
    """For shares: number of counted cases over all seeds; 0 for other quantities. The interval is
    at least as wide as the exact interval of this many independent cases."""
    share_range: tuple[float, float] = (-1.0, 1.0)
    """For shares: the values that mean 0 % and 100 %."""
    margin: float | None = None
    """Margin of this part; by default that of the claim."""


class Share(NamedTuple):
    """An event that a claim says happens in most seeds."""

    name: str
    happened: Mapping[int, bool]
    """Whether the event happened, by seed; empty if it was never observed."""


@dataclass(frozen=True)
class Effect:
    """An estimate over seeds, its interval, its margin, and the resulting verdict."""

    name: str
    estimate: float
    low: float | None
    """Lower end of the interval; None if there is no interval, as with a single seed."""
    high: float | None
    margin: float
    seeds: int
    verdict: Verdict
    stated: bool = False
    """Whether the source itself states the margin; see `decide`."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the name has the key `what`, and `stated` appears if true."""
        fields = asdict(self)
        plain = {"what": fields.pop("name"), **fields, "verdict": self.verdict.value}
        return plain if self.stated else {k: v for k, v in plain.items() if k != "stated"}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Effect":
        """Return the effect that `to_dict` wrote."""
        fields = {key: value for key, value in plain.items() if key != "what"}
        return cls(plain["what"], **{**fields, "verdict": Verdict(plain["verdict"])})


def t_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return Student's interval of the mean; None for a single value."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half_width = float(t.ppf((1 + level) / 2, n - 1)) * standard_error
    return mean - half_width, mean + half_width


def share_interval(happened: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Clopper and Pearson's exact interval of a share.

    >>> [round(end, 3) for end in share_interval(8, 8)]
    [0.631, 1.0]
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, happened, trials - happened + 1)) if happened else 0.0
    high = float(beta.ppf(1 - tail, happened + 1, trials - happened)) if happened < trials else 1.0
    return low, high


def decide(
    low: float | None, high: float | None, margin: float, *, stated: bool = False
) -> Verdict:
    """Return the verdict of an interval relative to ± the margin.

    Args:
        stated: the source itself states the margin as a size ("with very few exceptions"). An
            effect of the right sign that is certainly smaller then contradicts the claim. By
            default the margin is the smallest effect of interest.

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
    """Judge a claim about the sizes of effects, with simultaneous intervals for its parts.

    Args:
        unit: unit of the values, printed after the estimate.
        stated: as for `decide`.
        where_converged: the source limits its statement to converged training ("within the range
            of convergence"), so parts without converged runs are not part of the claim.
        chosen_of: number of parts from which these were selected by their values; the intervals
            are simultaneous over all of them.

    >>> step = Part("1e-4 to 1e-3", {seed: 0.3 + 0.01 * seed for seed in range(8)})
    >>> finding = judge_effects([step], margin=0.01)
    >>> finding.verdict.value, finding.evidence
    ('reproduced', '1e-4 to 1e-3: 0.335 (95 % interval 0.3145 to 0.3555, margin 0.01, 8 seeds)')
    """
    parts = list(parts)
    missing = [] if where_converged else [part.name for part in parts if not part.values]
    effects = _effects(parts, margin, stated=stated, chosen_of=chosen_of)
    return weakest(effects, parts, missing=missing, unit=unit)


def judge_shares(parts: Iterable[Share]) -> Finding:
    """Judge a claim that events happen in more than half of all seeds, by exact intervals.

    The estimate of an effect is the share of the seeds minus one half, and its margin is zero.

    >>> finding = judge_shares([Share("training fails", dict.fromkeys(range(8), True))])
    >>> finding.verdict.value, finding.evidence
    ('reproduced', 'training fails: 8 of 8 seeds (95 % interval 63 % to 100 %, needed: over 50 %)')
    """
    parts = list(parts)
    missing = [part.name for part in parts if not part.happened]
    return weakest(_effects(parts, 0.0), parts, missing=missing)


def judge_choices(choices: Mapping[str, Sequence[Part | Share]], *, margin: float) -> Finding:
    """Judge a claim whose source is ambiguous, separately for every possible choice.

    The claim is reproduced if every choice reproduces it and contradicted if every choice
    contradicts it; otherwise it is undecided. Intervals are simultaneous over all parts of all
    choices.
    """
    parts_by_choice: dict[str, list[Part | Share]] = {
        choice: [part._replace(name=f"{choice}, {part.name}") for part in parts]
        for choice, parts in choices.items()
    }
    parts = [part for members in parts_by_choice.values() for part in members]
    effects = _effects(parts, margin)
    missing = [part.name for part in parts if not part[1]]
    overall = weakest(effects, parts, missing=missing)
    if not effects:
        return Finding(overall.verdict, overall.evidence, {**overall.numbers, "choices": {}})
    verdicts = {}
    for choice, members in parts_by_choice.items():
        names = {part.name for part in members}
        verdicts[choice] = weakest(
            [effect for effect in effects if effect.name in names],
            missing=[name for name in missing if name in names],
        ).verdict
    distinct = list(dict.fromkeys(verdicts.values()))
    verdict = distinct[0] if len(distinct) == 1 else Verdict.UNDECIDED
    listing = "; ".join(
        f"{each.value} for {', '.join(c for c, v in verdicts.items() if v is each)}"
        for each in distinct
    )
    numbers = {**overall.numbers, "choices": {c: v.value for c, v in verdicts.items()}}
    return Finding(verdict, f"{listing}; {overall.evidence}", numbers)


def _effects(
    parts: Iterable[Part | Share], margin: float, *, stated: bool = False, chosen_of: int = 1
) -> list[Effect]:
    """Return the effects of all measured parts, with simultaneous intervals."""
    measured = [part for part in parts if part[1]]
    level = 1 - (1 - LEVEL) / max(chosen_of, len(measured))
    return [
        _share_effect(part, level)
        if isinstance(part, Share)
        else _size_effect(part, level, margin, stated)
        for part in measured
    ]


def _size_effect(part: Part, level: float, margin: float, stated: bool) -> Effect:
    """Return the mean over seeds with Student's interval, widened for rounded values and shares."""
    values = list(part.values.values())
    if not all(map(math.isfinite, values)):
        raise ValueError(f"Expected finite values of every seed for {part.name}, got {values}.")
    never, always = part.share_range
    if part.trials and not (never <= min(values) and max(values) <= always):
        raise ValueError(
            f"Expected shares within {part.share_range}, got {values} for {part.name}."
        )
    mean = math.fsum(values) / len(values)
    low, high = t_interval(values, level) or (None, None)
    informative = _has_informative_spread(values)
    if not informative and not part.trials:
        low = high = None
    if low is not None and high is not None:
        low, high = low - part.step / 2, high + part.step / 2
        if part.trials:
            # Seeds with equal values may all repeat one case.
            trials = part.trials if informative else len(values)
            happened = round(trials * (mean - never) / (always - never))
            exact = share_interval(happened, trials, level)
            exact_low, exact_high = (never + (always - never) * end for end in exact)
            low, high = min(low, exact_low), max(high, exact_high)
    margin = margin if part.margin is None else part.margin
    verdict = decide(low, high, margin, stated=stated)
    return Effect(part.name, mean, low, high, margin, len(values), verdict, stated)


def _has_informative_spread(values: Sequence[float]) -> bool:
    """Whether the values of the seeds permit an interval.

    Equal values permit an interval from six seeds on, the number at which a share of 100 % is
    decided.
    """
    spread = max(values) - min(values)
    equal = spread <= EQUAL * max(map(abs, values))
    return not equal or share_interval(len(values), len(values))[0] > HALF


def _share_effect(part: Share, level: float) -> Effect:
    """Return the share of the seeds minus one half, with its exact interval."""
    count, seeds = sum(part.happened.values()), len(part.happened)
    low, high = (end - HALF for end in share_interval(count, seeds, level))
    return Effect(part.name, count / seeds - HALF, low, high, 0.0, seeds, decide(low, high, 0.0))


def weakest(
    effects: Sequence[Effect],
    parts: Sequence[Part | Share] = (),
    *,
    missing: Sequence[str] = (),
    unit: str = "",
) -> Finding:
    """Return the verdict of the weakest effect, with all effects as numbers; open without effects.

    Args:
        parts: the parts behind the effects, from which shares are printed in per cent.
        missing: names of parts that were never measured. They turn a reproduced claim into an
            undecided one; a contradicted claim stays contradicted.
        unit: unit of the values, printed after the estimate.
    """
    if not effects:
        return Finding(Verdict.OPEN, "nothing to compare: no converged runs", {"effects": []})
    worst = weakest_effect(effects)
    count = len(effects) + len(missing)
    reproduced = sum(effect.verdict is Verdict.REPRODUCED for effect in effects)
    part = next((part for part in parts if part.name == worst.name), None)
    verdict, evidence = worst.verdict, describe_effect(worst, part, unit)
    if count > 1:
        evidence = f"{reproduced} of {count} parts reproduced; the weakest is {evidence}"
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
        numbers["missing"] = list(missing)
        if verdict is Verdict.REPRODUCED:
            verdict = Verdict.UNDECIDED
    return Finding(verdict, evidence, numbers)


def weakest_effect(effects: Iterable[Effect]) -> Effect:
    """Return the effect with the weakest verdict, and of these the one closest to its margin."""
    return min(effects, key=lambda e: (WEAKEST_FIRST.index(e.verdict), e.estimate - e.margin))


def describe_effect(effect: Effect, part: Part | Share | None = None, unit: str = "") -> str:
    """Return an effect as a clause; the effect of a `Share` or of shares in per cent."""
    seeds = counted(effect.seeds, "seed")
    if isinstance(part, Share):
        happened = round(effect.seeds * (effect.estimate + HALF))
        estimate = f"{happened} of {seeds}"
        needed = [f"needed: over {HALF:.0%}".replace("%", " %")]
        never, always = -HALF, HALF
    elif part is not None and part.trials:
        never, always = part.share_range
        share, least = ((x - never) / (always - never) for x in (effect.estimate, effect.margin))
        estimate = f"{100 * share:.0f} %"
        needed = [f"needed: over {100 * least:.0f} %", seeds]
    else:
        estimate = f"{number(effect.estimate)}{f' {unit}' if unit else ''}"
        needed = [f"margin {number(effect.margin)}", seeds]
        never, always = 0.0, 0.0
    if effect.low is None or effect.high is None:
        interval = "no interval"
    elif always > never:
        low, high = (100 * (x - never) / (always - never) for x in (effect.low, effect.high))
        interval = f"95 % interval {low:.0f} % to {high:.0f} %"
    else:
        interval = f"95 % interval {number(effect.low)} to {number(effect.high)}"
    return f"{effect.name}: {estimate} ({', '.join([interval, *needed])})"
