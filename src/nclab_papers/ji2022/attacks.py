"""Artificial results of ji2022 for tests: ideal ones, and changes that alter a verdict."""

import math
from dataclasses import asdict
from functools import reduce

from nclab.claims.attacks import (
    Attacks,
    Case,
    Change,
    Numbers,
    change_rows,
    changed,
    put,
    reverse,
    unchanged,
)
from nclab.claims.claim import Claim
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022.fig2 import steps_to_level
from nclab_papers.ji2022.fig3 import PRESETS

SEEDS = range(8)
EPOCHS = (0, 1, 3, 10, 30, 100, 140, 200, 260, 300, 400, 500)


def fig3() -> Numbers:
    """Return invented results of Figure 3 that satisfy all claims at the paper's size.

    All quantities fall like 1/log t and end below 0.1.
    """
    return {
        "config": asdict(PRESETS["published"]),
        "seeds": list(SEEDS),
        "rows": [
            {"seed": seed, "epoch": epoch, "accuracy": float(epoch >= 100)}
            | dict.fromkeys(QUANTITIES, 0.5 / math.log(epoch + 3))
            for seed in SEEDS
            for epoch in EPOCHS
        ],
    }


def fig2() -> Numbers:
    """Return invented results of Figure 2 that satisfy all claims.

    All quantities fall like 1/log t, except that the within-class variation of the flow falls like
    1/sqrt(log t).
    """
    steps, log_times = [round(10 ** (k / 2)) for k in range(2, 11)], [500.0, 700.0, 1000.0]
    flow = {key: [1 / x for x in log_times] for key in QUANTITIES}
    flow["nc1_within_variation"] = [x**-0.5 for x in log_times]
    curves = {key: [1 / math.log(t) for t in steps] for key in QUANTITIES}
    return {
        "config": {"scale": 0.1, "descent_steps": 100_000, "normalised_steps": 1000},
        "seeds": list(SEEDS),
        "per_seed": [
            {
                "seed": seed,
                "starts": [
                    {"scale": scale, "descent": {"step": steps, **curves}} for scale in (0.1, 1.0)
                ],
                "flow": {"log_time": log_times, **flow},
                "steps_to_level": 12,
                "last": {"flow": {"invariant_drift": 1e-11}},
            }
            for seed in SEEDS
        ],
    }


def steeper(run: str, name: str, power: float) -> Change:
    """Return a function that raises a curve of Figure 2 to a power and so multiplies its slope."""
    return put(f"per_seed.*.{run}.{name}", lambda values: [value**power for value in values])


def all_steeper(numbers: Numbers) -> Numbers:
    """Return results of Figure 2 in which the curves of descent fall fast, about like t^-0.4."""
    changes = [steeper("starts.*.descent", name, 3.6) for name in QUANTITIES]
    return reduce(lambda result, change: change(result), changes, numbers)


def ahead_after(steps: int) -> Case:
    """Return a test case in which normalised descent passes plain descent after `steps` steps."""

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        level = dict.fromkeys(("margin", *QUANTITIES), 1.0)
        early = level | {"margin": 0.0}
        rows = [{"step": step, **(early if step < steps else level)} for step in range(30)]
        count = steps_to_level({"descent": [level], "normalised": rows})
        return {**numbers, "per_seed": [{"seed": seed, "steps_to_level": count} for seed in SEEDS]}

    return case


def late_falls(numbers: Numbers) -> Numbers:
    """Return Figure 3 with the first 7 of its 12 measurements in reverse order.

    Of all 66 pairs of measurements, 21 then rise instead of falling.
    """
    rows = []
    for row in numbers["rows"]:
        same_seed = [other for other in numbers["rows"] if other["seed"] == row["seed"]]
        index = same_seed.index(row)
        source = same_seed[6 - index] if index < 7 else row
        rows.append({**row, **{name: source[name] for name in QUANTITIES}})
    return {**numbers, "rows": rows}


