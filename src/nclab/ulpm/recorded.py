"""One run of the layer-peeled model from a configuration to a table, or a folder with figures."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch

from nclab import __version__
from nclab.errors import NclabError
from nclab.files import write_whole
from nclab.measurement import measure_features
from nclab.ulpm.descent import KERNEL_STEPS, Disturbance, descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Array, Problem, Reduction
from nclab.ulpm.steppers import kernel_available
from nclab.ulpm.trajectory import Outcome, Trajectory

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
class Config:
    """A run of the layer-peeled model."""

    classes: int = 5
    per_class: int = 10
    dim: int = 20
    method: Method = "descent"
    steps: int | None = None
    """For descent and normalised descent."""
    log_time: float | None = None
    """For the flow: the logarithm of the last time."""
    scale: float = 0.1
    """Standard deviation of the initial numbers."""
    seed: int = 0
    rate: float | None = None
    """5 for descent, 300 for normalised descent."""
    reduction: Reduction = "mean"
    noise: float = 0.0
    """Standard deviation of the noise in the gradient, for descent."""
    batch: int | None = None
    """Samples a step, for descent."""

    def __post_init__(self) -> None:
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
class Run:
    """A run and the configuration that made it."""

    config: Config
    trajectory: Trajectory

    def to_dict(self) -> dict[str, Any]:
        """The last sample, every other metric at its point, and how the run ended."""
        trajectory = self.trajectory
        weight, features = (torch.from_numpy(p) for p in trajectory.problem.split(trajectory.theta))
        collapse = measure_features(features, trajectory.problem.labels, weight=weight)
        scalars = {name: _finite(value) for name, value in collapse.scalars().items()}
        return {
            **scalars,
            **trajectory.last.to_dict(),
            "method": trajectory.method,
            "backend": trajectory.backend,
            "outcome": trajectory.outcome.value,
            "message": trajectory.message,
        }

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


def execute(config: Config) -> Run:
    """Run a configuration.

    >>> run = execute(Config(classes=3, per_class=2, dim=2, steps=10))
    >>> run.to_dict()["step"]
    10
    """
    problem = config.problem
    start = problem.initial(scale=config.scale, seed=config.seed)
    if config.method == "flow":
        assert config.log_time is not None
        return Run(config, flow(problem, start, log_time=config.log_time))
    assert config.steps is not None
    rate = DEFAULT_RATE[config.method] if config.rate is None else config.rate
    if config.method == "normalised":
        return Run(config, normalised_descent(problem, start, steps=config.steps, rate=rate))
    disturbance = None
    if config.noise != 0 or config.batch is not None:
        disturbance = Disturbance(config.noise, config.batch, config.seed)
    return Run(
        config, descend(problem, start, steps=config.steps, rate=rate, disturbance=disturbance)
    )


def prepare_folder(folder: Path) -> Path:
    """Make a new folder, or take an empty one; results are never overwritten.

    >>> import tempfile
    >>> prepare_folder(Path(tempfile.mkdtemp()) / "run").name
    'run'
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise NclabError(f"Expected a new or empty folder, but {folder} has files in it.")
    except OSError as error:
        raise NclabError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    return folder


def write_run(run: Run, folder: Path) -> list[str]:
    """Write manifest.json, samples.jsonl, point.safetensors and, with matplotlib, figures.

    Returns a line for every file, or for why there is no figure.

    >>> import tempfile
    >>> run = execute(Config(classes=3, per_class=2, dim=2, method="flow", log_time=20.0))
    >>> len(write_run(run, Path(tempfile.mkdtemp())))
    9
    """
    trajectory = run.trajectory
    rows = [sample.to_dict() for sample in trajectory.samples]
    ending = {"outcome": trajectory.outcome.value, "message": trajectory.message}
    written = [
        write_manifest(folder, asdict(run.config), backend=trajectory.backend, **ending),
        write_samples(folder / "samples.jsonl", rows),
        write_point(folder / "point.safetensors", trajectory.problem, trajectory.theta),
    ]
    lines = [f"wrote {path}" for path in written]
    if trajectory.outcome is not Outcome.finished:
        return lines
    try:
        return lines + [f"wrote {path}" for path in _figures(run, rows, folder)]
    except NclabError as error:  # the extra is not installed, or the run too short
        return [*lines, f"no figures: {error}"]


def write_manifest(folder: Path, config: Mapping[str, Any], **more: Any) -> Path:
    """What made the files of a folder: configuration, versions, outcome."""
    versions = {
        "nclab": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": kernel_available(),
    }
    content = {"config": dict(config), "versions": versions, **more}
    path = folder / "manifest.json"
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    return path


def write_samples(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """One JSON object a line."""
    lines = (json.dumps(row, allow_nan=False) for row in rows)
    write_whole(path, ("\n".join(lines) + "\n").encode())
    return path


def write_point(path: Path, problem: Problem, theta: Array) -> Path:
    """A point as `nclab measure` and `nclab landscape` read it: weight, features, labels."""
    weight, features = (torch.from_numpy(part.copy()) for part in problem.split(theta))
    arrays = {"weight": weight, "features": features, "labels": torch.from_numpy(problem.labels)}
    write_whole(path, safetensors.torch.save(arrays))
    return path


def _figures(run: Run, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    from nclab.figures import ulpm as figures
    from nclab.figures.draw import save

    config = run.config
    sizes = f"C = {config.classes}, N = {config.per_class}, d = {config.dim}"
    titles = {
        "descent": f"Gradient descent, {sizes}, {config.reduction} loss",
        "normalised": f"Normalised descent, {sizes}",
        "flow": f"Gradient flow, {sizes}, {config.reduction} loss",
    }
    title = titles[config.method]
    quantities = figures.quantities_picture(figures.quantity_panels(rows, title=title))
    margins = figures.margins_picture(figures.margin_panels(rows, title=title))
    return [*save(quantities, folder), *save(margins, folder)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
