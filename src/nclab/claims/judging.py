"""Verdicts on empirical claims: effects over seeds, their intervals, and margins.

An empirical claim is a list of parts. A part is a quantity in the units of the paper's figure with
one value per seed, and the range in which the claim says it lies. A seed fixes data, initial
weights and batch order for all arms of a comparison, so differences are paired.

The estimate of a part is the median over seeds. Its interval comes from the sorted values alone, so
skewed values do not make it too narrow (`docs/design/judgements.md` has the simulation).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, median, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nclab.claims.claim import DECIDED, Finding, Verdict
from nclab.text import counted, number

TAIL = 0.025
"""Probability that the truth lies beyond one end of a 95 % interval."""
FEWEST_SEEDS = 6
"""Fewest seeds of a decision: the smallest number whose values have a 95 % interval."""
HALF = 0.5
"""Share of the seeds above which an event counts as happening."""
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


class Part(NamedTuple):
    """A quantity that a claim says lies above a value, below a value, or between two values."""

    name: str
    """Quantity and setting, such as a step of weight decay or a layer."""
    values: Mapping[int, float]
    """Value by seed; empty if the quantity was never measured."""
    above: float | None = None
    """Value that the quantity exceeds according to the claim."""
    below: float | None = None
    """Value that the quantity stays below according to the claim."""
    margin: float | None = None
    """Margin of this part; by default that of the claim."""
    step: float = 0.0
    """Resolution of the values, such as 1 for layers; half of it widens the interval."""
    unit: str = ""
    """Unit of the values; "%" prints shares in per cent."""


class Share(NamedTuple):
    """An event that a claim says happens in more than half of all seeds."""

    name: str
    happened: Mapping[int, bool]
    """Whether the event happened, by seed; empty if it was never observed."""


@dataclass(frozen=True)
class Effect:
    """An estimate over seeds, its interval, the claimed range, and the resulting verdict."""

    name: str
    estimate: float
    low: float | None
    """Lower end of the interval; None with fewer than six seeds."""
    high: float | None
    above: float | None
    """Value that the quantity exceeds according to the claim, if any."""
    below: float | None
    """Value that the quantity stays below according to the claim, if any."""
    margin: float
    seeds: int
    verdict: Verdict
    unit: str = ""
    values: tuple[float, ...] = ()
    """Values of the seeds; not part of the written numbers."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the name has the key `what`, and absent entries are left out.

        `beyond` has the estimate and the ends of the interval relative to the edge of the claimed
        range, positive where the claim is right.
        """
        fields = asdict(self)
        del fields["values"]
        plain = {"what": fields.pop("name"), **fields, "verdict": self.verdict.value}
        absent = [key for key in ("above", "below", "unit") if plain[key] in (None, "")]
        plain = {key: value for key, value in plain.items() if key not in absent}
        ends = [None if end is None else self.beyond(end) for end in (self.low, self.high)]
        ordered = ends if None in ends else sorted(ends)  # type: ignore[type-var]
        return {**plain, "beyond": [self.beyond(self.estimate), *ordered]}

    def beyond(self, value: float) -> float:
        """Return how far a value lies inside the claimed range, from the edge near the estimate."""
        if self.below is None or (
            self.above is not None and self.estimate - self.above <= self.below - self.estimate
        ):
            return value - (self.above or 0.0)
        return self.below - value


def median_interval(
    values: ArrayLike, tail: float = TAIL
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the interval of the median over the last axis; None with too few values.

    The ends interpolate between the order statistics whose exact errors enclose `tail`
    (Hettmansperger and Sheather, 1986). Six values are needed for a 95 % interval.

    >>> low, high = median_interval([3, 1, 2, 5, 4, 6])
    >>> round(float(low), 3), round(float(high), 3)
    (1.357, 5.643)
    """
    from scipy.stats import binom

    y = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    n = y.shape[-1]
    if n < 2 or 0.5**n > tail:
        return None
    outer = max(k for k in range(1, n // 2 + 1) if binom.cdf(k - 1, n, 0.5) <= tail)
    error, next_error = binom.cdf([outer - 1, outer], n, 0.5)
    share = (tail - error) / (next_error - error)
    inwards = (n - outer) * share / (outer + (n - 2 * outer) * share)
    low = y[..., outer - 1] + inwards * (y[..., outer] - y[..., outer - 1])
    high = y[..., n - outer] - inwards * (y[..., n - outer] - y[..., n - outer - 1])
    return low, high


def share_interval(happened: int, trials: int, tail: float = TAIL) -> tuple[float, float]:
    """Return Clopper and Pearson's exact interval of a share.

    >>> [round(end, 3) for end in share_interval(8, 8)]
    [0.631, 1.0]
    """
    from scipy.stats import beta

    low = float(beta.ppf(tail, happened, trials - happened + 1)) if happened else 0.0
    high = float(beta.ppf(1 - tail, happened + 1, trials - happened)) if happened < trials else 1.0
    return low, high


def decide(
    low: float, high: float, margin: float, *, above: float | None, below: float | None
) -> Verdict:
    """Return the verdict of an interval relative to the claimed range and its margin.

    >>> [decide(low, low + 0.2, 0.1, above=0, below=None).value for low in (0.2, -0.4, 0.0, -0.1)]
    ['reproduced', 'contradicted', 'undecided', 'no effect']
    """
    if above is not None and below is not None:  # the edges themselves are the margins
        inside, outside = above < low and high < below, high < above or low > below
        no_effect = False
    else:
        if below is not None:
            low, high, above = -high, -low, -below
        edge = above or 0.0
        inside, outside = low > edge + margin, high < edge - margin
        no_effect = low >= edge - margin and high <= edge + margin
    if inside:
        return Verdict.REPRODUCED
    if outside:
        return Verdict.CONTRADICTED
    return Verdict.NO_EFFECT if no_effect else Verdict.UNDECIDED


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

    >>> step = Part("step", {seed: 0.3 + 0.01 * seed for seed in range(8)})
    >>> judge_effects([step], margin=0.01).evidence
    'step: 0.335 (95 % interval 0.3094 to 0.3606, needed: above 0.01, 8 seeds)'
    """
    parts = list(parts)
    measured = [part for part in parts if part[1]]
    missing = [part.name for part in parts if not part[1]]
    effects = [_effect(part, margin, len(measured), one_is_enough) for part in measured]
    if not effects:
        return Finding(Verdict.OPEN, "nothing to compare: no converged runs", {"effects": []})
    worst = weakest_effect(effects, strongest=one_is_enough)
    verdict, evidence = worst.verdict, describe_effect(worst)
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
        **{key: None for key in ("estimate", "interval", "margin", "seeds")},
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
    clauses = []
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
    reversing = [
        f"{finding.verdict.value} if {name}"
        for name, finding in readings.items()
        if {primary.verdict, finding.verdict} <= DECIDED and finding.verdict is not primary.verdict
    ]
    answer = primary.sentence
    if reversing:
        first = "; ".join(reversing)
        answer = f"{primary.verdict.capitalize()}. {first[:1].upper()}{first[1:]}. {answer}"
    numbers = {**primary.numbers, "readings": rows}
    return Finding(primary.verdict, primary.evidence, numbers, answer)


def further_seeds(effects: Sequence[Effect], one_is_enough: bool = False) -> int:
    """Return how many more seeds would probably decide a claim; 0 if no effect is undecided."""
    undecided = [effect for effect in effects if effect.verdict is Verdict.UNDECIDED]
    needed = [(effect, seeds_needed(effect, len(effects)) - effect.seeds) for effect in undecided]
    sufficient = [
        more for effect, more in needed if (effect.beyond(effect.estimate) > 0) is one_is_enough
    ]
    if sufficient:  # deciding one of these parts decides the claim
        return max(min(sufficient), 1)
    return max((max(more, 1) for _, more in needed), default=0)


def seeds_needed(effect: Effect, parts: int = 1) -> int:
    """Return the number of seeds that would probably decide an effect of this size and spread.

    The median of n values has a standard error of about 1.25 standard deviations over the root
    of n.
    """
    tail = TAIL if effect.beyond(effect.estimate) > 0 else TAIL / parts
    fewest = math.ceil(-math.log2(tail))
    edges = [
        edge + sign * (effect.margin if effect.above is None or effect.below is None else 0.0)
        for edge in (effect.above, effect.below)
        if edge is not None
        for sign in (-1, 1)
    ]
    distance = min(abs(effect.estimate - edge) for edge in edges)
    if len(effect.values) < 2 or not (spread := stdev(effect.values)):
        return fewest
    if not distance:
        return MOST_SEEDS + effect.seeds + 1
    z = NormalDist().inv_cdf(1 - tail) + NormalDist().inv_cdf(POWER)
    return max(fewest, math.ceil(math.pi / 2 * (z * spread / distance) ** 2))


def weakest_effect(effects: Iterable[Effect], *, strongest: bool = False) -> Effect:
    """Return the effect with the weakest verdict, and of these the one least inside its range."""
    pick = max if strongest else min
    return pick(effects, key=lambda e: (WEAKEST_FIRST.index(e.verdict), e.beyond(e.estimate)))


def describe_effect(effect: Effect) -> str:
    """Return an effect as a clause with estimate, interval, claimed range and seeds."""
    what = f"{effect.name}: {_in_unit(effect, effect.estimate)}"
    seeds = counted(effect.seeds, "seed")
    return f"{what} ({_interval(effect)}, needed: {_needed(effect)}, {seeds})"


def _effect(part: Part | Share, margin: float, parts: int, one_is_enough: bool) -> Effect:
    """Return the effect of a measured part; see `judge_effects` for the corrections."""
    values = tuple(float(value) for value in part[1].values())
    if not all(map(math.isfinite, values)):
        raise ValueError(f"Expected finite values of every seed for {part.name}, got {values}.")
    happened = isinstance(part, Share)
    if isinstance(part, Share):
        part = Part(part.name, dict(enumerate(values)), above=HALF, margin=0.0)
    above = 0.0 if part.above is None and part.below is None else part.above
    margin = margin if part.margin is None else part.margin

    def interval(tail: float) -> tuple[float, float] | None:
        if len(values) < FEWEST_SEEDS:
            return None
        if happened:
            return share_interval(round(sum(values)), len(values), tail)
        ends = median_interval(values, tail)
        return ends and (float(ends[0]) - part.step / 2, float(ends[1]) + part.step / 2)

    ends, verdict = interval(TAIL), Verdict.UNDECIDED
    if ends:
        verdict = decide(*ends, margin, above=above, below=part.below)
        if (verdict is Verdict.REPRODUCED) is one_is_enough:  # one such part decides the claim
            corrected, verdict = interval(TAIL / parts), Verdict.UNDECIDED
            if corrected:  # otherwise there are too few seeds
                ends, verdict = corrected, decide(*corrected, margin, above=above, below=part.below)
    return Effect(
        part.name,
        math.fsum(values) / len(values) if happened else median(values),
        *(ends or (None, None)),
        above,
        part.below,
        margin,
        len(values),
        verdict,
        "seeds" if happened else part.unit,
        values,
    )


def _headline(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return estimate, interval, margin and seeds of the finding with the middle estimate."""
    known = [finding for finding in findings if finding.numbers.get("seeds")]
    known.sort(key=lambda finding: float(finding.numbers["estimate"]))
    keys = ("estimate", "interval", "margin", "seeds")
    return {key: known[len(known) // 2].numbers[key] for key in keys} if known else {}


def _answer(effect: Effect, template: str) -> str:
    """Return the sentence of a claim with the numbers of an effect."""
    return template.format(
        what=effect.name,
        estimate=_in_unit(effect, effect.estimate),
        interval=_interval(effect),
        needed=_needed(effect),
        seeds=counted(effect.seeds, "seed"),
    )


def _in_unit(effect: Effect, value: float) -> str:
    """Return a value of an effect in its unit: a count of seeds, a percentage or a number."""
    if effect.unit == "seeds":
        return f"{round(effect.seeds * value)} of {counted(effect.seeds, 'seed')}"
    if effect.unit == "%":
        return f"{100 * value:.0f} %"
    return f"{number(value)} {effect.unit}".rstrip()


def _interval(effect: Effect) -> str:
    """Return the interval of an effect in words; with too few seeds, the range of the values."""
    share = effect.unit in ("%", "seeds")
    low, high = effect.low, effect.high
    few = low is None or high is None
    if low is None or high is None:
        low, high = min(effect.values), max(effect.values)
    ends = (f"{100 * end:.0f} %" if share else number(end) for end in (low, high))
    name = f"fewer than {FEWEST_SEEDS} seeds, values" if few else "95 % interval"
    return f"{name} {' to '.join(ends)}"


def _needed(effect: Effect) -> str:
    """Return the claimed range of an effect in words."""

    def edge(value: float) -> str:
        return f"{100 * value:.0f} %" if effect.unit in ("%", "seeds") else number(value)

    if effect.above is not None and effect.below is not None:
        return f"{edge(effect.above)} to {edge(effect.below)}"
    if effect.below is not None:
        return f"below {edge(effect.below - effect.margin)}"
    return f"above {edge((effect.above or 0.0) + effect.margin)}"


def _describe_more(more: int) -> str:
    """Return how many more seeds would probably settle a claim."""
    if more > MOST_SEEDS:
        return "too close to the margin to settle"
    verb = "settles" if more == 1 else "settle"
    return f"probably {counted(more, 'more seed')} {verb} it"
