"""Collapse of the layer-peeled model: gradient descent as in the paper, and far beyond it.

Claim: the four quantities of neural collapse fall like O(1/log t) under gradient descent.
Source: ji2022, Fig. 2
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Picture
from nclab.progress import track
from nclab.text import number
from nclab.threads import one_thread
from nclab.ulpm import recorded as ulpm_run
from nclab.ulpm.trajectory import Trajectory

QUANTITIES = {
    "nc2_norm_variation_means": "(1) norms",
    "nc1_within_variation": "(2) within",
    "nc2_equiangularity_means": "(3) cosines",
    "nc3_self_duality": "(4) duality",
}
WINDOW = (500.0, 1000.0)
"""In log t, where the rates are fitted."""
FEW_STEPS = 15


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


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return fig2(PRESETS[preset], seeds=seeds)


def fig2(config: Config, *, seeds: Sequence[int] = (0,)) -> dict[str, Any]:
    """The paper's run, the same level in a dozen steps, and the flow over 434 decades.

    Every seed is run and judged; the samples of the first are kept for the figures.
    """
    per_seed = []
    with one_thread():
        for seed in track(seeds, "layer-peeled model"):
            samples = {name: _samples(one) for name, one in _runs(config, seed).items()}
            per_seed.append({"seed": seed, **summary(samples)})
            if seed == seeds[0]:
                kept = samples
    checks = {
        claim: all(one["checks"][claim] for one in per_seed) for claim in per_seed[0]["checks"]
    }
    return {"config": asdict(config), "per_seed": per_seed, "samples": kept, "checks": checks}


def summary(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Last points, rates and checks of the three runs of one seed."""
    rates, steps = slopes(samples["flow"]), steps_to_level(samples)
    within = rates["nc1_within_variation"]
    others = [rate for name, rate in rates.items() if name != "nc1_within_variation"]
    return {
        "last": {name: rows[-1] for name, rows in samples.items()},
        "slopes": rates,
        "steps_to_level": steps,
        "checks": {
            "(1), (3), (4) fall like 1/log t": all(abs(rate + 1) <= 0.02 for rate in others),
            "(2) falls like (log t)^(-1/2), not 1/log t": abs(within + 0.5) <= 0.02,
            f"normalised descent is past all of plain descent in {FEW_STEPS} steps": (
                steps is not None and steps <= FEW_STEPS
            ),
            "the flow conserves its invariants": samples["flow"][-1]["invariant_drift"] < 1e-8,
        },
    }


def slopes(flow: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """d log quantity / d log log t of the flow, in the window."""
    rows = [row for row in flow if _inside(row["log_time"])]
    x = np.log([row["log_time"] for row in rows])
    return {
        name: float(np.polyfit(x, np.log([row[name] for row in rows]), 1)[0]) for name in QUANTITIES
    }


def steps_to_level(samples: Mapping[str, list[dict[str, Any]]]) -> int | None:
    """Steps of normalised descent until it is past the last point of plain descent."""
    level = samples["descent"][-1]
    names = [name for name in QUANTITIES if name != "nc2_norm_variation_means"]
    for row in samples["normalised"]:
        if row["margin"] >= level["margin"] and all(row[n] <= level[n] for n in names):
            return int(row["step"])
    return None


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The last point of every run, the rates of the flow, the checks."""
    from rich.table import Table

    table = Table(header_style="bold")
    columns = {"log_time": "log t", "margin": "margin", "normalised_margin": "normalised"}
    columns |= QUANTITIES
    for title in ("run", "seed"):
        table.add_column(title)
    for title in columns.values():
        table.add_column(title, justify="right")
    for one in numbers["per_seed"]:
        for name, last in one["last"].items():
            table.add_row(name, str(one["seed"]), *(number(last[key]) for key in columns))
        rates = (number(one["slopes"][key]) for key in QUANTITIES)
        table.add_row("flow, slope", str(one["seed"]), "", "", "", *rates)
    config = numbers["config"]
    sizes = f"C = {config['classes']}, N = {config['per_class']}, d = {config['dim']}"
    steps = ", ".join(str(one["steps_to_level"]) for one in numbers["per_seed"])
    return [
        f"The layer-peeled model, {sizes}; normalised descent is there after {steps} steps:",
        table,
        *(f"{'✓' if ok else '✗'} {claim}" for claim, ok in numbers["checks"].items()),
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The paper's four panels from descent and from the flow, and the margins of the flow."""
    descent, flow = numbers["samples"]["descent"], numbers["samples"]["flow"]
    titles = ("Gradient descent, 1e5 steps", "Gradient flow to log t = 1000")
    return [
        ulpm.quantities_picture(
            ulpm.quantity_panels(descent, title=titles[0]), name="fig2_descent"
        ),
        ulpm.quantities_picture(ulpm.quantity_panels(flow, title=titles[1]), name="fig2_flow"),
        ulpm.margins_picture(ulpm.margin_panels(flow, title=titles[1]), name="margins_flow"),
    ]


def _runs(config: Config, seed: int) -> dict[str, Trajectory]:
    sizes: dict[str, Any] = {
        "classes": config.classes,
        "per_class": config.per_class,
        "dim": config.dim,
        "scale": config.scale,
        "seed": seed,
    }
    configs = {
        "descent": ulpm_run.Config(**sizes, method="descent", steps=config.descent_steps),
        "normalised": ulpm_run.Config(**sizes, method="normalised", steps=config.normalised_steps),
        "flow": ulpm_run.Config(**sizes, method="flow", log_time=config.log_time),
    }
    return {name: ulpm_run.execute(one).trajectory for name, one in configs.items()}


def _samples(run: Trajectory) -> list[dict[str, Any]]:
    return [sample.to_dict() for sample in run.samples]


def _inside(log_time: float | None) -> bool:
    return log_time is not None and WINDOW[0] <= log_time <= WINDOW[1]
