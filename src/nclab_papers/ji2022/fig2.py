"""Figure 2 of ji2022: collapse of the layer-peeled model under gradient descent, and beyond.

Claim: the four quantities of neural collapse fall approximately at rate O(1/log t) under descent.
Source: ji2022, Fig. 2

Claims are judged on the curves that the paper shows: six quantities during 1e5 steps, where t is
the number of steps. The paper states neither the scale of its random starting point nor the range
of steps in which it sees the rate. The experiment therefore varies both. Gradient flow to
t = 1e434 shows how fast the curves fall in the end; these results are findings of this project.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from nclab.claims.claim import Claim, Finding, Kind, Numbers, claim
from nclab.claims.effects import Part, Share
from nclab.claims.judging import judge_effects, judge_settings, with_readings
from nclab.claims.statements import holds_if
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Picture
from nclab.progress import track
from nclab.text import number
from nclab.ulpm.descent import descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem, Reduction
from nclab.ulpm.trajectory import slope

WITHIN = "nc1_within_variation"
QUANTITIES = {
    "nc2_norm_variation_means": "(1) norms of means",
    "nc2_norm_variation_weights": "(1) norms of classifiers",
    WITHIN: "(2) within classes",
    "nc2_equiangularity_means": "(3) angles of means",
    "nc2_equiangularity_weights": "(3) angles of classifiers",
    "nc3_self_duality": "(4) self-duality",
}
"""The six curves of the figure with their labels."""
CURVES = {
    "a": ("nc2_norm_variation_means", "nc2_norm_variation_weights"),
    "b": (WITHIN,),
    "c": ("nc2_equiangularity_means", "nc2_equiangularity_weights"),
    "d": ("nc3_self_duality",),
}
"""Panel of the figure -> names of the quantities that it shows."""
RATE, NORMALISED_RATE = 5.0, 300.0
"""Learning rates of plain descent on the mean loss, and of normalised descent."""
WINDOWS = (1000, 100, 10)
"""First steps of the windows in which slopes are fitted; every window ends at the last step."""
NEAR = 0.25
"""A slope of at most -1 plus this number counts as "approximately" O(1/log t)."""
FLOW_WINDOW = (500.0, 1000.0)
"""Range of log t in which the rates of the flow are fitted."""
FLOW_NEAR, FLOW_NEAR_WITHIN = 0.05, 0.02
"""Largest accepted distance of a slope of the flow from -1 (within-class variation: from -1/2)."""
SLOW = 0.5
"""A quantity falls slowly if it falls more slowly than 1/t to this power."""
DIGITS = 6
"""Significant digits of the recorded curves."""
FEW_STEPS = 15
"""Number of steps within which normalised descent must pass plain descent."""

Curves = dict[str, dict[int, float]]
"""Name of a quantity -> seed -> number, such as the slope of the quantity's curve."""
Samples = Mapping[str, list[dict[str, Any]]]
"""Measurements along each run; the keys are "descent", "normalised" and "flow"."""


@dataclass(frozen=True)
class Config:
    """Sizes of the problem and the runs, as in the paper; the scale of the start is our choice."""

    classes: int = 5
    per_class: int = 10
    dim: int = 20
    scale: float = 0.1
    """Standard deviation of the entries of W and H at the start of every run."""
    scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Further values of `scale`, at which only plain descent starts."""
    descent_steps: int = 100_000
    """Steps of plain descent, at rate 5 on the mean loss."""
    normalised_steps: int = 1000
    """Steps of normalised descent, at rate 300."""
    log_time: float = 1000.0
    """Logarithm of the time t at which the flow ends: t = 1e434."""

    def problem(self, reduction: Reduction = "mean") -> Problem:
        """Return the layer-peeled model of these sizes."""
        return Problem(self.classes, self.per_class, self.dim, reduction)


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run plain descent from all starts, normalised descent and gradient flow, for every seed.

    A seed draws the starting point; the starts of one seed differ only by a factor. The result has
    the curves of every seed within the windows. For the figures it also has all samples of the
    first seed.
    """
    per_seed: list[dict[str, Any]] = []
    first_samples: Samples = {}
    with one_thread():
        for seed in track(seeds, "layer-peeled model"):
            samples = _samples(config, seed)
            starts = []
            for scale in config.scales:
                is_measured = scale == config.scale
                rows = samples["descent"] if is_measured else _descent(config, seed, scale)
                curves = _window(rows, "step", (min(WINDOWS), math.inf))
                starts.append({"scale": scale, "descent": curves})
            per_seed.append(
                {
                    "seed": seed,
                    "last": {name: rows[-1] for name, rows in samples.items()},
                    "flow": _window(samples["flow"], "log_time", FLOW_WINDOW),
                    "steps_to_level": steps_to_level(samples),
                    "starts": starts,
                }
            )
            first_samples = first_samples or samples
    return {
        "config": asdict(config),
        "seeds": list(seeds),
        "per_seed": per_seed,
        "samples": first_samples,
    }


