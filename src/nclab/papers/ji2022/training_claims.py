"""What ji2022 says of its realistic training, sentence by sentence, with judges.

Every judge reads the rows of `ji2022_fig3`, one for each seed and measured epoch. A claim is
reproduced if it holds in every seed, partly if in some, and open while a seed is short of accuracy
1: the paper speaks of the terminal phase of training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nclab.papers.verdict import Finding, Verdict

NORMS = ("nc2_norm_variation_means", "nc2_norm_variation_weights")
WITHIN = "nc1_within_variation"
COSINES = ("nc2_equiangularity_means", "nc2_equiangularity_weights")
DUALITY = "nc3_self_duality"
QUANTITIES = (*NORMS, WITHIN, *COSINES, DUALITY)

SMALL = 0.1
"""The paper's "small value"."""
LINEAR_FROM = 100
"""Epoch from which the paper sees a straight line."""
LINEAR_POINTS = 4
"""Fewer measurements than this say nothing of a line."""
LINEAR_R2 = 0.9
"""Share of the variance a line must explain to be called approximately right; our choice."""
FALLING_SHARE = 0.75
"""Share of pairs of measurements of which the later must be the smaller; our choice."""

Rows = Sequence[Mapping[str, Any]]
Numbers = Mapping[str, Any]


class Claimed(NamedTuple):
    """A sentence of the paper in our words, and the judge of the experiment's numbers."""

    name: str
    source: str
    text: str
    judge: Callable[[Numbers], Finding]


class Line(NamedTuple):
    """A straight line fitted to log quantity over log log t."""

    slope: float
    r2: float
    points: int


def norms_small(numbers: Numbers) -> Finding:
    """Both variations of norms are below 0.1 at the end (Fig. 3, a)."""
    return _each_seed(
        numbers,
        holds=lambda rows: all(rows[-1][name] < SMALL for name in NORMS),
        numbers_of=lambda rows: {name: rows[-1][name] for name in NORMS},
        saying="variations of the norms at the end, means and classifiers",
    )


def within_linear(numbers: Numbers) -> Finding:
    """From epoch 100 log within-class variation falls in a line over log log t (Fig. 3, b)."""
    seeds = by_seed(numbers["rows"])
    late = {
        seed: [row for row in rows if row["epoch"] >= LINEAR_FROM] for seed, rows in seeds.items()
    }
    if why := _too_early(seeds):
        return _open(why)
    if min(map(len, late.values())) < LINEAR_POINTS:
        return _open(f"fewer than {LINEAR_POINTS} measurements from epoch {LINEAR_FROM} on")
    lines = {seed: line(rows, WITHIN) for seed, rows in late.items()}
    return _each_seed(
        numbers,
        holds=lambda rows: _is_falling_line(lines[rows[0]["seed"]]),
        numbers_of=lambda rows: {
            "slope": lines[rows[0]["seed"]].slope,
            "r2": lines[rows[0]["seed"]].r2,
        },
        saying=f"slope from epoch {LINEAR_FROM} on and share of the variance the line explains",
    )


def cosines_small(numbers: Numbers) -> Finding:
    """Both deviations of the cosines end below 0.1 and below where they began (Fig. 3, c)."""
    return _each_seed(
        numbers,
        holds=lambda rows: all(
            rows[-1][name] < SMALL and rows[-1][name] < rows[0][name] for name in COSINES
        ),
        numbers_of=lambda rows: {
            key: row[name]
            for name in COSINES
            for key, row in ((f"{name}_first", rows[0]), (name, rows[-1]))
        },
        saying="deviations of the cosines, first and last, of the means, then of the classifiers",
    )


def duality_falls(numbers: Numbers) -> Finding:
    """The distance from self-duality decreases during training (Fig. 3, d)."""
    return _each_seed(
        numbers,
        holds=lambda rows: falls([row[DUALITY] for row in rows]),
        numbers_of=lambda rows: {
            "first": rows[0][DUALITY],
            "last": rows[-1][DUALITY],
            "falling_share": falling_share([row[DUALITY] for row in rows]),
        },
        saying="distance from self-duality, first and last, and share of pairs that fall",
    )


def all_fall_or_stay_small(numbers: Numbers) -> Finding:
    """Every one of the six quantities decreases or stays below 0.1 (Sec. 4)."""

    def exceptions(rows: Rows) -> list[str]:
        columns = {name: [row[name] for row in rows] for name in QUANTITIES}
        return [name for name, y in columns.items() if not falls(y) and max(y) >= SMALL]

    return _each_seed(
        numbers,
        holds=lambda rows: not exceptions(rows),
        numbers_of=lambda rows: {"exceptions": exceptions(rows)},
        saying="quantities that neither fall nor stay small",
    )


