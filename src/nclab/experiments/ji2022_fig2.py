"""Collapse of the layer-peeled model: gradient descent as in the paper, and far beyond it.

Claim: the four quantities of neural collapse fall like O(1/log t) under gradient descent.
Source: ji2022, Fig. 2
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nclab.experiments import ulpm_run
from nclab.text import number
from nclab.threads import one_thread
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


@dataclass(frozen=True)
class Fig2Result:
    """The paper's run, the same level in a dozen steps, and the flow over 434 decades."""

    config: Config
    runs: dict[str, Trajectory]

    def samples(self, name: str) -> list[dict[str, Any]]:
        """The samples of one run."""
        return [sample.to_dict() for sample in self.runs[name].samples]

    def slopes(self) -> dict[str, float]:
        """d log quantity / d log log t of the flow, in the window."""
        rows = [row for row in self.samples("flow") if _inside(row["log_time"])]
        x = np.log([row["log_time"] for row in rows])
        return {
            name: float(np.polyfit(x, np.log([row[name] for row in rows]), 1)[0])
            for name in QUANTITIES
        }

    def steps_to_level(self) -> int | None:
        """Steps of normalised descent until it is past the last point of plain descent."""
        level = self.samples("descent")[-1]
        names = [name for name in QUANTITIES if name != "nc2_norm_variation_means"]
        for row in self.samples("normalised"):
            if row["margin"] >= level["margin"] and all(row[n] <= level[n] for n in names):
                return int(row["step"])
        return None

    def checks(self) -> dict[str, bool]:
        """The claims, judged from the numbers."""
        slopes = self.slopes()
        steps = self.steps_to_level()
        within = slopes.pop("nc1_within_variation")
        drift = self.runs["flow"].last.invariant_drift
        return {
            "(1), (3), (4) fall like 1/log t": all(abs(s + 1) <= 0.02 for s in slopes.values()),
            "(2) falls like (log t)^(-1/2), not 1/log t": abs(within + 0.5) <= 0.02,
            f"normalised descent is past all of plain descent in {FEW_STEPS} steps": (
                steps is not None and steps <= FEW_STEPS
            ),
            "the flow conserves its invariants": drift < 1e-8,
        }

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return {
            "last": {name: run.last.to_dict() for name, run in self.runs.items()},
            "samples": {name: self.samples(name) for name in self.runs},
            "slopes": self.slopes(),
            "steps_to_level": self.steps_to_level(),
            "checks": self.checks(),
        }

    def show(self) -> list[Any]:
        """The last point of every run, the rates of the flow, the checks."""
        from rich.table import Table

        table = Table(header_style="bold")
        columns = {"log_time": "log t", "margin": "margin", "normalised_margin": "normalised"}
        columns |= QUANTITIES
        table.add_column("run")
        for title in columns.values():
            table.add_column(title, justify="right")
        for name in self.runs:
            last = self.samples(name)[-1]
            table.add_row(name, *(number(last[key]) for key in columns))
        slopes = self.slopes()
        table.add_row("flow, slope", "", "", "", *(number(slopes[key]) for key in QUANTITIES))
        sizes = f"C = {self.config.classes}, N = {self.config.per_class}, d = {self.config.dim}"
        return [
            f"The layer-peeled model, {sizes}; normalised descent is there after "
            f"{self.steps_to_level()} steps:",
            table,
            *(f"{'✓' if ok else '✗'} {claim}" for claim, ok in self.checks().items()),
        ]

    def figures(self) -> dict[str, Any]:
        """The paper's four panels from descent and from the flow, and the margins of the flow."""
        from nclab.figures import ulpm

        descent, flow = self.samples("descent"), self.samples("flow")
        titles = ("Gradient descent, 1e5 steps", "Gradient flow to log t = 1000")
        return {
            "fig2_descent": ulpm.draw_quantities(ulpm.quantity_panels(descent, title=titles[0])),
            "fig2_flow": ulpm.draw_quantities(ulpm.quantity_panels(flow, title=titles[1])),
            "margins_flow": ulpm.draw_margins(ulpm.margin_panels(flow, title=titles[1])),
        }


def run(*, preset: str = "quick", seed: int = 0) -> Fig2Result:
    """Run a preset."""
    return fig2(PRESETS[preset], seed=seed)


def fig2(config: Config, *, seed: int = 0) -> Fig2Result:
    """The experiment at any size."""
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
    with one_thread():
        runs = {name: ulpm_run.execute(one).trajectory for name, one in configs.items()}
    return Fig2Result(config, runs)


def _inside(log_time: float | None) -> bool:
    return log_time is not None and WINDOW[0] <= log_time <= WINDOW[1]