def _samples(config: Config, seed: int) -> Samples:
    """Run plain descent, normalised descent and the flow with one seed; return their samples."""
    problem = config.problem()
    start = problem.initial(scale=config.scale, seed=seed)
    normalised = normalised_descent(
        problem, start, steps=config.normalised_steps, rate=NORMALISED_RATE
    )
    flowing = flow(problem, start, log_time=config.log_time)
    return {
        "descent": _descent(config, seed, config.scale),
        "normalised": [sample.to_dict() for sample in normalised.samples],
        "flow": [sample.to_dict() for sample in flowing.samples],
    }


def _descent(config: Config, seed: int, scale: float) -> list[dict[str, Any]]:
    """Return the samples of plain descent from a start with the given standard deviation."""
    problem = config.problem()
    start = problem.initial(scale=scale, seed=seed)
    run = descend(problem, start, steps=config.descent_steps, rate=RATE)
    return [sample.to_dict() for sample in run.samples]


def _window(rows: Iterable[Row], axis: str, ends: tuple[float, float]) -> dict[str, list[float]]:
    """Return the axis and the six curves as columns, for rows whose `axis` is between `ends`."""
    inside = [row for row in rows if ends[0] <= (row[axis] or 0) <= ends[1]]
    return {
        name: [float(f"{row[name]:.{DIGITS}g}") for row in inside] for name in (axis, *QUANTITIES)
    }


def steps_to_level(samples: Samples) -> int | None:
    """Return the number of steps until normalised descent passes plain descent; None if never.

    It passes plain descent if, compared with the last sample of plain descent, its margin is at
    least as large, and the within-class variation, the deviations of the angles and the distance
    from self-duality are at least as small.
    """
    level = samples["descent"][-1]
    names = [name for name in QUANTITIES if not name.startswith("nc2_norm_variation")]
    for row in samples["normalised"]:
        if row["margin"] >= level["margin"] and all(row[n] <= level[n] for n in names):
            return int(row["step"])
    return None


def figure_slope(start: Row, name: str, first: int) -> float:
    """Return the slope of log(curve) against log log t, from step `first` on.

    The curve is that of one quantity under plain descent; these are the axes of the figure.
    """
    steps, values = _curve_from(first, start, name)
    return slope(np.log(steps), values)


def flow_time_slope(start: Row, name: str, first: int) -> float:
    """Return `figure_slope` with t replaced by learning rate times steps, the time of the flow."""
    steps, values = _curve_from(first, start, name)
    return slope(np.log(RATE * np.asarray(steps)), values)


def power(start: Row, name: str, first: int) -> float:
    """Return the slope of log(curve) against log t under plain descent, from step `first` on."""
    return slope(*_curve_from(first, start, name))  # `slope` takes logarithms itself


def _curve_from(first: int, start: Row, name: str) -> tuple[list[float], list[float]]:
    """Return the steps and values of a curve, beginning at a given step."""
    steps = start["descent"]["step"]
    if not any(first <= step < 10 * first for step in steps):
        start_step = min(steps, default=None)
        raise ValueError(f"Expected curves from step {first} on, got step {start_step} and later.")
    begin = bisect_left(steps, first)
    return steps[begin:], start["descent"][name][begin:]


