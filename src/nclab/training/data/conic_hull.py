"""Conic hull data: every class is a cone with its vertex at the origin."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.training.data.samples import Samples, check_artificial
from nclab.training.data.teacher import normal

Cones = tuple[tuple[tuple[float, ...], ...], ...]
"""For every class the normals b_1, ..., b_k of its cone."""
TIE = 1e-9
"""Points closer to a plane are drawn again: rounding must not choose a label."""
DRAWS = 1000
"""So many batches are drawn to fill thin cones."""


@dataclass(frozen=True)
class ConicHull:
    r"""Normal inputs, class c where they lie in its cone; points in no cone are left out.

    $$H_c = \{x \in \mathbb R^d : x \cdot b_i > 0 \text{ for all } i \in [k]\}$$

    Without explicit `cones` the classes are those that k = ⌈log2 C⌉ random planes through the
    origin cut out; where C is not a power of two, the last 2^k − C of the cones stay empty.
    The same on every machine, as for teacher data.

    Source: pan2023, Sec. 3.1.2

    >>> ConicHull(samples=1000).draw().counts
    [283, 180, 230, 307]
    >>> quadrants = (((1.0, 0.0), (0.0, 1.0)), ((-1.0, 0.0), (0.0, -1.0)))
    >>> samples = ConicHull(inputs=2, classes=2, samples=100, cones=quadrants).draw()
    >>> bool((samples.inputs.prod(1) > 0).all())
    True
    """

    inputs: int = 16
    """Dimension of the inputs, d."""
    classes: int = 4
    """Number of classes."""
    samples: int = 10_000
    """Number of samples."""
    cones: Cones | None = None
    """Normals of explicit cones, one tuple of vectors per class; they must not overlap."""
    seed: int = 0
    """Of the samples."""

    def __post_init__(self) -> None:
        check_artificial(self, "inputs")
        if self.cones is None and self.planes > self.inputs:
            raise DataError(
                f"Expected inputs of dimension {self.planes} or more, as {self.planes} planes cut "
                f"out {self.classes} cones; got {self.inputs}."
            )
        if self.cones is not None and len(self.cones) != self.classes:
            raise DataError(f"Expected {self.classes} cones, got {len(self.cones)}.")
        for number, cone in enumerate(self.cones or ()):
            if not cone or any(len(normals) != self.inputs for normals in cone):
                raise DataError(
                    f"Expected normals of dimension {self.inputs} for the cone of class {number}, "
                    f"got {[len(normals) for normals in cone]}."
                )

    @property
    def planes(self) -> int:
        """⌈log2 C⌉."""
        return (self.classes - 1).bit_length()

    @property
    def label(self) -> str:
        """A short name."""
        return "conic"

    def draw(self) -> Samples:
        """The samples."""
        stream = np.random.Generator(np.random.PCG64(self.seed))
        cones = self._normals(stream)
        points, labels, found = [], [], 0
        for _ in range(DRAWS):
            batch = normal(stream, (self.samples, self.inputs))
            own, where = _members(batch, cones)
            points.append(batch[where])
            labels.append(own)
            found += len(own)
            if found >= self.samples:
                break
        chosen = np.concatenate(labels)[: self.samples]
        counts = np.bincount(chosen, minlength=self.classes)
        if found < self.samples or not counts.all():
            thin = int(counts.argmin())
            raise DataError(
                f"Expected cones wide enough for {self.samples} normal points, but class {thin} "
                f"got {counts[thin]}. Check its normals, or take more samples."
            )
        inputs = np.concatenate(points)[: self.samples].astype(np.float32)
        return Samples(torch.from_numpy(inputs), torch.from_numpy(chosen))

    def _normals(self, stream: np.random.Generator) -> list[NDArray[np.float64]]:
        """The (k, d) normals of every cone."""
        if self.cones is not None:
            return [np.asarray(cone, dtype=np.float64) for cone in self.cones]
        planes = normal(stream, (self.planes, self.inputs))
        sides = itertools.product((1.0, -1.0), repeat=self.planes)
        signs = itertools.islice(sides, self.classes)
        return [planes * np.asarray(sign)[:, None] for sign in signs]


def _members(
    points: NDArray[np.float64], cones: list[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels and rows of the points that lie in exactly one cone and not close to its planes."""
    depth = np.stack([(points @ cone.T).min(1) for cone in cones], axis=1)  # (n, C)
    inside = depth > TIE
    shared = np.flatnonzero(inside.sum(1) > 1)
    if len(shared):
        first, second = (int(c) for c in np.flatnonzero(inside[shared[0]])[:2])
        raise DataError(
            f"Expected cones that do not overlap, but those of classes {first} and {second} share "
            "points. Change their normals."
        )
    near = (np.abs(depth) <= TIE).any(1)
    rows = np.flatnonzero(inside.any(1) & ~near)
    return inside[rows].argmax(1), rows
