"""Artificial data: labels from a teacher network or from cones.

The data are equal on every machine. Their inputs come from numpy's PCG64 stream
and are rounded to float32. Labels are computed in float64, and inputs whose label a rounding error
could change are drawn again.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.training.data.samples import Samples

Balance = Literal["standardise", "batch_norm", "reject", "none"]
Cones = tuple[tuple[tuple[float, ...], ...], ...]
"""For every class the normals b_1, ..., b_k of the planes that bound its cone."""
Array = NDArray[np.float64]

TIE = 1e-9
"""Inputs are drawn again if their two largest logits differ by less than this, or if the absolute
value of their inner product with the normal of a plane is smaller than this."""
TEACHERS = 200
"""Number of teachers that are tried for the requested balance."""
REDRAWS = 20
"""Number of times that inputs with almost equal logits are drawn again. If some remain, another
teacher is drawn."""
BATCHES = 1000
"""Largest number of batches of points that are drawn until enough of them lie inside the cones."""


@dataclass(frozen=True)
class Teacher:
    """Normal inputs, labelled by a random ReLU network, the teacher.

    The boundaries between the classes of a deeper teacher are more complicated.

    Source: pan2023, Sec. 3.1.1

    >>> samples = Teacher(samples=1000, width=50).draw()
    >>> samples.inputs.shape, samples.counts
    (torch.Size([1000, 16]), [254, 219, 288, 239])
    """

    inputs: int = 16
    """Dimension of the inputs, d."""
    classes: int = 4
    """Number of classes."""
    samples: int = 10_000
    """Number of samples."""
    depth: int = 3
    """Number of linear layers of the teacher; 1 is a linear classifier."""
    width: int = 300
    """Number of neurons in each hidden layer of the teacher."""
    balance: Balance = "standardise"
    """Rule that keeps class sizes similar: standardise the teacher's logits over the samples
    (standardise), batch-normalise its hidden layers (batch_norm), draw teachers until one is
    balanced (reject), or do nothing (none)."""
    max_ratio: float = 1.5
    """Largest accepted ratio between the sizes of two classes; teachers are drawn until the ratio
    is small enough, unless balance is none."""
    seed: int = 0
    """Seed of the samples."""

    def __post_init__(self) -> None:
        _check_sizes(self, "inputs", "samples", "depth", "width")
        if self.balance not in get_args(Balance):
            known = ", ".join(get_args(Balance))
            raise DataError(f"Expected balance as one of {known}; got {self.balance!r}.")
        if not self.max_ratio > 1:
            raise DataError(f"Expected max_ratio above 1, got {self.max_ratio:g}.")

    @property
    def label(self) -> str:
        """Short name of the data, for folders and tables."""
        return f"teacher{self.depth}"

    def draw(self) -> Samples:
        """Return the samples of the seed."""
        stream = np.random.Generator(np.random.PCG64(self.seed))
        inputs = _normal(stream, (self.samples, self.inputs))
        for _ in range(TEACHERS):
            weights = self._weights(stream)
            labels = self._label(inputs, weights, stream)
            if labels is None:
                last = "equal logits"
                continue
            counts = np.bincount(labels, minlength=self.classes)
            balanced = counts.max() <= self.max_ratio * counts.min()
            if counts.all() if self.balance == "none" else balanced:
                break
            last = str(counts.tolist())
        else:
            raise DataError(
                f"Expected a teacher with classes of similar size, but none of {TEACHERS} teachers "
                f"with balance {self.balance!r} has them (last: {last}). Use 'standardise', more "
                "inputs, more samples or a larger max_ratio."
            )
        return Samples(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels))

    def _weights(self, stream: np.random.Generator) -> list[Array]:
        sizes = [self.inputs, *[self.width] * (self.depth - 1), self.classes]
        pairs = itertools.pairwise(sizes)
        return [_normal(stream, pair) * math.sqrt(2 / pair[0]) for pair in pairs]

    def _label(
        self, inputs: Array, weights: list[Array], stream: np.random.Generator
    ) -> NDArray[np.int64] | None:
        """Return the class with the largest logit of every input.

        Inputs whose two largest logits are almost equal are drawn again, in place. Return None if
        such inputs remain after `REDRAWS` attempts.
        """
        for _ in range(REDRAWS):
            logits = self._logits(inputs, weights)
            best_two = np.partition(logits, -2, axis=1)[:, -2:]
            tied = np.flatnonzero(best_two[:, 1] - best_two[:, 0] < TIE)
            if len(tied) == 0:
                return logits.argmax(1)
            inputs[tied] = _normal(stream, (len(tied), self.inputs))
        return None

    def _logits(self, inputs: Array, weights: list[Array]) -> Array:
        hidden = inputs
        for weight in weights[:-1]:
            hidden = np.maximum(hidden @ weight, 0)
            if self.balance == "batch_norm":
                hidden = _standardised(hidden)
        logits = hidden @ weights[-1]
        return _standardised(logits) if self.balance == "standardise" else logits


@dataclass(frozen=True)
class ConicHull:
    r"""Normal inputs, labelled by the cone that contains them; inputs in no cone are discarded.

    $$H_c = \{x \in \mathbb R^d : x \cdot b_i > 0 \text{ for all } i \in [k]\}$$

    Without explicit `cones`, k = ⌈log2 C⌉ random planes through the origin cut out the cones. If C
    is not a power of two, the last 2^k − C cones are not used.

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
    """Normals of explicit cones, one tuple of vectors per class; the cones must not overlap."""
    seed: int = 0
    """Seed of the samples."""

    def __post_init__(self) -> None:
        _check_sizes(self, "inputs")
        if self.cones is None and self.planes > self.inputs:
            raise DataError(
                f"Expected inputs of dimension {self.planes} or more, because {self.planes} planes "
                f"cut out {self.classes} cones; got {self.inputs}."
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
        """Number of planes, ⌈log2 C⌉."""
        return (self.classes - 1).bit_length()

    @property
    def label(self) -> str:
        """Short name of the data, for folders and tables."""
        return "conic"

    def draw(self) -> Samples:
        """Return the samples of the seed."""
        stream = np.random.Generator(np.random.PCG64(self.seed))
        cones = self._normals(stream)
        points, labels, count = [], [], 0
        for _ in range(BATCHES):
            batch = _normal(stream, (self.samples, self.inputs))
            batch_labels, rows = _inside_cones(batch, cones)
            points.append(batch[rows])
            labels.append(batch_labels)
            count += len(batch_labels)
            if count >= self.samples:
                break
        chosen = np.concatenate(labels)[: self.samples]
        counts = np.bincount(chosen, minlength=self.classes)
        if count < self.samples or not counts.all():
            narrowest = int(counts.argmin())
            raise DataError(
                f"Expected cones wide enough for {self.samples} normal points, but only "
                f"{counts[narrowest]} points lie in the cone of class {narrowest}. Check its "
                "normals, or use more samples."
            )
        inputs = np.concatenate(points)[: self.samples].astype(np.float32)
        return Samples(torch.from_numpy(inputs), torch.from_numpy(chosen))

    def _normals(self, stream: np.random.Generator) -> list[Array]:
        """Return the normals of every cone, each (k, d)."""
        if self.cones is not None:
            return [np.asarray(cone, dtype=np.float64) for cone in self.cones]
        planes = _normal(stream, (self.planes, self.inputs))
        sides = itertools.product((1.0, -1.0), repeat=self.planes)
        signs = itertools.islice(sides, self.classes)
        return [planes * np.asarray(sign)[:, None] for sign in signs]


def _check_sizes(data: Any, *sizes: str) -> None:
    """Raise for sizes below 1, a number of classes that does not fit, or a negative seed."""
    for name in sizes:
        if getattr(data, name) < 1:
            raise DataError(f"Expected {name} of 1 or more, got {getattr(data, name)}.")
    if not 2 <= data.classes <= data.samples:
        raise DataError(
            f"Expected 2 to {data.samples} classes, at least one sample for each; "
            f"got {data.classes}."
        )
    if data.seed < 0:
        raise DataError(f"Expected a seed of 0 or more, got {data.seed}.")


def _normal(stream: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw standard normal numbers with the precision of float32; return them in float64."""
    return stream.standard_normal(shape).astype(np.float32).astype(np.float64)


def _standardised(values: Array) -> Array:
    """Scale every column to mean 0 and variance 1; constant columns become 0."""
    centred = values - values.mean(0)
    spread = centred.std(0)
    return np.asarray(centred / np.where(spread > 0, spread, 1))


def _inside_cones(points: Array, cones: list[Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return labels and row numbers of the points inside a cone and not close to its planes."""
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
