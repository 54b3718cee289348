"""Samples to train on: checked inputs with labels, from arrays or from a file."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.array_files import LABELS, pick, read_arrays, read_csv
from nclab.errors import DataError

INPUTS = ("X", "features", "inputs")
"""Accepted names of the input array in a file."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs (N, d) in float32 and labels (N,) in [0, C) as int64; every class has samples.

    >>> samples = Samples.checked([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    >>> samples.classes, samples.counts
    (2, [1, 1])
    """

    inputs: Tensor
    labels: Tensor

    @classmethod
    def checked(cls, inputs: Any, labels: Any) -> "Samples":
        """Return samples from arrays; raise `DataError` if a network cannot be trained on them."""
        rows = _inputs(_tensor(inputs, "inputs"))
        return cls(rows, _labels(_tensor(labels, "labels"), len(rows)))

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate over inputs and labels, for `inputs, labels = samples`."""
        return iter((self.inputs, self.labels))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arrays as bytes; torch would use shared memory, which may be scarce."""
        return _from_arrays, (self.inputs.cpu().numpy(), self.labels.cpu().numpy())

    @property
    def classes(self) -> int:
        """Number of classes, C."""
        return int(self.labels.max()) + 1

    @property
    def counts(self) -> list[int]:
        """Number of samples of every class."""
        return [int(count) for count in torch.bincount(self.labels)]

    def standardised(self) -> "Samples":
        """Scale every input column to mean 0 and variance 1; constant columns become 0."""
        rows = self.inputs.double()
        centred = rows - rows.mean(0)
        spread = centred.square().mean(0).sqrt()
        scaled = centred / torch.where(spread > 0, spread, 1)
        return Samples(scaled.float(), self.labels)

    def digest(self) -> str:
        """Return the SHA-256 of shape, inputs and labels, which is equal on every machine."""
        total = hashlib.sha256(repr(tuple(self.inputs.shape)).encode())
        total.update(self.inputs.contiguous().numpy().astype("<f4").tobytes())
        total.update(self.labels.contiguous().numpy().astype("<i8").tobytes())
        return total.hexdigest()


def read_samples(path: str | os.PathLike[str]) -> Samples:
    """Return the samples of a .npz, .safetensors or .csv file.

    A .npz or .safetensors file holds X|features|inputs and y|labels|targets. In a .csv file every
    row is a sample; its label is in the last column or in a column called label. Labels that are
    names are numbered in alphabetical order.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(file, X=np.eye(4), y=[0, 1, 0, 1])
    >>> read_samples(file).inputs.shape
    torch.Size([4, 4])
    """
    if Path(path).suffix == ".csv":
        inputs, labels = read_csv(Path(path))
    else:
        arrays = read_arrays(path)
        inputs, labels = pick(arrays, INPUTS, path), pick(arrays, LABELS, path)
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "U":
        _, labels = np.unique(labels, return_inverse=True)
    return Samples.checked(inputs, labels)


@dataclass(frozen=True)
class SampleFile:
    """Source of samples that reads a user's file."""

    path: str
    standardise: bool = False
    """Scale every input column to mean 0 and variance 1."""
    name: str | None = None
    """Short name of the data; by default the name of the file without its suffix."""
    rows: int | None = None
    """Number of samples to use, counted from the start of the file; all by default."""

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 2:
            raise DataError(f"Expected rows of at least 2, got {self.rows}.")

    @property
    def label(self) -> str:
        """Short name of the data, safe in the name of a folder."""
        stem = self.name or Path(self.path).stem
        return "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)[:40] or "file"

    def draw(self) -> Samples:
        """Return the samples of the file."""
        samples = read_samples(self.path)
        if self.rows is not None and self.rows < len(samples):
            samples = Samples.checked(samples.inputs[: self.rows], samples.labels[: self.rows])
        return samples.standardised() if self.standardise else samples


def _from_arrays(inputs: Any, labels: Any) -> Samples:
    return Samples(torch.from_numpy(inputs), torch.from_numpy(labels))


def _tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise DataError(f"Expected numeric {name}, got an array of {array.dtype}.")
        tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))
    if tensor.dtype.is_complex:
        raise DataError(f"Expected real {name}, got complex numbers.")
    return tensor


def _inputs(values: Tensor) -> Tensor:
    if values.ndim != 2 or values.numel() == 0:
        raise DataError(
            f"Expected inputs of shape (samples, dimension), got {tuple(values.shape)}. "
            "Flatten every sample to one vector."
        )
    rows = values.to(torch.float32).contiguous()
    bad = (~torch.isfinite(rows)).nonzero()
    if len(bad):
        row, column = (int(index) for index in bad[0])
        raise DataError(
            f"Expected finite inputs in float32, got {float(values[row, column])} in row {row}, "
            f"column {column}. Remove or correct that sample."
        )
    return rows


def _labels(values: Tensor, rows: int) -> Tensor:
    if values.dtype.is_floating_point or values.shape != (rows,):
        raise DataError(
            f"Expected an integer label for each of {rows} samples, got {values.dtype} of shape "
            f"{tuple(values.shape)}. Convert class numbers to integers, one-hot labels with argmax."
        )
    labels = values.long().contiguous()
    present = torch.unique(labels)
    if len(present) < 2:
        raise DataError(f"Expected at least 2 classes, got only class {int(present[0])}.")
    expected = torch.arange(len(present))
    if not torch.equal(present, expected):
        wrong = int((present != expected).nonzero()[0])
        raise DataError(
            f"Expected classes numbered from 0 without gaps, got class {int(present[wrong])} "
            f"instead of {wrong}. Number the classes from 0."
        )
    return labels
