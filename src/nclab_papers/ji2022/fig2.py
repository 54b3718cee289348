"""Figure 2 of ji2022: collapse of the layer-peeled model by gradient descent, and far beyond it.

Claim: the four quantities of neural collapse fall approximately at rate O(1/log t) under descent.
Source: ji2022, Fig. 2

The figure is judged on its own ground: six curves of 1e5 steps, t in steps. The paper says neither
from where it starts nor over which steps it sees the rate, so starts of several sizes and windows
of several lengths are arms of the design. Gradient flow to t = 1e434 tells how fast the curves fall
in the end: findings of ours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Claim, Finding, Judge, Kind, Numbers, Verdict, claim
from nclab.claims.judging import (
    Effect,
    Part,
    Share,
    describe_effect,
    judge_choices,
    judge_effects,
    judge_shares,
)
from nclab.claims.tables import Table, mean_and_deviation
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.progress import track
from nclab.text import number
from nclab.ulpm.descent import descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem, Reduction
from nclab.ulpm.trajectory import slope

WITHIN = "nc1_within_variation"
QUANTITIES = {
    "nc2_norm_variation_means": "(1) norms, means",
    "nc2_norm_variation_weights": "(1) norms, classifiers",
    WITHIN: "(2) within",
    "nc2_equiangularity_means": "(3) cosines, means",
    "nc2_equiangularity_weights": "(3) cosines, classifiers",
    "nc3_self_duality": "(4) duality",
}
"""The six curves of the figure."""
CURVES = {
    "a": ("nc2_norm_variation_means", "nc2_norm_variation_weights"),
    "b": (WITHIN,),
    "c": ("nc2_equiangularity_means", "nc2_equiangularity_weights"),
    "d": ("nc3_self_duality",),
}
"""Those of each of its panels."""
RATE, NORMALISED_RATE = 5.0, 300.0
"""Of plain descent, on the mean loss, and of normalised descent."""
WINDOWS = (1000, 100, 10)
"""First steps of the windows in which the curves of the figure are judged, which end with the run:
the last two decades of 1e5 steps, the last three, and all but the first."""
NEAR = 0.25
"""How far above -1 a slope may be that is "approximately" O(1/log t), a bound on the quantity."""
WINDOW = (500.0, 1000.0)
"""In log t, where the rates of the flow are fitted."""
NEAR_IN_THE_END, NEAR_A_HALF = 0.05, 0.02
"""The same for the flow: of rates -1, and of the rate -1/2."""
SLOW = 0.5
"""A power of t below this is slow."""
DIGITS = 6
"""Of the curves that are kept for every seed."""
FEW_STEPS = 15
COLLAPSING = 0.5
"""Normalised margin from which a run counts as on its way to collapse."""
SCALES = (1e-12, 1e-8, 1e-2, 0.1)
"""Of the starts with which the loss that rate 5 is meant for is found."""
USUAL = 1e-2
"""The smallest start of the figure's design; from smaller ones nobody trains."""

Samples = Mapping[str, list[dict[str, Any]]]
"""Rows by the name of their run: descent, normalised, flow."""


@dataclass(frozen=True)
class Config:
    """The paper's sizes; start and reduction are ours, as it states neither."""

    classes: int = 5
    per_class: int = 10
    dim: int = 20
    scale: float = 0.1
    """Standard deviation of the start of every run."""
    scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Those of plain descent: `scale` and two half decades to either side."""
    descent_steps: int = 100_000
    """At rate 5 on the mean loss."""
    normalised_steps: int = 1000
    """At rate 300."""
    log_time: float = 1000.0
    """End of the flow: t = 1e434."""

    def problem(self, reduction: Reduction = "mean") -> Problem:
        """The model."""
        return Problem(self.classes, self.per_class, self.dim, reduction)


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The paper's run from starts of every size, the same level in a dozen steps, and the flow over
    434 decades.

    A seed draws the start, the same but for its size. Every seed is run and its curves are kept
    where they are judged; all samples of the first are kept for the figures.
    """
    per_seed = []
    with one_thread():
        for seed in track(seeds, "layer-peeled model"):
            samples = _samples(config, seed)
            starts = [_start(config, seed, scale, samples) for scale in config.scales]
            per_seed.append({"seed": seed, **summary(samples), "starts": starts})
            if seed == seeds[0]:
                kept = samples
    return {
        "config": asdict(config),
        "seeds": list(seeds),
        "per_seed": per_seed,
        "samples": kept,
    }


