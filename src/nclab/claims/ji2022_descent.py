"""Section 4 of ji2022 on the layer-peeled model: its setting, Figure 2, how slow it is."""

from functools import cache, partial

import numpy as np

from nclab.claims.claim import Claim, Kind, Numbers
from nclab.claims.verdict import Finding, Verdict
from nclab.ulpm.descent import descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem
from nclab.ulpm.trajectory import slope

EXPERIMENT = "ji2022_fig2"
SIZES = (5, 10, 20)
"""Classes, samples a class and dimensions of the paper's run."""
RATE = 5.0
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
def _slopes(preset: str) -> Numbers:
    problem = Problem(*SIZES)
    times = np.geomspace(*WINDOW, 8)
    run = flow(problem, log_time=WINDOW[1], sample_at=times.tolist())
    rows = run.samples[-len(times) :]
    logs = [row.log_time for row in rows]
    names = [name for name, _ in PANELS.values()]
    return {"slopes": {name: slope(logs, [getattr(row, name) for row in rows]) for name in names}}


def _judge_panel(numbers: Numbers, *, panel: str) -> Finding:
    """Whether a quantity falls like the first power of 1 / log t."""
    name, what = PANELS[panel]
    rate = float(numbers["slopes"][name])
    evidence = (
        f"{what} falls like (log t)^({rate:.3f}) along the flow, log t from {WINDOW[0]:g} to "
        f"{WINDOW[1]:g}; claimed -1"
    )
    error = abs(rate + 1)
    verdict = Verdict.REPRODUCED if error <= NEAR else Verdict.PARTLY
    if not error <= FAIR:
        verdict = Verdict.NOT_REPRODUCED
    return Finding(verdict, evidence, {"slope": rate, "claimed": -1.0})


def _slowness(preset: str) -> Numbers:
    problem, steps = Problem(*SIZES), 2_000
    plain = descend(problem, steps=steps, rate=RATE, backend="numpy").last
    quick = normalised_descent(problem, steps=40, rate=300.0, sample_at=range(41))
    names = [name for name, _ in PANELS.values() if name != "nc2_norm_variation_means"]
    level = (
        sample.step
        for sample in quick.samples
        if sample.margin >= plain.margin
        and all(getattr(sample, name) <= getattr(plain, name) for name in names)
    )
    return {**_slopes(preset), "plain_steps": steps, "steps_to_level": next(level, None)}


def _judge_slowness(numbers: Numbers) -> Finding:
    rates = [float(rate) for rate in numbers["slopes"].values()]
    steps, plain = numbers["steps_to_level"], numbers.get("plain_steps", 100_000)
    evidence = (
        f"every quantity falls like a power between {min(rates):.2f} and {max(rates):.2f} of "
        f"log t, so to halve one t must at least be squared; a rate scaled by 1/(loss |theta|^2) "
        f"is past {plain} plain steps after {steps if steps is not None else 'more than all'} steps"
    )
    slow = all(-1.5 < rate < 0 for rate in rates)
    return Finding(Verdict.REPRODUCED if slow else Verdict.NOT_REPRODUCED, evidence, numbers)


def _evidence_only(numbers: Numbers) -> Finding:
    """The judgement of slowness, with the deciding numbers alone."""
    deciding = {
        "slopes": dict(numbers["slopes"]),
        "steps_to_level": numbers["steps_to_level"],
        "plain_steps": numbers.get("plain_steps", 100_000),
    }
    return _judge_slowness(deciding)


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
            _slopes,
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
        _evidence_only,
        _slowness,
        needs=EXPERIMENT,
        code="nclab.ulpm.descent.normalised_descent",
        figure="fig2_descent",
    ),
)
