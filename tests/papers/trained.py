"""Numbers of experiments as the papers would have them, and how to make each claim fail."""

import math
from typing import Any

from tests.papers.pan2023.spoiled import SPOILED
from tests.papers.pan2023.thesis_rows import EXPERIMENTS
from tests.papers.spoils import Spoil, put

QUANTITIES = (
    "nc2_norm_variation_means",
    "nc2_norm_variation_weights",
    "nc1_within_variation",
    "nc2_equiangularity_means",
    "nc2_equiangularity_weights",
    "nc3_self_duality",
)


def fig3() -> dict[str, Any]:
    """Every quantity falls like 1/log t and ends below 0.1, in two seeds."""
    return {
        "rows": [
            {"seed": seed, "epoch": epoch, "accuracy": float(epoch >= 100)}
            | dict.fromkeys(QUANTITIES, 0.5 / math.log(epoch + 3))
            for seed in (0, 1)
            for epoch in (0, 1, 3, 10, 30, 100, 140, 200, 300, 500)
        ]
    }


FIG2 = {
    "config": {"descent_steps": 100_000},
    "per_seed": [
        {
            "slopes": {"nc1_within_variation": -0.5},
            "steps_to_level": 12,
            "last": {"flow": {"invariant_drift": 1e-11}},
        }
    ],
}
NUMBERS = {"ji2022_fig2": FIG2, "ji2022_fig3": fig3()} | {
    name: make() for name, make in EXPERIMENTS.items()
}

TRAINED_SPOILS: dict[str, Spoil] = {
    "ji2022/fig-3a": put("rows.*.nc2_norm_variation_weights", 0.5),
    "ji2022/fig-3b": put("rows.*.nc1_within_variation", 0.5),
    "ji2022/fig-3c": put("rows.*.nc2_equiangularity_means", 0.5),
    "ji2022/fig-3d": put("rows.*.nc3_self_duality", 0.5),
    "ji2022/sec-4-realistic": put("rows.*.nc3_self_duality", 0.5),
    "beyond/layer-peeled-within-rate": put("per_seed.0.slopes.nc1_within_variation", -1.0),
    "beyond/layer-peeled-normalised": put("per_seed.0.steps_to_level", 99),
    "beyond/layer-peeled-invariants": put("per_seed.0.last.flow.invariant_drift", 0.1),
    **SPOILED,
}
"""Claim id -> what makes the paper's numbers contradict it."""