def reversed_training(numbers: Numbers) -> Numbers:
    """Return Figure 3 with the quantities of every second seed reversed in time.

    The accuracy is not reversed.
    """
    accuracies = {row["epoch"]: row["accuracy"] for row in numbers["rows"]}
    shuffled = reverse("rows", "epoch")(numbers)
    rows = [{**row, "accuracy": accuracies[row["epoch"]]} for row in shuffled["rows"]]
    return {**numbers, "rows": sorted(rows, key=lambda row: (row["seed"], row["epoch"]))}


def both_on_the_mean(numbers: Numbers) -> Numbers:
    """Replace the results of descent on the summed loss by those on the mean loss."""
    return {**numbers, "sum": numbers["mean"]}


printed_as_measured = change_rows("rows", lambda row: {"printed": row["measured"]})
stochastic_descent_arrives = put("per_seed.*.stochastic.normalised_margin", 0.99)
HOLDS, CORRECTED, REFUTED = "holds", "holds with a correction", "refuted"
DEPENDS = "depends"
STATEMENTS: dict[str, tuple[str, str, Change]] = {
    "eq-1": (HOLDS, "Jensen and Cauchy-Schwarz", put("search_gap", 0.1)),
    "def-2.1": (HOLDS, "the Gram matrix of a simplex", put("gram_error", 0.1)),
    "nc1": (HOLDS, "consistent", put("within_variation.0", 0.1)),
    "nc2": (HOLDS, "the printed cosines put the mean in the origin", put("centred_error", 0.1)),
    "nc3": (HOLDS, "consistent; NC4 has the sign", put("negative.distance", 0.0)),
    "nc4": (CORRECTED, "argmax", put("argmax_agreement", 0.5)),
    "eq-4": (HOLDS, "two minima and a hill between them", put("loss_between", 0.0)),
    "sec-2.2-flow": (CORRECTED, "the sign", put("change_printed", -1.0)),
    "def-3.1": (HOLDS, "consistent", put("error", 0.1)),
    "lemma-3.1": (HOLDS, "Cauchy-Schwarz, attained", put("frame_ratio", 0.5)),
    "remark-3.1": (CORRECTED, "the power is 1", put("rows.0.power_one", 100.0)),
    "remark-3.1-margin": (HOLDS, "two scalings of one problem", put("rows.0.margin", 9.0)),
    "thm-3.2": (HOLDS, "Lemma 3.1 with margin 1", put("rows.0.value", 100.0)),
    "thm-3.1": (HOLDS, "both residuals fall", put("rows.*.epsilon", 1.0)),
    "lemma-3.2": (CORRECTED, "beta needs the minus", put("equality_error", 0.1)),
    "lemma-3.3": (HOLDS, "the margin grows like log t", put("rows.*.margin", 5.0)),
    "eq-8": (HOLDS, "by arithmetic", put("residual", 0.1)),
    "eq-9": (CORRECTED, "0.2384 against 0.1332 at C = 1", printed_as_measured),
    "example-3.1-stuck": (HOLDS, "parallel to the gradient", put("per_seed.0.stuck.off_ray", 1)),
    "eq-11": (CORRECTED, "it falls beyond e^(-2C^2)", put("rows.*.change", -1.0)),
    "example-3.1-saddle": (CORRECTED, "it is the other point", put("rows.0.point", "not critical")),
    "example-3.1-noise": (CORRECTED, "minibatches stay in a plane", stochastic_descent_arrives),
    "remark-3.3": (DEPENDS, "only large noise leaves soon", put("runs.*.left", [1, 2])),
    "sec-1.1-landscape": (HOLDS, "all found are saddles", put("critical.0.eigenvalue", 0.0)),
    "sec-3.2-infinity": (HOLDS, "margins grow with the scale", put("largest_slope", 0.1)),
    "sec-3.2-speeds": (HOLDS, "the smallest margin", put("fastest", 1.1)),
    "thm-3.3": (HOLDS, "the closed form is reached", put("smallest_gap", -0.1)),
    "remark-3.2": (CORRECTED, "the factors must have one sign", put("rows.*.collapse_error", 0.0)),
    "def-3.2": (HOLDS, "consistent", put("cosine", 0.1)),
    "thm-3.4": (HOLDS, "even with <", put("critical.0.change", 0.1)),
    "sec-4-setting": (CORRECTED, "rate 5 diverges on the sum", both_on_the_mean),
    "sec-5.2-max": (HOLDS, "a sum and its largest term", put("rows.*.error", 0.05)),
    "sec-5.2-convex": (CORRECTED, "strictly decreasing losses", put("rows.0.lowest", 0.1)),
    "sec-5.2-decay": (CORRECTED, "true of scale-invariant networks", put("scale_invariant", 0.1)),
}
"""For each claim that needs no experiment: the expected verdict, the reason for this verdict, and a
change to the numbers that makes the claim false."""
RESULTS: dict[str, Change] = {
    "ji2022/fig-3a": put("rows.*.nc2_norm_variation_weights", 0.5),
    "ji2022/fig-3b": put("rows.*.nc1_within_variation", 0.5),
    "ji2022/fig-3c": put("rows.*.nc2_equiangularity_means", 0.5),
    "ji2022/fig-3d": put("rows.*.nc3_self_duality", 0.5),
    "ji2022/sec-4-realistic": put("rows.*.nc3_self_duality", 0.5),
    "ji2022/fig-2a": steeper("starts.*.descent", "nc2_norm_variation_weights", 0.6),
    "ji2022/fig-2b": steeper("starts.*.descent", "nc1_within_variation", 0.6),
    "ji2022/fig-2c": steeper("starts.*.descent", "nc2_equiangularity_weights", 0.6),
    "ji2022/fig-2d": steeper("starts.*.descent", "nc3_self_duality", 0.6),
    "ji2022/sec-5.3-slow": steeper("starts.*.descent", "nc3_self_duality", 9.0),
    "findings/layer-peeled-rates": steeper("flow", "nc2_equiangularity_weights", 1.1),
    "findings/layer-peeled-within-rate": steeper("flow", "nc1_within_variation", 2.0),
    "findings/layer-peeled-normalised": put("per_seed.*.steps_to_level", None),
    "findings/layer-peeled-invariants": put("per_seed.*.last.flow.invariant_drift", 0.1),
}
"""For each empirical claim, a change to the numbers that makes the claim false."""

