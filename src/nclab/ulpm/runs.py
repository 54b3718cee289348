"""Runs of the layer-peeled model on disk, as `nclab ulpm` and `nclab landscape` write them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
from nclab.records.schema import MEASUREMENT, SAMPLE, MeasurementRecord, SampleRecord
from nclab.ulpm.examination import Examination, escape_samples, run_escape, slice_below
from nclab.ulpm.problem import Array, Problem
from nclab.ulpm.solution import UlpmSolution
from nclab.ulpm.trajectory import Outcome

POINT = "point.safetensors"
"""File of the last point of a run, or of the point that was examined."""
FEATURES = "features"
"""Name of the layer in the records of a run."""


def to_dict(solution: UlpmSolution) -> dict[str, Any]:
    """Return the last sample, all other metrics of its point, and the outcome of the run.

    >>> from nclab.ulpm.solution import UlpmConfig, solve
    >>> to_dict(solve(UlpmConfig(classes=3, per_class=2, dim=2, steps=10)))["step"]
    10
    """
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
    """Create a new folder or use an empty one; results are never overwritten.

    >>> import tempfile
    >>> prepare_folder(Path(tempfile.mkdtemp()) / "run").name
    'run'
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise NclabError(f"Expected a new or empty folder, but {folder} has files in it.")
    return folder


def write_solution(solution: UlpmSolution, folder: Path) -> list[str]:
    """Write the samples as a run, its last point and, with matplotlib, figures.

    Returns one line for each file, and one with the reason if there are no figures.

    >>> import tempfile
    >>> from nclab.ulpm.solution import UlpmConfig, solve
    >>> config = UlpmConfig(classes=3, per_class=2, dim=2, method="flow", log_time=20.0)
    >>> len(write_solution(solve(config), Path(tempfile.mkdtemp())))
    9
    """
    config, trajectory = solution.config, solution.trajectory
    problem, theta = trajectory.problem, trajectory.theta
    rows = [sample.to_dict() for sample in trajectory.samples]
    finished, last = trajectory.outcome is Outcome.finished, rows[-1]
    outcome = {"outcome": trajectory.outcome.value, "message": trajectory.message}
    manifest: dict[str, Any] = {"kind": "ulpm", "config": asdict(config), "seed": config.seed}
    with open_run(folder, **manifest, backend=trajectory.backend) as run:
        _append_samples(run, FEATURES, rows)
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
    """Write the result as a run, the point, and figures.

    The figures show a slice of the loss and, for the example, the four runs of descent.

    Returns one line for each file, and one with the reason if there are no figures.

    >>> import tempfile
    >>> from nclab.ulpm.examination import examine, find_point
    >>> lines = write_examination(examine(find_point(None, "3.1")), Path(tempfile.mkdtemp()))
    >>> [Path(line).name for line in lines][:3]
    ['manifest.json', 'journal.jsonl', 'point.safetensors']
    """
    subject = examination.subject
    runs = None if subject.scale is None else escape_samples(run_escape(scale=subject.scale))
    config = {"point": subject.name, "scale": subject.scale, **asdict(subject.problem)}
    with open_run(folder, kind="landscape", config=config) as run:
        _append_measurement(run, subject.problem, subject.theta, step=0, log_time=None)
        for name, rows in (runs or {}).items():
            _append_samples(run, name, rows)
        _write_point(folder, subject.problem, subject.theta)
        run.finish(outcome=examination.landscape.kind.value, landscape=examination.to_dict())

    def pictures() -> Iterable[Picture]:
        yield figures.slice_picture(*slice_below(subject))
        if runs is not None:
            yield figures.escape_picture(runs)

    return _lines(folder, pictures())


def _write_point(folder: Path, problem: Problem, theta: Array) -> None:
    """Write the weight, features and labels of a point for `nclab measure` and `landscape`."""
    weight, features = (torch.from_numpy(part.copy()) for part in problem.split(theta))
    arrays = {"weight": weight, "features": features, "labels": torch.from_numpy(problem.labels)}
    write_whole(folder / POINT, safetensors.torch.save(arrays))


def _append_samples(run: Run, layer: str, rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        step, log_time = row["step"], row["log_time"]
        record = SampleRecord(kind=SAMPLE, step=step, log_time=log_time, layer=layer)
        run.append({**record, **row})


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
