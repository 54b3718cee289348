"""Section 4 of ji2022 on the layer-peeled model: its setting, Figure 2, how slow it is."""

from functools import cache, partial

import numpy as np

from nclab.papers.claim import Claim, Kind, Numbers
from nclab.papers.verdict import Finding, Verdict
from nclab.ulpm.descent import descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Array, Problem
from nclab.ulpm.trajectory import slope

EXPERIMENT = "ji2022_fig2"
SIZES = (5, 10, 20)
"""Classes, samples a class and dimensions of the paper's run."""
RATE = 5.0
PLAIN_STEPS = 2_000
"""Steps of plain descent where the experiment's numbers are not there; it has 1e5."""
SEEDS = {"quick": 2, "paper": 5}
WINDOW = (500.0, 1000.0)
"""In log t, where the rates are fitted."""
PANELS = {
    "a": ("nc2_norm_variation_means", "the variation of the norms of class means"),
    "b": ("nc1_within_variation", "the variation within classes"),
    "c": ("nc2_equiangularity_means", "the deviation of the cosines of class means"),
    "d": ("nc3_self_duality", "the distance of classifiers from class means"),
}
NEAR, FAIR = 0.05, 0.25
"""Relative errors of a rate that count as reproduced and as partly reproduced."""


def _reductions(preset: str) -> Numbers:
    found = {}
    for reduction in ("sum", "mean"):
        problem = Problem(*SIZES, "sum" if reduction == "sum" else "mean")
        run = descend(problem, steps=300, rate=RATE, backend="numpy")
        found[reduction] = {"outcome": run.outcome.value, "steps": run.last.step}
    return found


def _judge_reductions(numbers: Numbers) -> Finding:
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
def _runs(preset: str) -> Numbers:
    """What the experiment gives, from shorter runs of plain descent."""
    problem = Problem(*SIZES)
    times = np.geomspace(*WINDOW, 8)
    names = [name for name, _ in PANELS.values()]
    per_seed = []
    for seed in range(SEEDS[preset]):
        start = problem.initial(seed=seed)
        run = flow(problem, start, log_time=WINDOW[1], sample_at=times.tolist())
        rows = run.samples[-len(times) :]
        logs = [row.log_time for row in rows]
        rates = {name: slope(logs, [getattr(row, name) for row in rows]) for name in names}
        per_seed.append(
            {"seed": seed, "slopes": rates, "steps_to_level": _steps_to_level(problem, start)}
        )
    return {"config": {"descent_steps": PLAIN_STEPS}, "per_seed": per_seed}


def _steps_to_level(problem: Problem, start: Array) -> int | None:
    """Steps of normalised descent until it is past plain descent, in margin and (2), (3), (4)."""
    plain = descend(problem, start, steps=PLAIN_STEPS, rate=RATE, backend="numpy").last
    quick = normalised_descent(problem, start, steps=40, rate=300.0, sample_at=range(41))
    names = [name for name, _ in PANELS.values() if name != "nc2_norm_variation_means"]
    for sample in quick.samples:
        past = all(getattr(sample, name) <= getattr(plain, name) for name in names)
        if past and sample.margin >= plain.margin:
            return sample.step
    return None


def _judge_panel(numbers: Numbers, *, panel: str) -> Finding:
    """Whether a quantity falls like the first power of 1 / log t, in every seed."""
    name, what = PANELS[panel]
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


def _judge_slowness(numbers: Numbers) -> Finding:
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


CLAIMS = (
    Claim(
        "ji2022/sec-4-setting",
        Kind.RESULT,
        "Gradient descent with learning rate 5 on the objective (4), 10 samples in each of 5 "
        "classes, 20 dimensions, converges towards collapse.",
        "ji2022, Sec. 4",
        _judge_reductions,
        _reductions,
        code="nclab.ulpm.descent.descend",
        figure="fig2_descent",
    ),
    *(
        Claim(
            f"ji2022/fig-2{panel}",
            Kind.RESULT,
            f"Under gradient descent on the layer-peeled model {what} falls approximately like "
            "O(1/log t).",
            f"ji2022, Fig. 2 ({panel})",
            partial(_judge_panel, panel=panel),
            _runs,
            needs=EXPERIMENT,
            code="nclab.ulpm.trajectory.slope",
            figure="fig2_flow",
        )
        for panel, (_, what) in PANELS.items()
    ),
    Claim(
        "ji2022/sec-5.3-slow",
        Kind.RESULT,
        "Convergence to neural collapse is very slow; a rate that depends on the loss may help.",
        "ji2022, Sec. 5.3",
        _judge_slowness,
        _runs,
        needs=EXPERIMENT,
        code="nclab.ulpm.descent.normalised_descent",
        figure="fig2_descent",
    ),
)
