"""The layer-peeled model from a configuration to a trajectory, and its table."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.descent import KERNEL_STEPS, Disturbance, descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Problem, Reduction
from nclab.ulpm.trajectory import Trajectory

Method = Literal["descent", "normalised", "flow"]

DEFAULT_RATE = {"descent": 5.0, "normalised": 300.0}
COLUMNS = (
    ("step", "step", "{:d}"),
    ("log_time", "log t", "{:.4g}"),
    ("log_loss", "log L", "{:.5g}"),
    ("margin", "margin", "{:.4g}"),
    ("normalised_margin", "normalised", "{:.5f}"),
    ("alignment", "β", "{:.5f}"),
    ("nc2_norm_variation_means", "norms", "{:.2e}"),
    ("nc1_within_variation", "within", "{:.2e}"),
    ("nc2_equiangularity_means", "cosines", "{:.2e}"),
    ("nc3_self_duality", "duality", "{:.2e}"),
)
ROWS = 16


@dataclass(frozen=True)
class UlpmConfig:
    """How the layer-peeled model is followed."""

    classes: int = 5
    """Number of classes, C."""
    per_class: int = 10
    """Samples per class, N."""
    dim: int = 20
    """Dimension of the features, at least C - 1."""
    method: Method = "descent"
    """How to go down."""
    steps: int | None = None
    """Steps of either descent."""
    log_time: float | None = None
    """Last time of the flow, as log t: 1000 is t = 1e434."""
    scale: float = 0.1
    """Standard deviation of the start."""
    seed: int = 0
    """Seed of the start and of the noise."""
    rate: float | None = None
    """Rate; by default 5, and 300 for normalised descent."""
    reduction: Reduction = "mean"
    """Of the loss."""
    noise: float = 0.0
    """Noise in the gradient, for descent."""
    batch: int | None = None
    """Samples a step, for descent."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise NclabError(f"Expected a seed of 0 or more, got {self.seed}.")
        if (self.steps is None) == (self.log_time is None):
            came = "neither" if self.steps is None else "both"
            raise NclabError(
                f"Expected either --steps or --log-time, got {came}. Descent takes --steps, "
                "the flow --log-time."
            )
        if self.method == "flow" and self.log_time is None:
            raise NclabError(
                f"Expected --log-time with --method flow, got --steps {self.steps}. "
                "The flow chooses its own steps."
            )
        if self.method != "flow" and self.steps is None:
            raise NclabError(
                f"Expected --steps with --method {self.method}, got --log-time {self.log_time:g}. "
                "Take --method flow."
            )
        if self.method != "descent" and (self.noise != 0 or self.batch is not None):
            raise NclabError(f"Expected noise or batch with descent only, got {self.method}.")
        if self.method == "flow" and self.rate is not None:
            raise NclabError(f"Expected no rate with the flow, got {self.rate:g}. Leave it out.")

    @property
    def problem(self) -> Problem:
        """The model."""
        return Problem(self.classes, self.per_class, self.dim, self.reduction)


@dataclass(frozen=True)
class UlpmSolution:
    """A trajectory and the configuration that made it."""

    config: UlpmConfig
    trajectory: Trajectory

    def show(self) -> list[Any]:
        """A table of some samples, and how the run ended."""
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for _, title, _ in COLUMNS:
            table.add_column(title, justify="right")
        samples = self.trajectory.samples
        chosen = np.unique(np.linspace(0, len(samples) - 1, ROWS).round().astype(int))
        for place in chosen:
            row = samples[place].to_dict()
            cells = ("–" if row[key] is None else form.format(row[key]) for key, _, form in COLUMNS)
            # Ten columns fit a terminal of 80 if no exponent has a needless zero.
            table.add_row(*(cell.replace("e-0", "e-").replace("e+0", "e+") for cell in cells))
        ended = f"{self.trajectory.outcome.value}: {self.trajectory.message}"
        notes = [f"\n{self.trajectory.method} ({self.trajectory.backend}) {ended}"]
        slow = self.config.steps is not None and self.config.steps >= KERNEL_STEPS
        if slow and self.trajectory.backend == "numpy":
            notes.append("`pip install nclab[fast]` compiles the steps: about ten times faster.")
        return [table, *notes]


def solve(config: UlpmConfig) -> UlpmSolution:
    """Follow the model as configured.

    >>> solve(UlpmConfig(classes=3, per_class=2, dim=2, steps=10)).trajectory.last.step
    10
    """
    problem = config.problem
    start = problem.initial(scale=config.scale, seed=config.seed)
    if config.method == "flow":
        assert config.log_time is not None
        return UlpmSolution(config, flow(problem, start, log_time=config.log_time))
    assert config.steps is not None
    rate = DEFAULT_RATE[config.method] if config.rate is None else config.rate
    if config.method == "normalised":
        found = normalised_descent(problem, start, steps=config.steps, rate=rate)
        return UlpmSolution(config, found)
    disturbance = None
    if config.noise != 0 or config.batch is not None:
        disturbance = Disturbance(config.noise, config.batch, config.seed)
    found = descend(problem, start, steps=config.steps, rate=rate, disturbance=disturbance)
    return UlpmSolution(config, found)