def _samples(config: Config, seed: int) -> Samples:
    """The three runs of a seed."""
    problem = config.problem()
    start = problem.initial(scale=config.scale, seed=seed)
    plain, normalised = config.descent_steps, config.normalised_steps
    runs = {
        "descent": descend(problem, start, steps=plain, rate=RATE),
        "normalised": normalised_descent(problem, start, steps=normalised, rate=NORMALISED_RATE),
        "flow": flow(problem, start, log_time=config.log_time),
    }
    return {name: [sample.to_dict() for sample in one.samples] for name, one in runs.items()}


def _start(config: Config, seed: int, scale: float, samples: Samples) -> dict[str, Any]:
    """The curves of plain descent from a start of one size, where they are judged."""
    rows = samples["descent"]
    if scale != config.scale:
        problem = config.problem()
        start = problem.initial(scale=scale, seed=seed)
        run = descend(problem, start, steps=config.descent_steps, rate=RATE)
        rows = [sample.to_dict() for sample in run.samples]
    return {"scale": scale, "descent": _window(rows, "step", (min(WINDOWS), math.inf))}


def summary(samples: Samples) -> dict[str, Any]:
    """Last points of the three runs of one seed, and the curves of the flow where it is judged."""
    return {
        "last": {name: rows[-1] for name, rows in samples.items()},
        "flow": _window(samples["flow"], "log_time", WINDOW),
        "steps_to_level": steps_to_level(samples),
    }


def _window(
    rows: Sequence[Mapping[str, Any]], axis: str, ends: tuple[float, float]
) -> dict[str, list[float]]:
    """An axis and the six curves, between two values of the axis."""
    inside = [row for row in rows if ends[0] <= (row[axis] or 0) <= ends[1]]
    return {
        name: [float(f"{row[name]:.{DIGITS}g}") for row in inside] for name in (axis, *QUANTITIES)
    }


def steps_to_level(samples: Samples) -> int | None:
    """Steps of normalised descent until it is past the last point of plain descent.

    Past in the margin and in (2), (3) and (4).
    """
    level = samples["descent"][-1]
    names = [name for name in QUANTITIES if not name.startswith("nc2_norm_variation")]
    for row in samples["normalised"]:
        if row["margin"] >= level["margin"] and all(row[n] <= level[n] for n in names):
            return int(row["step"])
    return None


def figure_slope(start: Mapping[str, Any], name: str, first: int) -> float:
    """The slope of a curve from one start on the axes of the figure, t in steps from the first."""
    steps, values = _from(first, start, name)
    return slope(np.log(steps), values)


def power(start: Mapping[str, Any], name: str, first: int) -> float:
    """The power of t with which a curve from one start falls; `slope` takes logarithms itself."""
    return slope(*_from(first, start, name))


