"""Effects: quantities with one value per seed, their intervals, and their verdicts.

The estimate of a quantity is the median over seeds. Its interval comes from the sorted values
alone, so skewed values do not make it too narrow (`docs/design/judgements.md` has the simulation).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nclab.claims.claim import Verdict
from nclab.text import counted, number

TAIL = 0.025
"""Probability that the truth lies beyond one end of a 95 % interval."""
FEWEST_SEEDS = 6
"""Fewest seeds that can decide an effect: with fewer values there is no 95 % interval."""
HALF = 0.5
"""Share of the seeds above which an event counts as happening."""


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
    """Unit of the values; "%" prints shares in per cent. The name must then be a clause, such as
    "layers have a positive cosine"."""


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
    step: float = 0.0
    """Resolution of the values; not part of the written numbers."""
    values: tuple[float, ...] = ()
    """Values of the seeds; not part of the written numbers."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the name has the key `what`, and absent entries are left out.

        `beyond` has the estimate and the ends of the interval relative to the edge of the claimed
        range, positive where the claim is right.
        """
        fields = asdict(self)
        del fields["values"], fields["step"]
        plain = {"what": fields.pop("name"), **fields, "verdict": self.verdict.value}
        absent = [key for key in ("above", "below", "unit") if plain[key] in (None, "")]
        plain = {key: value for key, value in plain.items() if key not in absent}
        ends = [None if end is None else self.beyond(end) for end in (self.low, self.high)]
        ordered = ends if None in ends else sorted(ends)  # type: ignore[type-var]
        return {**plain, "beyond": [self.beyond(self.estimate), *ordered]}

    def beyond(self, value: float) -> float:
        """Return how far a value lies inside the claimed range; negative outside.

        The distance is measured from the edge of the range that is nearest to the estimate.
        """
        if self.below is None or (
            self.above is not None and self.estimate - self.above <= self.below - self.estimate
        ):
            return value - (self.above or 0.0)
        return self.below - value

    def in_unit(self, value: float) -> str:
        """Return a value in the unit of the effect: seeds, per cent, or a number."""
        if self.unit == "seeds":
            return f"{round(self.seeds * value)} of {counted(self.seeds, 'seed')}"
        if self.unit == "%":
            return f"{100 * value:.0f} %"
        return f"{number(value)} {self.unit}".rstrip()

    @property
    def interval(self) -> str:
        """The interval in words; with too few seeds, the range of the values."""
        if self.low is None or self.high is None:
            few = f"fewer than {FEWEST_SEEDS} seeds"
            if self.unit == "seeds" or len(self.values) < 2:
                return few
            return f"{few}, values {self._edge(min(self.values))} to {self._edge(max(self.values))}"
        return f"95 % interval {self._edge(self.low)} to {self._edge(self.high)}"

    @property
    def needed(self) -> str:
        """The claimed range in words, with its margin."""
        if self.above is not None and self.below is not None:
            return f"{self._edge(self.above)} to {self._edge(self.below)}"
        if self.below is not None:
            return f"less than {self._edge(self.below - self.margin)}"
        more = f"more than {self._edge((self.above or 0.0) + self.margin)}"
        return f"{more} of all seeds" if self.unit == "seeds" else more

    def describe(self) -> str:
        """Return the effect as a clause with estimate, interval, claimed range and seeds."""
        seeds = counted(self.seeds, "seed")
        details = f"{self.interval}, needed: {self.needed}, {seeds}"
        return f"{self.name}: {self.in_unit(self.estimate)} ({details})"

    def _edge(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.unit in ("%", "seeds") else number(value)


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


def intervals_of(
    effect: Effect, values: NDArray[np.float64], tail: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return one interval per row of values; with too few values, all intervals are infinite."""
    rows, seeds = values.shape
    if effect.unit == "seeds":
        counts, which = np.unique(values.sum(1).round().astype(int), return_inverse=True)
        ends = np.array([share_interval(int(count), seeds, tail) for count in counts])
        return ends[which, 0], ends[which, 1]
    interval = median_interval(values, tail)
    if interval is None:
        return np.full(rows, -np.inf), np.full(rows, np.inf)
    return interval[0] - effect.step / 2, interval[1] + effect.step / 2


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


def effect_of(part: Part | Share, margin: float, tail: float = TAIL) -> Effect:
    """Return the effect of a measured part; `tail` is the error beyond each end of its interval.

    >>> effect_of(Part("step", {seed: 0.3 + 0.01 * seed for seed in range(8)}), 0.01).describe()
    'step: 0.335 (95 % interval 0.3094 to 0.3606, needed: more than 0.01, 8 seeds)'
    """
    values = tuple(float(value) for value in part[1].values())
    if not all(map(math.isfinite, values)):
        raise ValueError(f"Expected finite values of every seed for {part.name}, got {values}.")
    happened = isinstance(part, Share)
    if isinstance(part, Share):
        part = Part(part.name, dict(enumerate(values)), above=HALF, margin=0.0, unit="seeds")
    effect = Effect(
        part.name,
        math.fsum(values) / len(values) if happened else median(values),
        low=None,
        high=None,
        above=0.0 if part.above is None and part.below is None else part.above,
        below=part.below,
        margin=margin if part.margin is None else part.margin,
        seeds=len(values),
        verdict=Verdict.UNDECIDED,
        unit=part.unit,
        step=part.step,
        values=values,
    )
    [low], [high] = intervals_of(effect, np.array([values]), tail)
    if len(values) < FEWEST_SEEDS or math.isinf(low):
        return effect
    verdict = decide(low, high, effect.margin, above=effect.above, below=effect.below)
    return replace(effect, low=float(low), high=float(high), verdict=verdict)
