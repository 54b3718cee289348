"""Teacher data: normal inputs, labelled by a random ReLU network."""

import itertools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.training.data.samples import Samples, check_artificial

Balance = Literal["standardise", "batch_norm", "reject", "none"]
Array = NDArray[np.float64]

TIE = 1e-9
"""Rows whose two largest logits are closer are drawn again: rounding must not choose a label."""
TEACHERS = 200
"""So many teachers are tried for the wanted balance."""
REDRAWS = 20
"""A teacher whose ties survive so many redraws is given up: some tie wherever the inputs are."""


@dataclass(frozen=True)
class Teacher:
    """The thesis's artificial data: the complexity is set by the depth of the teacher.

    The same on every machine: numpy's PCG64 stream, rounded to float32 (which hides the last bits
    in which mathematical libraries differ), labelled in float64 with near ties drawn again.

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
    """Linear layers of the teacher; 1 is a linear classifier."""
    width: int = 300
    """Neurons of the teacher's hidden layers."""
    balance: Balance = "standardise"
    """What keeps the classes of about equal size. The teacher's logits are standardised over the
    samples; or its hidden layers batch-normalised; or teachers are tried until one is balanced as
    it is; or nothing is done."""
    max_ratio: float = 1.5
    """Largest class over smallest; other teachers are drawn until it holds, unless `none`."""
    seed: int = 0
    """Of the samples."""

    def __post_init__(self) -> None:
        check_artificial(self, "inputs", "samples", "depth", "width")
        if self.balance not in get_args(Balance):
            known = ", ".join(get_args(Balance))
            raise DataError(f"Expected a balance rule, one of {known}; got {self.balance!r}.")
        if not self.max_ratio > 1:
            raise DataError(f"Expected max_ratio above 1, got {self.max_ratio:g}.")

    @property
    def label(self) -> str:
        """A short name."""
        return f"teacher{self.depth}"

    def draw(self) -> Samples:
        """The samples."""
        stream = np.random.Generator(np.random.PCG64(self.seed))
        inputs = normal(stream, (self.samples, self.inputs))
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
                f"Expected a teacher with classes of about equal size, got none in {TEACHERS} "
                f"with balance {self.balance!r} (last: {last}). Take 'standardise', more "
                "inputs, more samples or a larger max_ratio."
            )
        return Samples(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels))

    def _weights(self, stream: np.random.Generator) -> list[Array]:
        sizes = [self.inputs, *[self.width] * (self.depth - 1), self.classes]
        pairs = itertools.pairwise(sizes)
        return [normal(stream, pair) * math.sqrt(2 / pair[0]) for pair in pairs]

    def _label(
        self, inputs: Array, weights: list[Array], stream: np.random.Generator
    ) -> NDArray[np.int64] | None:
        """The argmax of the teacher; rows with a near tie are replaced in place.

        None for a teacher whose ties never end.
        """
        for _ in range(REDRAWS):
            logits = self._logits(inputs, weights)
            two = np.partition(logits, -2, axis=1)[:, -2:]
            tied = np.flatnonzero(two[:, 1] - two[:, 0] < TIE)
            if len(tied) == 0:
                return logits.argmax(1)
            inputs[tied] = normal(stream, (len(tied), self.inputs))
        return None

    def _logits(self, inputs: Array, weights: list[Array]) -> Array:
        hidden = inputs
        for weight in weights[:-1]:
            hidden = np.maximum(hidden @ weight, 0)
            if self.balance == "batch_norm":
                hidden = _standardised(hidden)
        logits = hidden @ weights[-1]
        return _standardised(logits) if self.balance == "standardise" else logits


def normal(stream: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers with the precision of float32, in float64."""
    return stream.standard_normal(shape).astype(np.float32).astype(np.float64)


def _standardised(values: Array) -> Array:
    """Columns with mean 0 and variance 1; a dead unit stays 0."""
    centred = values - values.mean(0)
    spread = centred.std(0)
    return np.asarray(centred / np.where(spread > 0, spread, 1))