def _from(first: int, start: Mapping[str, Any], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a curve from a step on."""
    steps = start["descent"]["step"]
    if not any(first <= step < 10 * first for step in steps):
        raise ValueError(f"curves from step {first} on are judged, these begin at {steps[:1]}")
    kept = [place for place, step in enumerate(steps) if step >= first]
    return [steps[k] for k in kept], [start["descent"][name][k] for k in kept]


def flow_slope(one: Mapping[str, Any], name: str) -> float:
    """The slope of a curve of a seed along the flow, late."""
    return slope(one["flow"]["log_time"], one["flow"][name])


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The last point of every run, and the rates of descent and of the flow."""
    columns = {"log_time": "log t", "margin": "margin", "normalised_margin": "normalised"}
    columns |= QUANTITIES
    seeds = numbers["per_seed"]
    rows = [
        (
            name,
            *(
                mean_and_deviation((one["last"][name][key] for one in seeds), ".3g")
                for key in columns
            ),
        )
        for name in seeds[0]["last"]
    ]
    for choice, curves in _by_choice(numbers, list(QUANTITIES), figure_slope).items():
        slopes = (mean_and_deviation(curves[name].values(), ".3g") for name in QUANTITIES)
        rows.append((f"descent, slope, {choice}", "", "", "", *slopes))
    slopes = (mean_and_deviation((flow_slope(one, k) for one in seeds), ".3g") for k in QUANTITIES)
    rows.append(("flow, slope", "", "", "", *slopes))
    config = numbers["config"]
    sizes = f"C = {config['classes']}, N = {config['per_class']}, d = {config['dim']}"
    steps = ", ".join(str(one["steps_to_level"]) for one in numbers["per_seed"])
    title = f"The layer-peeled model, {sizes}; normalised descent is there after {steps} steps"
    return [Table(title, ("run", *columns.values()), rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The paper's four panels, from descent and from the flow; slopes; the margins of the flow."""
    flow = numbers["samples"]["flow"]
    descent = [
        {**row, "log_time": math.log(row["step"])}
        for row in numbers["samples"]["descent"]
        if row["step"]
    ]
    titles = ("Gradient descent, 1e5 steps", "Gradient flow to log t = 1000")
    return [
        ulpm.quantities_picture(descent, title=titles[0], name="fig2_descent"),
        slopes_picture(numbers),
        ulpm.quantities_picture(flow, title=titles[1], name="fig2_flow"),
        ulpm.margins_picture(flow, title=titles[1], name="margins_flow"),
    ]


def _reductions(preset: str) -> Numbers:
    reductions: tuple[Reduction, ...] = ("sum", "mean")
    found: dict[str, Any] = {}
    for reduction in reductions:
        problem, rows = Config().problem(reduction), []
        for scale in SCALES:
            run = descend(problem, problem.initial(scale=scale), steps=1000, rate=RATE)
            rows.append(
                {
                    "scale": scale,
                    "outcome": run.outcome.value,
                    "steps": run.last.step,
                    "normalised_margin": run.last.normalised_margin,
                }
            )
        found[reduction] = rows
    return found


@claim(
    "ji2022/sec-4-setting",
    Kind.REMARK,
    "Gradient descent with learning rate 5 on the objective (4), 10 samples in each of 5 classes, "
    "20 dimensions, converges towards collapse.",
    "ji2022, Sec. 4 “use gradient descent with learning rate 5 to run”",
    gather=_reductions,
    code="nclab.ulpm.descent.descend",
    figure="fig2_descent",
)
def sec_4_setting(numbers: Numbers) -> Finding:
    """The paper does not say where it starts: any usual start will do for the sum."""

    def collapsing(row: Mapping[str, Any]) -> bool:
        finished = row["outcome"] == "finished" and row["scale"] >= USUAL
        return finished and COLLAPSING <= row["normalised_margin"] <= 1  # none is larger

    def shown(rows: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(
            f"{number(row['normalised_margin'])} after {row['steps']} steps"
            if row["outcome"] == "finished"
            else row["outcome"]
            for row in rows
        )

    total, mean = numbers["sum"], numbers["mean"]
    scales = ", ".join(f"{row['scale']:g}" for row in total)
    evidence = (
        f"normalised margins at rate {RATE:g} from starts of size {scales}: on the sum (4) "
        f"{shown(total)}; on the mean {shown(mean)}"
    )
    if any(map(collapsing, total)):
        return Finding(Verdict.HOLDS, evidence, numbers)
    right = all(collapsing(row) for row in mean if row["scale"] >= USUAL)
    return Finding(Verdict.CORRECTED if right else Verdict.REFUTED, evidence, numbers)


def _by_choice(
    numbers: Numbers,
    names: Sequence[str],
    measure: Callable[[Mapping[str, Any], str, int], float],
) -> dict[str, dict[str, dict[int, float]]]:
    """Something of curves of plain descent by choice, curve and seed.

    A choice is a size of the start and a window: the paper states neither.
    """
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in numbers["per_seed"]:
        for first in WINDOWS:
            for start in one["starts"]:
                choice = f"start {start['scale']:g} from step {first}"
                curves = found.setdefault(choice, {name: {} for name in names})
                for name in names:
                    curves[name][one["seed"]] = measure(start, name, first)
    return found


def _near(what: str, slopes: Mapping[int, float], *, claimed: float, near: float) -> list[Part]:
    """That slopes are near one that is claimed: two parts, as a distance would never be below 0.

    >>> [part.values for part in _near("", {0: -1.5}, claimed=-1.0, near=0.25)]
    [{0: -0.25}, {0: 0.75}]
    """
    low, high = claimed - near, claimed + near
    return [
        Part(f"{what} above {low:g}", {seed: rate - low for seed, rate in slopes.items()}),
        Part(f"{what} below {high:g}", {seed: high - rate for seed, rate in slopes.items()}),
    ]


def _judged(choices: Mapping[str, Sequence[Part]]) -> Finding:
    """Every choice judged, and said window by window what is found there."""
    found = judge_choices(choices, margin=0.0)
    windows: dict[str, dict[str, list[str]]] = {}
    for choice, verdict in found.numbers["choices"].items():
        start, _, window = choice.partition(" from ")
        starts = windows.setdefault(verdict, {}).setdefault(window, [])
        starts.append(start.removeprefix("start "))
    said = "; ".join(
        f"{verdict} "
        + ", ".join(f"from {window} (start {', '.join(own)})" for window, own in places.items())
        for verdict, places in windows.items()
    )
    effects = {one["what"]: one for one in found.numbers["effects"]}
    worst = effects[found.numbers["weakest"]]
    words = describe_effect(Effect.from_dict(worst))
    return Finding(found.verdict, f"{said}; the weakest part, {words}", found.numbers)


def _figure_rates(numbers: Numbers, *, names: Sequence[str]) -> Finding:
    """Whether curves of the figure fall at least about as fast as 1/log t, whatever the start and
    the window: O(1/log t) bounds a quantity from above, and what falls faster is within it."""
    slopes, most = _by_choice(numbers, names, figure_slope), -1 + NEAR
    choices = {
        choice: [
            Part(
                f"{QUANTITIES[name]} below {most:g}",
                {seed: most - rate for seed, rate in curves[name].items()},
            )
            for name in names
        ]
        for choice, curves in slopes.items()
    }
    found = _judged(choices)
    words = (
        f"mean slopes, from the least to the largest over starts: {_ranges(slopes, names)}; below "
        f"{most:g}, whatever start and window, of which the paper states neither: {found.evidence}"
    )
    kept = {
        name: {choice: list(curves[name].values()) for choice, curves in slopes.items()}
        for name in names
    }
    return Finding(found.verdict, words, {**found.numbers, "slopes": kept})


def _ranges(slopes: Mapping[str, Mapping[str, Mapping[int, float]]], names: Sequence[str]) -> str:
    """From where to where the mean slopes go, for each curve and window."""
    said = []
    for name in names:
        windows = []
        for first in WINDOWS:
            end = f" from step {first}"
            means = [fmean(own[name].values()) for c, own in slopes.items() if c.endswith(end)]
            windows.append(f"{number(min(means))} to {number(max(means))}{end}")
        said.append(f"{QUANTITIES[name]} {', '.join(windows)}")
    return "; ".join(said)


def slopes_picture(numbers: Numbers) -> Picture:
    """The slopes that are judged, with their intervals: one panel a curve."""
    most = -1 + NEAR
    scales = [start["scale"] for start in numbers["per_seed"][0]["starts"]]
    panels = []
    for names in CURVES.values():
        effects = _figure_rates(numbers, names=names).numbers["effects"]
        judged = {one["what"]: one for one in effects}
        for name in names:
            series = []
            for place, first in enumerate(WINDOWS):
                own = [
                    judged[f"start {scale:g} from step {first}, {QUANTITIES[name]} below {most:g}"]
                    for scale in scales
                ]
                low_ends, middles, high_ends = (
                    [None if one[key] is None else most - one[key] for one in own]
                    for key in ("high", "estimate", "low")
                )
                series.append(
                    Series(
                        f"from step {first}",
                        [x + 0.2 * (place - 1) for x in range(len(scales))],
                        middles,
                        low=low_ends,
                        high=high_ends,
                        colour=place,
                        marker="filled",
                        style="none",
                    )
                )
            panels.append(
                Panel(
                    QUANTITIES[name],
                    "size of the start",
                    "slope",
                    tuple(series),
                    references=(Reference("", y=most),),
                    x_ticks=tuple(map(float, range(len(scales)))),
                    x_names=tuple(f"{scale:g}" for scale in scales),
                )
            )
    return Picture(
        "fig2_slopes",
        "Slopes over log log t, by start and window",
        tuple(panels),
        3,
        "Means over seeds with 95 % intervals, simultaneous over a panel of the paper. Below the "
        f"line, at {NEAR:g} above −1, a curve falls approximately at rate O(1/log t), or faster. "
        "The paper states neither the size of its start nor the steps over which it sees the rate.",
        (3.2, 2.6),
    )


def _flow_rates(numbers: Numbers, *, names: Sequence[str], claimed: float, near: float) -> Finding:
    """Whether curves of the flow fall like a power of log t in the end."""
    slopes = {
        name: {one["seed"]: flow_slope(one, name) for one in numbers["per_seed"]} for name in names
    }
    parts = [
        part
        for name, rates in slopes.items()
        for part in _near(f"{QUANTITIES[name]}: slope", rates, claimed=claimed, near=near)
    ]
    found = judge_effects(parts, margin=0.0)
    middle = ", ".join(
        f"{QUANTITIES[name]} {number(fmean(rates.values()))}" for name, rates in slopes.items()
    )
    words = (
        f"mean slopes from starts of size {numbers['config']['scale']:g}: {middle}; "
        f"{found.evidence}"
    )
    kept = {name: list(rates.values()) for name, rates in slopes.items()}
    return Finding(found.verdict, words, {**found.numbers, "slopes": kept})


def _panel(panel: str, words: str, what: str) -> Claim:
    return Claim(
        f"ji2022/fig-2{panel}",
        Kind.RESULT,
        f"Under gradient descent on the layer-peeled model {what} approximately at rate "
        "O(1/log t).",
        f"ji2022, Fig. 2 ({panel}) “{words}”",
        partial(_figure_rates, names=CURVES[panel]),
        needs="ji2022_fig2",
        code="nclab.ulpm.trajectory.slope",
        figure="fig2_slopes",
    )


fig_2a = _panel(
    "a",
    "the logarithm of both terms decrease at rate",
    "the variations of the norms of class means and of classifiers fall",
)
fig_2b = _panel(
    "b",
    "Logarithm of the variation converge approximately at rate",
    "the variation within classes falls",
)
fig_2c = _panel(
    "c",
    "Logarithm of both terms converge approximately at rate",
    "the deviations of the cosines of class means and of classifiers fall",
)
fig_2d = _panel(
    "d",
    "Logarithm of the quantity converge approximately at rate",
    "the distance of classifiers from class means falls",
)


@claim(
    "ji2022/sec-5.3-slow",
    Kind.RESULT,
    "The convergence to neural collapse is super slow.",
    "ji2022, Sec. 5.3 “The convergence to neural collapse is super slow”",
    needs="ji2022_fig2",
    figure="fig2_descent",
    code="nclab.ulpm.trajectory.slope",
)
def sec_5_3_slow(numbers: Numbers) -> Finding:
    """No quantity may fall as fast as 1/sqrt t: our reading, as the sentence has no number.

    How fast, and not whether: what stalls is slow, and the panels say whether it falls.
    """
    powers = _by_choice(numbers, list(QUANTITIES), power)
    choices = {
        choice: [
            Part(
                f"{QUANTITIES[name]}: power of t above {-SLOW:g}",
                {seed: SLOW + value for seed, value in own.items()},
            )
            for name, own in curves.items()
        ]
        for choice, curves in powers.items()
    }
    return _judged(choices)


def _beyond(id: str, text: str, *, code: str = "", figure: str) -> Callable[[Judge], Claim]:
    """A finding of ours about these runs, from the judge below it."""
    return claim(
        f"findings/layer-peeled-{id}",
        Kind.RESULT,
        text,
        "ji2022, Fig. 2",
        needs="ji2022_fig2",
        code=code,
        figure=figure,
    )


@_beyond(
    "rates",
    "Under gradient flow on the layer-peeled model norms, cosines and self-duality, of means and "
    "of classifiers, fall like 1/log t in the end, log t from 500 to 1000.",
    code="nclab.ulpm.trajectory.slope",
    figure="fig2_flow",
)
def rates_in_the_end(numbers: Numbers) -> Finding:
    names = [name for name in QUANTITIES if name != WITHIN]
    return _flow_rates(numbers, names=names, claimed=-1.0, near=NEAR_IN_THE_END)


@_beyond(
    "within-rate",
    "Under gradient flow on the layer-peeled model the variation within classes falls like (log "
    "t)^(-1/2) in the end, not 1/log t.",
    code="nclab.ulpm.trajectory.slope",
    figure="fig2_flow",
)
def within_rate(numbers: Numbers) -> Finding:
    return _flow_rates(numbers, names=[WITHIN], claimed=-0.5, near=NEAR_A_HALF)


@_beyond(
    "normalised",
    f"Normalised descent on the layer-peeled model is past all of plain descent in {FEW_STEPS} "
    "steps.",
    code="nclab_papers.ji2022.fig2.steps_to_level",
    figure="fig2_descent",
)
def normalised_is_faster(numbers: Numbers) -> Finding:
    config = numbers["config"]
    never = int(config["normalised_steps"]) + 1
    steps = {one["seed"]: one["steps_to_level"] or never for one in numbers["per_seed"]}
    part = Part(
        f"{FEW_STEPS} less the steps until it is past {int(config['descent_steps'])} plain ones, "
        "in the margin and in (2), (3), (4)",
        {seed: float(FEW_STEPS - count) for seed, count in steps.items()},
    )
    return judge_effects([part], margin=0.0, unit="steps")


@_beyond(
    "invariants",
    "Gradient flow on the layer-peeled model conserves W'W - H'H, features being rows, and the sum "
    "of the classifiers; so does the computed one, to its end.",
    figure="fig2_flow",
)
def flow_keeps_its_invariants(numbers: Numbers) -> Finding:
    drifts = {
        one["seed"]: float(one["last"]["flow"]["invariant_drift"]) for one in numbers["per_seed"]
    }
    part = Share("drift below 1e-8", {seed: drift < 1e-8 for seed, drift in drifts.items()})
    found = judge_shares([part])
    evidence = f"largest drift {number(max(drifts.values()))}; {found.evidence}"
    return Finding(found.verdict, evidence, found.numbers)
