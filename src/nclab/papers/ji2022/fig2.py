"""Figure 2 of ji2022: collapse of the layer-peeled model by gradient descent, and far beyond it.

Claim: the four quantities of neural collapse fall like O(1/log t) under gradient descent.
Source: ji2022, Fig. 2
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Picture
from nclab.papers.claim import Claim, Kind, Numbers, claim
from nclab.papers.comparisons import share_verdict
from nclab.papers.tables import Table
from nclab.papers.verdict import Finding, Verdict
from nclab.progress import track
from nclab.text import number
from nclab.threads import one_thread
from nclab.ulpm.descent import descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem, Reduction
from nclab.ulpm.trajectory import slope

WITHIN = "nc1_within_variation"
QUANTITIES = {
    "nc2_norm_variation_means": "(1) norms",
    WITHIN: "(2) within",
    "nc2_equiangularity_means": "(3) cosines",
    "nc3_self_duality": "(4) duality",
}
RATE, NORMALISED_RATE = 5.0, 300.0
"""Of plain descent, on the mean loss, and of normalised descent."""
WINDOW = (500.0, 1000.0)
"""In log t, where the rates are fitted."""
NEAR, FAIR = 0.05, 0.25
"""Relative errors of a rate that count as reproduced and as partly reproduced."""
FEW_STEPS = 15
SEEDS = {"quick": 2, "paper": 5}
"""Of the short runs."""

Samples = Mapping[str, list[dict[str, Any]]]
"""Rows by the name of their run: descent, normalised, flow."""


@dataclass(frozen=True)
class Config:
    """The paper's sizes; start and reduction are ours, as it states neither."""

    classes: int = 5
    per_class: int = 10
    dim: int = 20
    scale: float = 0.1
    """Standard deviation of the start."""
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
SHORT = Config(descent_steps=2_000, normalised_steps=40)
"""What the claims are judged from where the experiment's numbers are not there."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The paper's run, the same level in a dozen steps, and the flow over 434 decades.

    Every seed is run; the samples of the first are kept for the figures.
    """
    per_seed = []
    with one_thread():
        for seed in track(seeds, "layer-peeled model"):
            samples = _samples(config, seed)
            per_seed.append({"seed": seed, **summary(samples)})
            if seed == seeds[0]:
                kept = samples
    return {"config": asdict(config), "per_seed": per_seed, "samples": kept}


def _samples(
    config: Config,
    seed: int,
    *,
    steps: Sequence[int] | None = None,
    log_times: Sequence[float] | None = None,
) -> Samples:
    """The three runs of a seed; normalised descent and the flow are sampled where it is asked."""
    problem = config.problem()
    start = problem.initial(scale=config.scale, seed=seed)
    plain, normalised = config.descent_steps, config.normalised_steps
    runs = {
        "descent": descend(problem, start, steps=plain, rate=RATE),
        "normalised": normalised_descent(
            problem, start, steps=normalised, rate=NORMALISED_RATE, sample_at=steps
        ),
        "flow": flow(problem, start, log_time=config.log_time, sample_at=log_times),
    }
    return {name: [sample.to_dict() for sample in one.samples] for name, one in runs.items()}


def summary(samples: Samples) -> dict[str, Any]:
    """Last points and rates of the three runs of one seed."""
    inside = [row for row in samples["flow"] if WINDOW[0] <= (row["log_time"] or 0) <= WINDOW[1]]
    x = np.log([row["log_time"] for row in inside])
    return {
        "last": {name: rows[-1] for name, rows in samples.items()},
        "slopes": {
            name: float(np.polyfit(x, np.log([row[name] for row in inside]), 1)[0])
            for name in QUANTITIES
        },
        "steps_to_level": steps_to_level(samples),
    }


