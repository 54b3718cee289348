"""Classify a point of the layer-peeled model, from a file or Example 3.1 of ji2022."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nclab.array_files import LABELS, WEIGHT, pick, pick_optional, read_arrays
from nclab.errors import DataError, NclabError
from nclab.ulpm.landscape import (
    Escape,
    Landscape,
    classify,
    escape,
    smallest_eigenpairs,
    sphere_slice,
)
from nclab.ulpm.problem import Array, Problem, Reduction

FEATURES = ("features", "X", "inputs", "H")
"""Names that the array of features may have in a file."""
EXAMPLE = "3.1"
"""Number of the example in ji2022."""
DIRECTION = np.array(
    [[1.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0], [0.0, 0.0, -1.0, 1.0]]
)
"""The matrix that is both W and H in ji2022, Eq. (7), for scale 1."""


def example_problem() -> Problem:
    """Return the problem of Example 3.1: four classes, one sample each, d = 4, summed loss."""
    return Problem(num_classes=4, per_class=1, dim=4, reduction="sum")


def example_point(scale: float = 1.0) -> Array:
    """Return the saddle point of Eq. (7): two orthogonal pairs of opposite classes.

    Source: ji2022, Eq. (7)

    >>> example_point(2.0)[0].tolist()
    [2.0, -2.0, 0.0, 0.0]
    """
    if not (math.isfinite(scale) and scale > 0):
        raise NclabError(f"Expected a positive scale, got {scale}.")
    return scale * np.concatenate([DIRECTION, DIRECTION])


@dataclass(frozen=True)
class Subject:
    """A point to classify, with its name and problem."""

    name: str
    problem: Problem
    theta: Array
    scale: float | None = None
    """Scale of the example's point; None for a point from a file."""


@dataclass(frozen=True)
class Examination:
    """A point with its kind, such as strict saddle, and a direction of descent if there is one."""

    subject: Subject
    landscape: Landscape
    escape: Escape | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        escape = self.escape and {n: v for n, v in vars(self.escape).items() if n != "direction"}
        return {"point": self.subject.name, **self.landscape.to_dict(), "escape": escape}

    def show(self) -> list[Any]:
        """Return a title and a table with the kind, loss and direction of descent of the point."""
        from rich.table import Table

        problem, landscape = self.subject.problem, self.landscape
        table = Table(box=None, show_header=False, pad_edge=False)
        rows = [
            ("kind", landscape.kind.value),
            ("smallest eigenvalue", f"{landscape.smallest_eigenvalue:.6g}"),
            ("loss above the optimum", f"{landscape.gap:.6g} (log ratio {landscape.log_gap:.6g})"),
            ("tangent share of the gradient", f"{landscape.relative_gradient:.3g}"),
            ("log loss", f"{landscape.log_loss:.8g} (optimum {landscape.optimal_log_loss:.8g})"),
        ]
        if self.escape is not None:
            descent = self.escape
            kind = "the gradient" if descent.order == 1 else "negative curvature"
            change = f"the loss changes by {descent.actual:.4%} at an angle of {descent.angle:g}"
            text = f"along {kind}: {change}, predicted {descent.predicted:.4%}"
            rows.append(("direction of descent", text))
        for row in rows:
            table.add_row(*row)
        sizes = f"C = {problem.num_classes}, N = {problem.per_class}, d = {problem.dim}"
        return [f"{self.subject.name}: {sizes}, radius {landscape.radius:.6g}", table]


def find_point(
    path: Path | None, example: str | None, *, scale: float = 1.0, reduction: Reduction = "sum"
) -> Subject:
    """Return the point in a file, or the point of an example of ji2022."""
    if (path is None) == (example is None):
        given = "neither" if path is None else "both"
        raise NclabError(f"Expected either a POINT file or --example {EXAMPLE}, got {given}.")
    if path is not None:
        if scale != 1.0:
            raise NclabError(
                f"Expected --scale with --example only, got --scale {scale:g} with the file {path}."
            )
        return read_point(path, reduction)
    if example != EXAMPLE:
        raise NclabError(f"Expected --example {EXAMPLE}, the only one, got {example!r}.")
    problem = replace(example_problem(), reduction=reduction)
    return Subject(f"Example {EXAMPLE}", problem, example_point(scale), scale)


def read_point(path: Path, reduction: Reduction = "sum") -> Subject:
    """Read W, H and optional labels from a file; without labels H must be ordered by class."""
    arrays = read_arrays(path)
    W = np.asarray(pick(arrays, WEIGHT, path), dtype=np.float64)
    H = np.asarray(pick(arrays, FEATURES, path), dtype=np.float64)
    if W.ndim != 2 or H.ndim != 2 or len(W) == 0 or len(H) == 0 or len(H) % len(W):
        raise DataError(
            f"Expected W of shape (C, d) and H of shape (C N, d), got {W.shape} and {H.shape} in "
            f"{path.name}. Store one feature per row of H, and equally many for every class."
        )
    labels = pick_optional(arrays, LABELS)
    if labels is not None:
        H = H[_class_order(np.asarray(labels), len(W), len(H))]
    problem = Problem(len(W), len(H) // len(W), W.shape[1], reduction)
    return Subject(path.name, problem, problem.join(W, H))


def _class_order(labels: Any, classes: int, rows: int) -> Any:
    """Return the order that sorts features by class; raise if classes have different counts."""
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"Expected {rows} integer labels, got {labels.dtype} of shape {labels.shape}."
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(f"Expected labels in [0, {classes}), got {labels.min()} to {labels.max()}.")
    counts = np.bincount(labels, minlength=classes)
    if len(set(counts.tolist())) > 1:
        raise DataError(
            f"Expected the same number of samples in every class, got {counts.min()} to "
            f"{counts.max()}. The layer-peeled model is balanced."
        )
    return np.argsort(labels, kind="stable")


def examine(subject: Subject) -> Examination:
    """Classify a point and search for a direction of descent."""
    landscape = classify(subject.problem, subject.theta)
    return Examination(subject, landscape, escape(subject.problem, subject.theta))


def slice_below(subject: Subject) -> tuple[Array, Array]:
    """Return the loss around the point along two directions on the sphere, for a figure.

    The directions are Hessian eigenvectors: that of the smallest eigenvalue and that of a larger
    one.
    """
    count = min(64, subject.theta.size - 1)
    vectors = smallest_eigenpairs(subject.problem, subject.theta, count=count).vectors
    return sphere_slice(subject.problem, subject.theta, vectors[[0, -1]])
