"""Numbers of experiments as the papers would have them, and how to make each claim fail."""

import math
from dataclasses import asdict
from typing import Any

from nclab_papers.ji2022.fig3 import PRESETS
from tests.claims.spoils import Spoil, put
from tests.nclab_papers.pan2023.spoiled import SPOILED
from tests.nclab_papers.pan2023.thesis_rows import EXPERIMENTS
from tests.nclab_papers.shared.studies import STUDIES, STUDY_SPOILS

QUANTITIES = (
    "nc2_norm_variation_means",
    "nc2_norm_variation_weights",
    "nc1_within_variation",
    "nc2_equiangularity_means",
    "nc2_equiangularity_weights",
    "nc3_self_duality",
)


SEEDS = range(8)


def fig3() -> dict[str, Any]:
    """The paper's size; every quantity falls like 1/log t and ends below 0.1."""
    return {
        "config": asdict(PRESETS["published"]),
        "seeds": list(SEEDS),
        "rows": [
            {"seed": seed, "epoch": epoch, "accuracy": float(epoch >= 100)}
            | dict.fromkeys(QUANTITIES, 0.5 / math.log(epoch + 3))
            for seed in SEEDS
            for epoch in (0, 1, 3, 10, 30, 100, 140, 200, 260, 300, 400, 500)
        ],
    }


def fig2() -> dict[str, Any]:
    """Descent falls like 1/log t, the flow too, but for the variation within classes."""
    steps, log_times = [round(10 ** (k / 2)) for k in range(2, 11)], [500.0, 700.0, 1000.0]
    flow = {key: [1 / x for x in log_times] for key in QUANTITIES}
    flow["nc1_within_variation"] = [x**-0.5 for x in log_times]
    return {
        "config": {"scale": 0.1, "descent_steps": 100_000, "normalised_steps": 1000},
        "seeds": list(SEEDS),
        "per_seed": [
            {
                "seed": seed,
                "starts": [
                    {
                        "scale": scale,
                        "descent": {"step": steps}
                        | {key: [1 / math.log(t) for t in steps] for key in QUANTITIES},
                    }
                    for scale in (0.1, 1.0)
                ],
                "flow": {"log_time": log_times} | flow,
                "steps_to_level": 12,
                "last": {"flow": {"invariant_drift": 1e-11}},
            }
            for seed in SEEDS
        ],
    }


def turned(run: str, name: str, power: float) -> Spoil:
    """A curve of Figure 2 raised to a power: its slope is multiplied by it."""
    return put(f"per_seed.*.{run}.{name}", lambda values: [value**power for value in values])


def terminal() -> dict[str, Any]:
    """Everything gets better by 0.1 after interpolation, but for 0.001 from seed to seed."""
    rows = []
    for seed in SEEDS:
        for moment, gain in (("before", 0.0), ("after", 0.1 + 0.001 * (-1) ** seed)):
            row = {"seed": seed, "moment": moment, "epoch": 10 + 40 * (moment == "after")}
            row |= dict.fromkeys(("nc1_within_variation", "nc2_equiangularity_means"), 0.4 - gain)
            row |= dict.fromkeys(("margin", "normalised_margin"), 0.2 + gain)
            row |= dict.fromkeys(("test_accuracy", "test_agreement"), 0.7 + gain)
            row |= {"test_centre_accuracy": 0.7 + gain, "test_margins": [0.2 + gain] * 9}
            row |= {"attacked": [0.5 + gain, 0.3 + gain], "noisy": [0.6 + gain, 0.5 + gain]}
            rows += [{"network": network, **row} for network in ("vgg", "mlp")]
    config = {"radii": [0.02, 0.05], "noises": [0.1, 0.3]}
    return {"config": config, "seeds": list(SEEDS), "rows": rows}


def ended(name: str, value: Any) -> Spoil:
    """A quantity at the end of both networks that is what it is given to be."""

    def spoil(numbers: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {**row, name: value} if row["moment"] == "after" else row for row in numbers["rows"]
        ]
        return {**numbers, "rows": rows}

    return spoil


TERMINAL = {
    "collapse": ended("nc2_equiangularity_means", 0.4),
    "generalisation": ended("test_accuracy", 0.7),
    "margins": ended("test_margins", [0.2] * 5 + [0.3] * 4),
    "robustness": ended("attacked", [0.6, 0.2]),
    "centres": ended("test_agreement", 0.7),
}
NUMBERS = {
    "findings_terminal_phase": terminal(),
    "ji2022_fig2": fig2(),
    "ji2022_fig3": fig3(),
    **STUDIES,
} | {name: make() for name, make in EXPERIMENTS.items()}

TRAINED_SPOILS: dict[str, Spoil] = {
    "ji2022/fig-3a": put("rows.*.nc2_norm_variation_weights", 0.5),
    "ji2022/fig-3b": put("rows.*.nc1_within_variation", 0.5),
    "ji2022/fig-3c": put("rows.*.nc2_equiangularity_means", 0.5),
    "ji2022/fig-3d": put("rows.*.nc3_self_duality", 0.5),
    "ji2022/sec-4-realistic": put("rows.*.nc3_self_duality", 0.5),
    "ji2022/fig-2a": turned("starts.*.descent", "nc2_norm_variation_weights", 0.6),
    "ji2022/fig-2b": turned("starts.*.descent", "nc1_within_variation", 0.6),
    "ji2022/fig-2c": turned("starts.*.descent", "nc2_equiangularity_weights", 0.6),
    "ji2022/fig-2d": turned("starts.*.descent", "nc3_self_duality", 0.6),
    "ji2022/sec-5.3-slow": turned("starts.*.descent", "nc3_self_duality", 9.0),
    "findings/layer-peeled-rates": turned("flow", "nc2_equiangularity_weights", 1.1),
    "findings/layer-peeled-within-rate": turned("flow", "nc1_within_variation", 2.0),
    "findings/layer-peeled-normalised": put("per_seed.*.steps_to_level", None),
    "findings/layer-peeled-invariants": put("per_seed.*.last.flow.invariant_drift", 0.1),
    **SPOILED,
    **STUDY_SPOILS,
    **{
        f"findings/terminal-{name}-{network}": spoil
        for name, spoil in TERMINAL.items()
        for network in ("vgg", "mlp")
    },
}
"""Claim id -> what makes the paper's numbers contradict it."""