def steps_to_level(samples: Samples) -> int | None:
    """Steps of normalised descent until it is past the last point of plain descent.

    Past in the margin and in (2), (3) and (4).
    """
    level = samples["descent"][-1]
    names = [name for name in QUANTITIES if name != "nc2_norm_variation_means"]
    for row in samples["normalised"]:
        if row["margin"] >= level["margin"] and all(row[n] <= level[n] for n in names):
            return int(row["step"])
    return None


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The last point of every run, and the rates of the flow."""
    columns = {"log_time": "log t", "margin": "margin", "normalised_margin": "normalised"}
    columns |= QUANTITIES
    rows = []
    for one in numbers["per_seed"]:
        seed = str(one["seed"])
        for name, last in one["last"].items():
            rows.append((name, seed, *(number(last[key]) for key in columns)))
        rates = (number(one["slopes"][key]) for key in QUANTITIES)
        rows.append(("flow, slope", seed, "", "", "", *rates))
    config = numbers["config"]
    sizes = f"C = {config['classes']}, N = {config['per_class']}, d = {config['dim']}"
    steps = ", ".join(str(one["steps_to_level"]) for one in numbers["per_seed"])
    title = f"The layer-peeled model, {sizes}; normalised descent is there after {steps} steps"
    return [Table(title, ("run", "seed", *columns.values()), rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The paper's four panels from descent and from the flow, and the margins of the flow."""
    descent, flow = numbers["samples"]["descent"], numbers["samples"]["flow"]
    titles = ("Gradient descent, 1e5 steps", "Gradient flow to log t = 1000")
    return [
        ulpm.quantities_picture(descent, title=titles[0], name="fig2_descent"),
        ulpm.quantities_picture(flow, title=titles[1], name="fig2_flow"),
        ulpm.margins_picture(flow, title=titles[1], name="margins_flow"),
    ]


def _reductions(preset: str) -> Numbers:
    reductions: tuple[Reduction, ...] = ("sum", "mean")
    found: dict[str, Any] = {}
    for reduction in reductions:
        run = descend(Config().problem(reduction), steps=300, rate=RATE, backend="numpy")
        found[reduction] = {"outcome": run.outcome.value, "steps": run.last.step}
    return found


@claim(
    "ji2022/sec-4-setting",
    Kind.RESULT,
    "Gradient descent with learning rate 5 on the objective (4), 10 samples in each of 5 classes, "
    "20 dimensions, converges towards collapse.",
    "ji2022, Sec. 4",
    gather=_reductions,
    code="nclab.ulpm.descent.descend",
    figure="fig2_descent",
)
def sec_4_setting(numbers: Numbers) -> Finding:
    total, mean = numbers["sum"], numbers["mean"]
    evidence = (
        f"at rate {RATE:g} descent on the sum (4) has {total['outcome']} within 300 steps, on the "
        f"mean it has {mean['outcome']}"
    )
    if total["outcome"] == "finished":
        return Finding(Verdict.HOLDS, evidence, numbers)
    right = mean["outcome"] == "finished"
    return Finding(Verdict.CORRECTED if right else Verdict.REFUTED, evidence, numbers)


@cache
def _short_runs(preset: str) -> Numbers:
    """What the experiment gives, from fewer steps of plain descent."""
    log_times = np.geomspace(*WINDOW, 8).tolist()
    per_seed = []
    for seed in range(SEEDS[preset]):
        samples = _samples(
            SHORT, seed, steps=range(SHORT.normalised_steps + 1), log_times=log_times
        )
        late = samples["flow"][-len(log_times) :]
        x = [row["log_time"] for row in late]
        rates = {name: slope(x, [row[name] for row in late]) for name in QUANTITIES}
        per_seed.append({"seed": seed, "slopes": rates, "steps_to_level": steps_to_level(samples)})
    return {"config": {"descent_steps": SHORT.descent_steps}, "per_seed": per_seed}


def _falls_like_1_over_log_t(numbers: Numbers, *, name: str, what: str) -> Finding:
    """Whether a quantity falls like the first power of 1 / log t, in every seed."""
    rates = [float(one["slopes"][name]) for one in numbers["per_seed"]]
    evidence = (
        f"{what} falls like (log t)^r along the flow, log t from {WINDOW[0]:g} to {WINDOW[1]:g}, "
        f"with r = {', '.join(f'{rate:.3f}' for rate in rates)}; claimed -1"
    )
    worst = max(abs(rate + 1) for rate in rates)
    verdict = Verdict.REPRODUCED if worst <= NEAR else Verdict.PARTLY
    if not worst <= FAIR:
        verdict = Verdict.NOT_REPRODUCED
    return Finding(verdict, evidence, {"slopes": rates, "claimed": -1.0})


def _panel(panel: str, name: str, what: str) -> Claim:
    return Claim(
        f"ji2022/fig-2{panel}",
        Kind.RESULT,
        f"Under gradient descent on the layer-peeled model {what} falls approximately like "
        "O(1/log t).",
        f"ji2022, Fig. 2 ({panel})",
        partial(_falls_like_1_over_log_t, name=name, what=what),
        _short_runs,
        needs="ji2022_fig2",
        code="nclab.ulpm.trajectory.slope",
        figure="fig2_flow",
    )