def _by_choice(
    numbers: Numbers, names: Iterable[str], measure: Callable[[Row, str, int], float]
) -> dict[str, Curves]:
    """Apply `measure` to curves of plain descent; return the values by choice, curve and seed.

    A choice is a scale of the starting point and a window of steps. The paper states neither.
    """
    choices: dict[str, Curves] = {}
    for seed, first in product(numbers["per_seed"], WINDOWS):
        for start in seed["starts"]:
            choice = f"start {start['scale']:g} from step {first}"
            for name in names:
                values = choices.setdefault(choice, {}).setdefault(name, {})
                values[seed["seed"]] = measure(start, name, first)
    return choices


def flow_slopes(numbers: Numbers, names: Iterable[str] = tuple(QUANTITIES)) -> Curves:
    """Return the slopes of log(curve) against log log t for the flow, in `FLOW_WINDOW`."""
    return {
        name: {
            seed["seed"]: slope(seed["flow"]["log_time"], seed["flow"][name])
            for seed in numbers["per_seed"]
        }
        for name in names
    }


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the last sample of every run, with slopes of descent and of the flow."""
    columns = {"log_time": "log t", "margin": "margin", "normalised_margin": "normalised margin"}
    columns |= QUANTITIES
    seeds = numbers["per_seed"]
    rows = []
    for run in seeds[0]["last"]:
        lasts = [seed["last"][run] for seed in seeds]
        cells = (mean_and_deviation((last[name] for last in lasts), ".3g") for name in columns)
        rows.append((run, *cells))
    by_choice = _by_choice(numbers, QUANTITIES, figure_slope)
    slopes = {f"descent, slope, {choice}": curves for choice, curves in by_choice.items()}
    slopes["flow, slope"] = flow_slopes(numbers)
    for label, curves in slopes.items():
        cells = (mean_and_deviation(curves[name].values(), ".3g") for name in QUANTITIES)
        rows.append((label, "", "", "", *cells))
    config = numbers["config"]
    sizes = f"C = {config['classes']}, N = {config['per_class']}, d = {config['dim']}"
    steps = ", ".join(str(seed["steps_to_level"]) for seed in seeds)
    title = (
        f"The layer-peeled model, {sizes}. Normalised descent passes plain descent after {steps} "
        "steps, by seed"
    )
    return [Table(title, ("run", *columns.values()), rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return pictures of the paper's panels for descent and for the flow, and of its margins."""
    flow = numbers["samples"]["flow"]
    descent = [
        {**row, "log_time": math.log(row["step"])}
        for row in numbers["samples"]["descent"]
        if row["step"]
    ]
    titles = ("Gradient descent, 1e5 steps", "Gradient flow to log t = 1000")
    return [
        ulpm.quantities_picture(descent, title=titles[0], name="fig2_descent"),
        ulpm.quantities_picture(flow, title=titles[1], name="fig2_flow"),
        ulpm.margins_picture(flow, title=titles[1], name="margins_flow"),
    ]


