"""One point of the layer-peeled model examined: what it is, and the way down from it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nclab.array_files import pick, pick_optional, read_arrays
from nclab.class_columns import LABELS, WEIGHT
from nclab.errors import DataError, NclabError
from nclab.ulpm.curvature import smallest_eigenpairs
from nclab.ulpm.examples import EscapeRuns, example_point, example_problem
from nclab.ulpm.landscape import Escape, Landscape, Slice, classify, escape, sphere_slice
from nclab.ulpm.problem import Array, Problem, Reduction
from nclab.ulpm.trajectory import Trajectory

FEATURES = ("features", "X", "inputs", "H")
EXAMPLE = "3.1"


@dataclass(frozen=True)
class Subject:
    """A point to examine."""

    name: str
    problem: Problem
    theta: Array
    scale: float | None = None
    """Of the example's point; None for a point from a file."""


@dataclass(frozen=True)
class Examination:
    """A point, what it is, and the way down."""

    subject: Subject
    landscape: Landscape
    escape: Escape | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        way = self.escape and {n: v for n, v in vars(self.escape).items() if n != "direction"}
        return {"point": self.subject.name, **self.landscape.to_dict(), "escape": way}

    def show(self) -> list[Any]:
        """A table a person reads."""
        from rich.table import Table

        problem, found = self.subject.problem, self.landscape
        table = Table(box=None, show_header=False, pad_edge=False)
        rows = [
            ("kind", found.kind.value),
            ("smallest eigenvalue", f"{found.smallest_eigenvalue:.6g}"),
            ("gap to the optimum", f"{found.gap:.6g}  (log {found.log_gap:.6g})"),
            ("relative gradient", f"{found.relative_gradient:.3g}"),
            ("log loss", f"{found.log_loss:.8g}, at best {found.optimal_log_loss:.8g}"),
        ]
        if self.escape is not None:
            way = self.escape
            kind = "the gradient" if way.order == 1 else "negative curvature"
            change = f"the loss changes by {way.actual:.4%} at an angle of {way.angle:g}"
            rows.append(("way down", f"along {kind}: {change}, predicted {way.predicted:.4%}"))
        for row in rows:
            table.add_row(*row)
        sizes = f"C = {problem.num_classes}, N = {problem.per_class}, d = {problem.dim}"
        return [f"{self.subject.name}: {sizes}, radius {found.radius:.6g}", table]


def find_point(
    path: Path | None, example: str | None, *, scale: float = 1.0, reduction: Reduction = "sum"
) -> Subject:
    """The point of a file or of an example of the paper.

    >>> find_point(None, "3.1").theta.shape
    (8, 4)
    """
    if (path is None) == (example is None):
        came = "neither" if path is None else "both"
        raise NclabError(f"Expected either a POINT file or --example {EXAMPLE}, got {came}.")
    if path is not None:
        if scale != 1.0:
            raise NclabError(f"Expected --scale with --example only, got {scale:g} and {path}.")
        return read_point(path, reduction)
    if example != EXAMPLE:
        raise NclabError(f"Expected the example {EXAMPLE}, got {example!r}.")
    problem = replace(example_problem(), reduction=reduction)
    return Subject(f"Example {EXAMPLE}", problem, example_point(scale), scale)


def read_point(path: Path, reduction: Reduction = "sum") -> Subject:
    """W, H and, optionally, labels from a file; without labels H must be ordered by class.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "point.npz"
    >>> np.savez(file, W=np.eye(2), H=np.eye(2))
    >>> read_point(file).problem.per_class
    1
    """
    arrays = read_arrays(path)
    W = np.asarray(pick(arrays, WEIGHT, path), dtype=np.float64)
    H = np.asarray(pick(arrays, FEATURES, path), dtype=np.float64)
    if W.ndim != 2 or H.ndim != 2 or len(W) == 0 or len(H) == 0 or len(H) % len(W):
        raise DataError(
            f"Expected W (C, d) and H (C N, d), got {W.shape} and {H.shape} in {path.name}. "
            "Features are rows, the same number for every class."
        )
    labels = pick_optional(arrays, LABELS)
    if labels is not None:
        H = H[_class_order(np.asarray(labels), len(W), len(H))]
    problem = Problem(len(W), len(H) // len(W), W.shape[1], reduction)
    return Subject(path.name, problem, problem.join(W, H))


def _class_order(labels: Any, classes: int, rows: int) -> Any:
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"Expected {rows} integer labels, got {labels.dtype} of shape {labels.shape}."
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(f"Expected labels in [0, {classes}), got {labels.min()}..{labels.max()}.")
    counts = np.bincount(labels, minlength=classes)
    if len(set(counts.tolist())) > 1:
        raise DataError(
            f"Expected the same number of samples in every class, got {counts.min()} to "
            f"{counts.max()}. The model is balanced."
        )
    return np.argsort(labels, kind="stable")


def examine(subject: Subject) -> Examination:
    """Classify a point and look for the way down.

    >>> examine(find_point(None, "3.1")).landscape.kind.value
    'strict saddle'
    """
    landscape = classify(subject.problem, subject.theta)
    return Examination(subject, landscape, escape(subject.problem, subject.theta))


def escape_samples(runs: EscapeRuns) -> dict[str, list[dict[str, Any]]]:
    """The samples of the runs around Example 3.1 by name, the last on the time of the one before.

    >>> from nclab.ulpm.examples import run_escape
    >>> list(escape_samples(run_escape(steps=20, noisy_steps=20)))
    ['stuck', 'stochastic', 'noisy', 'settled']
    """
    return {
        "stuck": _rows(runs.stuck),
        "stochastic": _rows(runs.stochastic),
        "noisy": _rows(runs.noisy),
        "settled": _rows(runs.settled, after=runs.noisy.last.log_time),
    }


def slice_below(subject: Subject) -> Slice:
    """The loss around a point: down along the smallest eigenvalue, up along a larger one.

    >>> slice_below(find_point(None, "3.1")).log_losses.shape
    (61, 61)
    """
    count = min(64, subject.theta.size - 1)
    vectors = smallest_eigenpairs(subject.problem, subject.theta, count=count).vectors
    return sphere_slice(subject.problem, subject.theta, vectors[[0, -1]])


def _rows(run: Trajectory, *, after: float | None = None) -> list[dict[str, Any]]:
    """Samples as JSON values, with the time of an earlier run added."""
    rows = [sample.to_dict() for sample in run.samples]
    if after is None:
        return rows
    return [
        {**row, "log_time": float(np.logaddexp(after, row["log_time"]))}
        for row in rows
        if row["log_time"] is not None
    ]