CLAIMED = (
    Claimed("fig3a", "Fig. 3 (a)", "Both variations of norms end below 0.1.", norms_small),
    Claimed(
        "fig3b",
        "Fig. 3 (b)",
        "From epoch 100 on, log of the within-class variation falls in a line over log log t.",
        within_linear,
    ),
    Claimed("fig3c", "Fig. 3 (c)", "Both cosine deviations fall and end below 0.1.", cosines_small),
    Claimed("fig3d", "Fig. 3 (d)", "The distance from self-duality decreases.", duality_falls),
    Claimed(
        "sec4-realistic",
        "Sec. 4",
        "All six quantities decrease or stay in small values.",
        all_fall_or_stay_small,
    ),
)


def judge_all(numbers: Numbers) -> dict[str, Finding]:
    """Every claim about the figure, by name."""
    return {claimed.name: claimed.judge(numbers) for claimed in CLAIMED}


def by_seed(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    """The rows of every seed, by epoch.

    >>> by_seed([{"seed": 1, "epoch": 2}, {"seed": 1, "epoch": 1}])
    {1: [{'seed': 1, 'epoch': 1}, {'seed': 1, 'epoch': 2}]}
    """
    seeds = sorted({row["seed"] for row in rows})
    return {
        seed: sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["epoch"])
        for seed in seeds
    }


def falling_share(values: Sequence[float]) -> float:
    """The share of all pairs of values of which the later is the smaller.

    >>> falling_share([3.0, 1.0, 2.0])
    0.6666666666666666
    """
    y = np.asarray(values)
    earlier, later = np.triu_indices(len(y), 1)
    return float((y[later] < y[earlier]).mean()) if len(earlier) else math.nan


def falls(values: Sequence[float]) -> bool:
    """Whether values decrease but for noise: lower at the end, and in most pairs.

    >>> falls([3.0, 2.0, 2.1, 1.0]), falls([1.0, 5.0, 5.0, 0.9]), falls([1.0])
    (True, False, False)
    """
    return len(values) > 1 and values[-1] < values[0] and falling_share(values) >= FALLING_SHARE


def line(rows: Rows, name: str) -> Line:
    """Least squares of the logarithm of a quantity over log log epoch.

    >>> rows = [{"epoch": t, "y": 5 / math.log(t)} for t in (100, 200, 400)]
    >>> fitted = line(rows, "y")
    >>> round(fitted.slope, 6), round(fitted.r2, 6)
    (-1.0, 1.0)
    """
    x = np.log(np.log([row["epoch"] for row in rows]))
    y = np.log([row[name] for row in rows])
    slope, level = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    rest = float(((y - slope * x - level) ** 2).sum())
    return Line(float(slope), 1 - rest / spread if spread > 0 else math.nan, len(rows))


def _is_falling_line(fitted: Line) -> bool:
    return fitted.slope < 0 and fitted.r2 >= LINEAR_R2


def _each_seed(
    numbers: Numbers,
    *,
    holds: Callable[[Rows], bool],
    numbers_of: Callable[[Rows], dict[str, Any]],
    saying: str,
) -> Finding:
    """Judge seed by seed; the evidence has every seed's numbers."""
    seeds = by_seed(numbers["rows"])
    if why := _too_early(seeds):
        return _open(why)
    right = [seed for seed, rows in seeds.items() if holds(rows)]
    found = {str(seed): numbers_of(rows) for seed, rows in seeds.items()}
    if len(right) == len(seeds):
        verdict = Verdict.REPRODUCED
    else:
        verdict = Verdict.PARTLY if right else Verdict.NOT_REPRODUCED
    shown = "; ".join(f"seed {seed}: {_shown(values)}" for seed, values in found.items())
    evidence = f"{saying}: {shown}; holds in {len(right)} of {len(seeds)} seeds"
    return Finding(verdict, evidence, {"seeds": found, "holding": right})


def _too_early(seeds: Mapping[int, Rows]) -> str | None:
    """Why nothing can be said yet, if so."""
    if not seeds:
        return "no measurements"
    for seed, rows in seeds.items():
        unknown = [name for name in QUANTITIES if any(row[name] is None for row in rows)]
        if unknown:
            return f"seed {seed} has measurements without {', '.join(unknown)}"
    short = [str(seed) for seed, rows in seeds.items() if rows[-1]["accuracy"] < 1]
    return f"accuracy 1 is not reached by seed {', '.join(short)}" if short else None


def _shown(values: Mapping[str, Any]) -> str:
    parts = []
    for value in values.values():
        if isinstance(value, float):
            parts.append(f"{value:.3g}")
        else:
            parts.append(", ".join(value) or "none")
    return ", ".join(parts)


def _open(why: str) -> Finding:
    return Finding(Verdict.OPEN, why, {})