def _reductions(preset: str) -> Numbers:
    """Return how descent at rate 5 ends on the summed and on the mean loss, by start scale."""
    reductions: tuple[Reduction, ...] = ("sum", "mean")
    numbers: dict[str, Any] = {reduction: [] for reduction in reductions}
    for reduction, scale in product(reductions, (1e-12, 1e-8, 1e-2, 0.1)):
        problem = Config().problem(reduction)
        run = descend(problem, problem.initial(scale=scale), steps=1000, rate=RATE)
        numbers[reduction].append(
            {
                "scale": scale,
                "outcome": run.outcome.value,
                "steps": run.last.step,
                "normalised_margin": run.last.normalised_margin,
            }
        )
    return numbers


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
    """Require that descent on the summed loss converges from a start of size 0.01 or more.

    Otherwise the claim counts as corrected if descent on the mean loss converges from all these
    starts. A run converges if its normalised margin ends between 0.5 and 1, the largest value.
    """

    def outcome(row: Row) -> str:
        if row["outcome"] != "finished":
            return str(row["outcome"])
        return f"{number(row['normalised_margin'])} after {row['steps']} steps"

    outcomes = {name: ", ".join(map(outcome, numbers[name])) for name in ("sum", "mean")}
    scales = ", ".join(f"{row['scale']:g}" for row in numbers["sum"])
    evidence = (
        f"normalised margins at rate {RATE:g} from starts of size {scales}: on the sum (4) "
        f"{outcomes['sum']}; on the mean {outcomes['mean']}"
    )
    on_sum, on_mean = (
        [
            row["outcome"] == "finished" and 0.5 <= row["normalised_margin"] <= 1
            for row in numbers[name]
            if row["scale"] >= 1e-2
        ]
        for name in ("sum", "mean")
    )
    return holds_if(any(on_sum), evidence, numbers, corrected=all(on_mean))


def _judge_settings(
    curves: Mapping[str, Curves],
    quantity: str,
    answer: str,
    *,
    above: float | None = None,
    below: float | None = None,
) -> Finding:
    """Judge the curves of every setting; return the verdict over all settings.

    A setting is a scale of the starting point and a window of steps. The paper states neither.

    Args:
        curves: setting -> quantity -> value by seed, such as a slope.
        quantity: what the values are, such as "power of t".
        answer: words before the list of verdicts by setting.
        above: value that all values should exceed.
        below: value that all values should stay below.
    """
    findings = {
        setting: judge_effects(
            [
                Part(f"{quantity}, {QUANTITIES[name]}", values, above=above, below=below)
                for name, values in by_name.items()
            ]
        )
        for setting, by_name in curves.items()
    }
    return judge_settings(findings, answer)


def _figure_rates(numbers: Numbers, *, names: Sequence[str]) -> Finding:
    """Judge whether curves fall at least about as fast as 1/log t, for every start and window.

    O(1/log t) is an upper bound, so a curve that falls faster also agrees with the claim. Other
    readings ask for this rate exactly, or measure t in time of the flow.
    """
    slopes, bound = _by_choice(numbers, names, figure_slope), -1 + NEAR
    quantity = "slope over log log t"
    finding = _judge_settings(slopes, quantity, f"slopes below {bound:g}", below=bound)
    exactly = _judge_settings(slopes, quantity, "", above=-1 - NEAR, below=bound)
    in_flow_time = _by_choice(numbers, names, flow_time_slope)
    readings = {
        "the rate is exactly 1/log t": exactly,
        "t is the time of the flow": _judge_settings(in_flow_time, quantity, "", below=bound),
    }
    by_curve = {
        name: {choice: list(curves[name].values()) for choice, curves in slopes.items()}
        for name in names
    }
    finding = replace(finding, numbers={**finding.numbers, "slopes": by_curve})
    return with_readings(finding, readings)


def _panel_claim(panel: str, quote: str, statement: str) -> Claim:
    """Return the claim of a panel of the figure."""
    return Claim(
        f"ji2022/fig-2{panel}",
        Kind.RESULT,
        f"Under gradient descent on the layer-peeled model {statement} approximately at rate "
        "O(1/log t).",
        f"ji2022, Fig. 2 ({panel}) “{quote}”",
        partial(_figure_rates, names=CURVES[panel]),
        needs="ji2022_fig2",
        code="nclab.ulpm.trajectory.slope",
        figure="fig2_descent",
    )