RATE = "a slope compared with a stated rate; a constant curve contradicts the claim"
TRAINED = "its numbers come from training"
PANELS = ("ji2022/fig-2a", "ji2022/fig-2b", "ji2022/fig-2c", "ji2022/fig-2d")
FALLING = ("ji2022/fig-3b", "ji2022/fig-3c", "ji2022/fig-3d", "ji2022/sec-4-realistic")
ATTACKS = Attacks(
    verdicts={f"ji2022/{name}": row[:2] for name, row in STATEMENTS.items()},
    ideal={"ji2022_fig2": fig2, "ji2022_fig3": fig3},
    spoiled=RESULTS | {f"ji2022/{name}": change for name, (*_, change) in STATEMENTS.items()},
    shuffled=dict.fromkeys(FALLING, reversed_training),
    not_shuffled={
        **dict.fromkeys(PANELS, RATE),
        **dict.fromkeys(("findings/layer-peeled-rates", "findings/layer-peeled-within-rate"), RATE),
        "findings/layer-peeled-normalised": "a number of steps compared with a bound of 15",
        "findings/layer-peeled-invariants": "a drift compared with a bound of 1e-8",
        "ji2022/sec-5.3-slow": "a speed compared with a bound of 1/2; a constant is slow as well",
        "ji2022/fig-3a": "a level at the end of training compared with 0.1",
    },
    wrong_code={
        **{name: (unchanged, changed(RESULTS[name])) for name in PANELS},
        "ji2022/sec-5.3-slow": (unchanged, changed(all_steeper)),
        "findings/layer-peeled-normalised": (ahead_after(12), ahead_after(20)),
        **{
            name: (unchanged, changed(RESULTS[name]), changed(late_falls))
            for name in ("ji2022/fig-3d", "ji2022/sec-4-realistic")
        },
    },
    no_code={
        "findings/layer-peeled-invariants": "a drift that the flow records",
        "ji2022/fig-3a": TRAINED,
        "ji2022/fig-3b": "the sign of a difference of likelihoods, which no factor changes",
        "ji2022/fig-3c": TRAINED,
    },
    unnoticed={("ji2022/def-2.1", "sign"): "the negative of a frame is a frame"},
)
