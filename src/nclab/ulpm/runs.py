"""Runs of the layer-peeled model: their options, table and folders, as the commands need them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch

from nclab.errors import NclabError
from nclab.figures import ulpm as figures
from nclab.figures.matplotlib_renderer import save
from nclab.figures.picture import Picture
from nclab.files import write_whole
from nclab.measurement import measure_features
from nclab.measurement.collapse import Collapse
from nclab.records import Run, open_run
from nclab.records.encoding import to_plain
from nclab.records.results import make_folder
from nclab.records.schema import MEASUREMENT, SAMPLE, MeasurementRecord
from nclab.ulpm.descent import KERNEL_STEPS, Disturbance, descend, normalised_descent
from nclab.ulpm.examination import Examination, slice_below
from nclab.ulpm.flow import flow
from nclab.ulpm.problem import Array, Problem, Reduction
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
POINT = "point.safetensors"
"""Name of the file with the last point of a run, or with the point that was classified."""
FEATURES = "features"
"""Name of the layer in the records of a run: the free features."""


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
    """Descent with a fixed learning rate, normalised descent, or gradient flow."""
    steps: int | None = None
    """Number of steps of descent or normalised descent."""
    log_time: float | None = None
    """Final time of the flow, as log t: 1000 means t = 1e434."""
    scale: float = 0.1
    """Standard deviation of the random initial point."""
    seed: int = 0
    """Seed of the initial point and of the noise."""
    rate: float | None = None
    """Learning rate; by default 5, and 300 for normalised descent."""
    reduction: Reduction = "mean"
    """Whether the loss is the mean or the sum over samples."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise in the gradient; only for descent."""
    batch: int | None = None
    """Number of samples in every step, by default all; only for descent."""

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
                f"Expected --noise and --batch with descent only, got --method {self.method}."
            )
        if self.method == "flow" and self.rate is not None:
            raise NclabError(f"Expected no --rate with --method flow, got {self.rate:g}.")

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
    """Run the model with the given options; return the trajectory and these options."""
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


def to_dict(solution: UlpmSolution) -> dict[str, Any]:
    """Return the last sample of a run, all metrics of the last point, and how the run ended."""
    trajectory = solution.trajectory
    scalars = _measure(trajectory.problem, trajectory.theta).scalars()
    return {
        **to_plain(scalars),
        **trajectory.last.to_dict(),
        "method": trajectory.method,
        "backend": trajectory.backend,
        "outcome": trajectory.outcome.value,
        "message": trajectory.message,
    }


def prepare_folder(folder: Path) -> Path:
    """Create the folder; raise if it has files in it, because results are never overwritten."""
    make_folder(folder)
    if any(folder.iterdir()):
        raise NclabError(f"Expected a new or empty folder, but {folder} has files in it.")
    return folder


def write_solution(solution: UlpmSolution, folder: Path) -> list[str]:
    """Write a run folder with the samples and the last point; draw figures with matplotlib.

    Return one line of text for each file, and one with the reason if there are no figures.
    """
    config, trajectory = solution.config, solution.trajectory
    problem, theta = trajectory.problem, trajectory.theta
    rows = [sample.to_dict() for sample in trajectory.samples]
    finished, last = trajectory.outcome is Outcome.finished, rows[-1]
    outcome = {"outcome": trajectory.outcome.value, "message": trajectory.message}
    manifest: dict[str, Any] = {"kind": "ulpm", "config": asdict(config), "seed": config.seed}
    with open_run(folder, **manifest, backend=trajectory.backend) as run:
        for row in rows:
            step, log_time = row["step"], row["log_time"]
            run.append(
                {"kind": SAMPLE, "step": step, "log_time": log_time, "layer": FEATURES, **row}
            )
        _append_measurement(run, problem, theta, step=last["step"], log_time=last["log_time"])
        _write_point(folder, problem, theta)
        run.beat(step=last["step"], total=config.steps)
        if finished:
            run.finish(**outcome)
        else:
            run.fail(trajectory.message, **outcome)
    if not finished:
        return _lines(folder)
    sizes = f"C = {config.classes}, N = {config.per_class}, d = {config.dim}"
    titles = {
        "descent": f"Gradient descent, {sizes}, {config.reduction} loss",
        "normalised": f"Normalised descent, {sizes}",
        "flow": f"Gradient flow, {sizes}, {config.reduction} loss",
    }
    title = titles[config.method]

    def pictures() -> Iterable[Picture]:
        yield figures.quantities_picture(rows, title=title)
        yield figures.margins_picture(rows, title=title)

    return _lines(folder, pictures())


def write_examination(examination: Examination, folder: Path) -> list[str]:
    """Write a run folder with the result and the point; draw the loss around the point.

    Return one line of text for each file, and one with the reason if there is no figure.
    """
    subject = examination.subject
    config = {"point": subject.name, "scale": subject.scale, **asdict(subject.problem)}
    with open_run(folder, kind="landscape", config=config) as run:
        _append_measurement(run, subject.problem, subject.theta, step=0, log_time=None)
        _write_point(folder, subject.problem, subject.theta)
        run.finish(outcome=examination.landscape.kind.value, landscape=examination.to_dict())
    return _lines(folder, [figures.slice_picture(*slice_below(subject))])


def _write_point(folder: Path, problem: Problem, theta: Array) -> None:
    """Write the weight, features and labels of a point for `nclab measure` and `landscape`."""
    weight, features = (torch.from_numpy(part.copy()) for part in problem.split(theta))
    arrays = {"weight": weight, "features": features, "labels": torch.from_numpy(problem.labels)}
    write_whole(folder / POINT, safetensors.torch.save(arrays))


def _append_measurement(
    run: Run, problem: Problem, theta: Array, *, step: int, log_time: float | None
) -> None:
    record = MeasurementRecord(kind=MEASUREMENT, step=step, log_time=log_time, layers=[], train={})
    try:
        record["layers"] = [_measure(problem, theta).to_dict()]
    except NclabError as error:  # Class means may coincide, for example.
        record["why"] = str(error)
    run.append(record)


def _measure(problem: Problem, theta: Array) -> Collapse:
    weight, features = (torch.from_numpy(part) for part in problem.split(theta))
    return replace(measure_features(features, problem.labels, weight=weight), layer=FEATURES)


def _lines(folder: Path, pictures: Iterable[Picture] = ()) -> list[str]:
    lines = [f"wrote {folder / name}" for name in ("manifest.json", "journal.jsonl", POINT)]
    try:
        return lines + [f"wrote {path}" for picture in pictures for path in save(picture, folder)]
    except NclabError as error:  # matplotlib is not installed, or the run is too short.
        return [*lines, f"no figures: {error}"]