fig_2a = _panel_claim(
    "a",
    "the logarithm of both terms decrease at rate",
    "the variations of the norms of class means and of classifiers fall",
)
fig_2b = _panel_claim(
    "b",
    "Logarithm of the variation converge approximately at rate",
    "the variation within classes falls",
)
fig_2c = _panel_claim(
    "c",
    "Logarithm of both terms converge approximately at rate",
    "the deviations of the cosines of class means and of classifiers fall",
)
fig_2d = _panel_claim(
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
    """Require that no quantity falls as fast as 1/sqrt t; this number is our reading.

    This claim is about speed only: a curve that stalls is slow. Whether curves fall is judged by
    the claims on the panels.
    """
    powers = _by_choice(numbers, QUANTITIES, power)
    answer = f"powers of t above {-SLOW:g}, which is 1/√t"
    return _judge_settings(powers, "power of t", answer, above=-SLOW)


def _flow_rates(numbers: Numbers, *, names: Sequence[str], claimed: float, near: float) -> Finding:
    """Judge whether quantities fall like a power of log t at the end of the gradient flow.

    Args:
        names: quantities, each of which is a part of the claim.
        claimed: the power of log t according to the claim.
        near: largest difference between the fitted and the claimed power.
    """
    slopes = flow_slopes(numbers, names)
    parts = [
        Part(
            f"slope over log log t, {QUANTITIES[name]}",
            values,
            above=claimed - near,
            below=claimed + near,
        )
        for name, values in slopes.items()
    ]
    finding = judge_effects(parts)
    start = f"starts of size {numbers['config']['scale']:g}; {finding.evidence}"
    by_curve = {name: list(values.values()) for name, values in slopes.items()}
    return replace(finding, evidence=start, numbers={**finding.numbers, "slopes": by_curve})


our_finding = partial(claim, kind=Kind.RESULT, source="ji2022, Fig. 2", needs="ji2022_fig2")


@our_finding(
    "findings/layer-peeled-rates",
    text="Under gradient flow on the layer-peeled model norms, cosines and self-duality, of means "
    "and of classifiers, fall like 1/log t in the end, log t from 500 to 1000.",
    code="nclab.ulpm.trajectory.slope",
    figure="fig2_flow",
)
def rates_in_the_end(numbers: Numbers) -> Finding:
    names = [name for name in QUANTITIES if name != WITHIN]
    return _flow_rates(numbers, names=names, claimed=-1.0, near=FLOW_NEAR)


@our_finding(
    "findings/layer-peeled-within-rate",
    text="Under gradient flow on the layer-peeled model the variation within classes falls like "
    "(log t)^(-1/2) in the end, not 1/log t.",
    code="nclab.ulpm.trajectory.slope",
    figure="fig2_flow",
)
def within_rate(numbers: Numbers) -> Finding:
    return _flow_rates(numbers, names=[WITHIN], claimed=-0.5, near=FLOW_NEAR_WITHIN)


@our_finding(
    "findings/layer-peeled-normalised",
    text=f"Normalised descent on the layer-peeled model passes plain descent in {FEW_STEPS} steps.",
    code="nclab_papers.ji2022.fig2.steps_to_level",
    figure="fig2_descent",
)
def normalised_is_faster(numbers: Numbers) -> Finding:
    config = numbers["config"]
    never = int(config["normalised_steps"]) + 1
    steps = {seed["seed"]: seed["steps_to_level"] or never for seed in numbers["per_seed"]}
    part = Part(
        f"number of steps until normalised descent passes {int(config['descent_steps'])} plain "
        "steps in the margin and in (2), (3), (4)",
        {seed: float(count) for seed, count in steps.items()},
        below=FEW_STEPS,
        step=1.0,
    )
    return judge_effects([part])


@our_finding(
    "findings/layer-peeled-invariants",
    text="Gradient flow on the layer-peeled model conserves W'W - H'H, with features as rows, and "
    "the sum of the classifiers. The computed flow conserves them to its end.",
    figure="fig2_flow",
)
def flow_keeps_its_invariants(numbers: Numbers) -> Finding:
    drifts = {
        seed["seed"]: float(seed["last"]["flow"]["invariant_drift"]) for seed in numbers["per_seed"]
    }
    part = Share(
        "the drift stays below 1e-8", {seed: drift < 1e-8 for seed, drift in drifts.items()}
    )
    finding = judge_effects([part])
    evidence = f"largest drift {number(max(drifts.values()))}; {finding.evidence}"
    return replace(finding, evidence=evidence)