fig_2a = _panel("a", "nc2_norm_variation_means", "the variation of the norms of class means")
fig_2b = _panel("b", WITHIN, "the variation within classes")
fig_2c = _panel("c", "nc2_equiangularity_means", "the deviation of the cosines of class means")
fig_2d = _panel("d", "nc3_self_duality", "the distance of classifiers from class means")


@claim(
    "ji2022/sec-5.3-slow",
    Kind.RESULT,
    "Convergence to neural collapse is very slow; a rate that depends on the loss may help.",
    "ji2022, Sec. 5.3",
    gather=_short_runs,
    needs="ji2022_fig2",
    code="nclab.ulpm.descent.normalised_descent",
    figure="fig2_descent",
)
def sec_5_3_slow(numbers: Numbers) -> Finding:
    rates = [float(r) for one in numbers["per_seed"] for r in one["slopes"].values()]
    plain = int(numbers["config"]["descent_steps"])
    steps = [one["steps_to_level"] for one in numbers["per_seed"]]
    evidence = (
        f"every quantity falls like a power of log t between {min(rates):.2f} and "
        f"{max(rates):.2f}, so to halve one t must at least be squared; a rate divided by the loss "
        f"and the squared norm is past {plain} plain steps after {', '.join(map(str, steps))}"
    )
    slow = all(-1.5 < rate < 0 for rate in rates)
    helped = all(step is not None and step < plain / 10 for step in steps)
    verdict = Verdict.REPRODUCED if slow and helped else Verdict.PARTLY
    if not slow:
        verdict = Verdict.NOT_REPRODUCED
    deciding = {"slopes": rates, "plain_steps": plain, "steps_to_level": steps}
    return Finding(verdict, evidence, deciding)


@claim(
    "beyond/layer-peeled-within-rate",
    Kind.RESULT,
    "Under gradient flow on the layer-peeled model the variation within classes falls like (log "
    "t)^(-1/2), not 1/log t.",
    "ji2022, Fig. 2",
    needs="ji2022_fig2",
    code="nclab.ulpm.trajectory.slope",
    figure="fig2_flow",
)
def within_rate(numbers: Numbers) -> Finding:
    rates = [float(one["slopes"][WITHIN]) for one in numbers["per_seed"]]
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    holding = sum(abs(rate + 0.5) <= 0.02 for rate in rates)
    evidence = f"(log t)^r with r = {shown}, within 0.02 of -1/2 in {holding} of {len(rates)} seeds"
    return Finding(share_verdict(holding, len(rates)), evidence, {"slopes": rates})


@claim(
    "beyond/layer-peeled-normalised",
    Kind.RESULT,
    f"Normalised descent on the layer-peeled model is past all of plain descent in {FEW_STEPS} "
    "steps.",
    "ji2022, Fig. 2",
    needs="ji2022_fig2",
    code="nclab.ulpm.descent.normalised_descent",
    figure="fig2_descent",
)
def normalised_is_faster(numbers: Numbers) -> Finding:
    steps = [one["steps_to_level"] for one in numbers["per_seed"]]
    plain = int(numbers["config"]["descent_steps"])
    holding = sum(step is not None and step <= FEW_STEPS for step in steps)
    evidence = (
        f"past {plain} plain steps, in the margin and in (2), (3), (4), after "
        f"{', '.join(map(str, steps))}"
    )
    return Finding(share_verdict(holding, len(steps)), evidence, {"steps_to_level": steps})


@claim(
    "beyond/layer-peeled-invariants",
    Kind.RESULT,
    "Gradient flow on the layer-peeled model conserves W'W - H'H, features being rows, and the sum "
    "of the classifiers; so does the computed one, to its end.",
    "ji2022, Fig. 2",
    needs="ji2022_fig2",
    code="nclab.ulpm.problem.invariants",
    figure="fig2_flow",
)
def flow_keeps_its_invariants(numbers: Numbers) -> Finding:
    drifts = [float(one["last"]["flow"]["invariant_drift"]) for one in numbers["per_seed"]]
    holding = sum(drift < 1e-8 for drift in drifts)
    shown = ", ".join(map(number, drifts))
    evidence = f"they have drifted by {shown}, below 1e-8 in {holding} of {len(drifts)} seeds"
    return Finding(share_verdict(holding, len(drifts)), evidence, {"invariant_drift": drifts})
