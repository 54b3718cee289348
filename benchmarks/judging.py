"""Simulate how often verdicts are wrong, and how often they are found, for two kinds of intervals.

python benchmarks/judging.py [--draws 20000] [--write]

*t* is Student's interval of the mean, *median* the interval that nclab uses. The error is the share
of claims that come out reproduced, or contradicted, although the truth lies exactly at the edge;
2.5 % are intended. The power is the share that comes out reproduced if the truth lies 1 or 1.5
standard deviations beyond the edge. --write puts the tables into docs/design/judgements.md.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from nclab.claims.effects import FEWEST_SEEDS, TAIL, median_interval

Array = NDArray[np.float64]
Interval = Callable[[Array, float], tuple[Array, Array]]

PAGE = Path(__file__).parent.parent / "docs" / "design" / "judgements.md"
BEGIN, END = "<!-- simulation -->", "<!-- end of simulation -->"
SEEDS = (6, 8, 12)
SIGMAS = (0.5, 1.0)
"""Deviations of the logarithm of skewed values."""
PARTS = 4
"""Number of parts of the claim with several parts."""
STEP = 1.0
"""Step of discrete values whose unrounded deviation is 1."""


def t_interval(values: Array, tail: float) -> tuple[Array, Array]:
    """Return Student's interval of the mean, which nclab used before."""
    n = values.shape[-1]
    half = t.ppf(1 - tail, n - 1) * values.std(-1, ddof=1) / np.sqrt(n)
    return values.mean(-1) - half, values.mean(-1) + half


def median_ends(values: Array, tail: float) -> tuple[Array, Array]:
    """Return the interval of the median; without end if there are too few values."""
    ends = median_interval(values, tail)
    if ends is None:
        return np.full(values.shape[:-1], -np.inf), np.full(values.shape[:-1], np.inf)
    return ends


RULES: dict[str, Interval] = {"t": t_interval, "median": median_ends}


def lognormal(sigma: float, sign: int) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Return a function that draws skewed values; their tail points right for sign 1."""
    return lambda rng, shape: sign * np.exp(sigma * rng.standard_normal(shape))


DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "lognormal 0.5, tail right": lognormal(0.5, 1),
    "lognormal 0.5, tail left": lognormal(0.5, -1),
    "lognormal 1, tail right": lognormal(1.0, 1),
    "lognormal 1, tail left": lognormal(1.0, -1),
    "whole numbers": lambda rng, shape: np.round(rng.standard_normal(shape) + 0.3),
    "two clusters": lambda rng, shape: (
        np.where(rng.random(shape) < 0.5, -0.1, 1.0) + 1e-3 * rng.standard_normal(shape)
    ),
}
"""Distributions of the values of seeds."""


def truth(name: str, rule: str) -> tuple[float, float]:
    """Return the mean or median, as the rule estimates it, and the standard deviation."""
    if name == "whole numbers":
        return 0.3, 1.0  # of the values before they were rounded
    if name == "normal":
        return 0.0, 1.0
    if name == "two clusters":
        return (0.45 if rule == "t" else 0.0), 0.55  # any number between the clusters is a median
    sigma = float(name.split()[1].rstrip(","))
    sign = -1 if "left" in name else 1
    mean = np.exp(sigma**2 / 2)
    deviation = float(mean * np.sqrt(np.exp(sigma**2) - 1))
    return sign * float(mean if rule == "t" else 1.0), deviation


def ends(name: str, rule: str, values: Array, tail: float = TAIL) -> tuple[Array, Array]:
    """Return the interval of a rule; half a step widens that of discrete values."""
    low, high = RULES[rule](values, tail)
    widening = STEP / 2 if name == "whole numbers" else 0.0
    return low - widening, high + widening


def errors(name: str, rule: str, seeds: int, draws: int) -> tuple[float, float]:
    """Return how often a claim at the edge is reproduced and contradicted."""
    rng = np.random.default_rng(0)
    low, high = ends(name, rule, DRAWS[name](rng, (draws, seeds)))
    edge, _ = truth(name, rule)
    return float((low > edge).mean()), float((high < edge).mean())


def power(name: str, rule: str, seeds: int, draws: int, distance: float) -> float:
    """Return how often a claim is reproduced if it is true by some standard deviations."""
    rng = np.random.default_rng(1)
    low, _ = ends(name, rule, DRAWS[name](rng, (draws, seeds)))
    centre, deviation = truth(name, rule)
    return float((low > centre - distance * deviation).mean())


def several_parts(rule: str, seeds: int, draws: int) -> tuple[float, float, float]:
    """Return three rates for a claim of several parts with normal values.

    They are: contradicted with all parts at the edge; reproduced with one part at the edge and
    the others far beyond; reproduced with all parts 1.5 standard deviations beyond.
    """
    rng = np.random.default_rng(2)
    values = rng.standard_normal((draws, PARTS, seeds))
    old = rule == "t"  # corrected both ends for all parts
    low, _ = RULES[rule](values, TAIL / PARTS if old else TAIL)
    contradicted = np.zeros(draws, dtype=bool)
    for corrected_for in [PARTS] if old else range(1, PARTS + 1):
        _, high = RULES[rule](values, TAIL / corrected_for)
        contradicted |= (high < 0).sum(-1) > PARTS - corrected_for
    one_wrong = (low[:, 0] > 0).mean()
    true = (low > -1.5).all(-1).mean()
    return float(contradicted.mean()), float(one_wrong), float(true)


def tables(draws: int) -> str:
    """Return both tables in Markdown."""
    lines = [
        f"Made by `python benchmarks/judging.py --write`, {draws:,} draws. Errors: reproduced and "
        "contradicted at the edge, in %. Power: reproduced 1 and 1.5 standard deviations beyond "
        "the edge, in %.",
        "",
        "| values of a seed | seeds | error, t | error, median | power, t | power, median |",
        "|---|---|---|---|---|---|",
    ]
    for name in DRAWS:
        for seeds in SEEDS:
            cells = [name, str(seeds)]
            for rule in RULES:
                cells.append(" / ".join(f"{100 * e:.1f}" for e in errors(name, rule, seeds, draws)))
            for rule in RULES:
                powers = (power(name, rule, seeds, draws, distance) for distance in (1.0, 1.5))
                cells.append(" / ".join(f"{100 * p:.0f}" for p in powers))
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"A claim with {PARTS} parts, normal values. The old rule corrected both ends of every "
        "interval; the new one corrects only what contradicts.",
        "",
        "| seeds | rule | contradicted, all parts at the edge | reproduced, one part at the edge | "
        "reproduced, all parts 1.5 deviations beyond |",
        "|---|---|---|---|---|",
    ]
    for seeds in SEEDS:
        for rule in RULES:
            cells = [f"{100 * rate:.1f}" for rate in several_parts(rule, seeds, draws)]
            lines.append(f"| {seeds} | {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    arguments = parser.parse_args()
    assert min(SEEDS) >= FEWEST_SEEDS
    text = tables(arguments.draws)
    print(text)
    if arguments.write:
        before, begin, rest = PAGE.read_text().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"Expected the marks {BEGIN} and {END} in {PAGE}, in this order.")
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
