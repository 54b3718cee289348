"""Solving the layer-peeled model from a configuration, and the table of the result."""

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
    """Options of a run of the layer-peeled model."""

    classes: int = 5
    """Number of classes, C."""
    per_class: int = 10
    """Samples per class, N."""
    dim: int = 20
    """Dimension of the features, at least C - 1."""
    method: Method = "descent"
    """Method: descent with a fixed rate, normalised descent, or gradient flow."""
    steps: int | None = None
    """Number of steps of descent or normalised descent."""
    log_time: float | None = None
    """Final time of the flow, as log t: 1000 means t = 1e434."""
    scale: float = 0.1
    """Standard deviation of the numbers of the start."""
    seed: int = 0
    """Seed of the start and of the noise."""
    rate: float | None = None
    """Learning rate; by default 5, and 300 for normalised descent."""
    reduction: Reduction = "mean"
    """Mean or sum of the loss over the samples."""
    noise: float = 0.0
    """Standard deviation of noise in the gradient, for descent."""
    batch: int | None = None
    """Samples per step, for descent; by default all."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise NclabError(f"Expected a seed of 0 or more, got {self.seed}.")
        if (self.steps is None) == (self.log_time is None):
            given = "neither" if self.steps is None else "both"
            raise NclabError(
                f"Expected either --steps or --log-time, got {given}. Descent needs --steps, "
                "the flow needs --log-time."
            )
        if (self.method == "flow") != (self.steps is None):
            expected = "--log-time" if self.method == "flow" else "--steps"
            raise NclabError(
                f"Expected {expected} with --method {self.method}. "
                "Descent needs a number of steps, the flow needs a final time."
            )
        if self.method != "descent" and (self.noise != 0 or self.batch is not None):
            raise NclabError(
                f"Expected noise or batch with descent only, got --method {self.method}."
            )
        if self.method == "flow" and self.rate is not None:
            raise NclabError(f"Expected no rate with the flow, got {self.rate:g}. Remove the rate.")

    @property
    def problem(self) -> Problem:
        """The model with these sizes."""
        return Problem(self.classes, self.per_class, self.dim, self.reduction)


@dataclass(frozen=True)
class UlpmSolution:
    """A trajectory and the configuration that made it."""

    config: UlpmConfig
    trajectory: Trajectory

    def show(self) -> list[Any]:
        """Return a table of some samples, and lines about the end of the run."""
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for _, title, _ in COLUMNS:
            table.add_column(title, justify="right")
        samples = self.trajectory.samples
        indices = np.linspace(0, len(samples) - 1, ROWS).round().astype(int)
        for index in np.unique(indices):
            row = samples[index].to_dict()
            cells = ("–" if row[key] is None else form.format(row[key]) for key, _, form in COLUMNS)
            # Ten columns fit into 80 characters if exponents have no leading zeros.
            table.add_row(*(cell.replace("e-0", "e-").replace("e+0", "e+") for cell in cells))
        outcome = f"{self.trajectory.outcome.value}: {self.trajectory.message}"
        notes = [f"\n{self.trajectory.method} ({self.trajectory.backend}) {outcome}"]
        slow = self.config.steps is not None and self.config.steps >= KERNEL_STEPS
        if slow and self.trajectory.backend == "numpy":
            notes.append(
                "Install nclab[fast] for compiled steps, which are about ten times faster."
            )
        return [table, *notes]


def solve(config: UlpmConfig) -> UlpmSolution:
    """Run the model with the given options.

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
        trajectory = normalised_descent(problem, start, steps=config.steps, rate=rate)
        return UlpmSolution(config, trajectory)
    disturbance = None
    if config.noise != 0 or config.batch is not None:
        disturbance = Disturbance(config.noise, config.batch, config.seed)
    trajectory = descend(problem, start, steps=config.steps, rate=rate, disturbance=disturbance)
    return UlpmSolution(config, trajectory)
