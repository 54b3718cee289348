"""Arrays in .npz, .safetensors, .npy and .csv files, by their usual names; never a pickle."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nclab.class_columns import FEATURES, LABELS
from nclab.csv_samples import read_csv, read_csv_labels
from nclab.errors import DataError
from nclab.npy import map_array, npz_names, read_npz
from nclab.pickles import PICKLES, refuse_pickle

KNOWN = "a .npz, .safetensors, .npy or .csv file"


class Arrays(Mapping[str, Any]):
    """The arrays of a file by name, each read when it is asked for."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Any]) -> None:
        self._names = list(names)
        self._read = functools.cache(read)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # that of Mapping would read it

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """The arrays of a .npz (numpy) or .safetensors (torch) file, by name.

    A .npy file holds features alone, a .csv file features and a label in every row.

    >>> import tempfile
    >>> import numpy as np
    >>> file = Path(tempfile.mkdtemp()) / "points.npz"
    >>> np.savez(file, X=np.zeros((3, 2)), y=[0, 1, 0])
    >>> sorted(read_arrays(file))
    ['X', 'y']
    """
    file = Path(path)
    if file.is_dir():
        raise DataError(f"Expected {KNOWN}, got the folder {file}.")
    if not file.exists():
        raise DataError(f"Expected {KNOWN}, but {file} does not exist.")
    if not file.is_file():
        raise DataError(f"Expected {KNOWN}, but {file} is no regular file.")
    if file.suffix == ".npz":
        return Arrays(npz_names(file), functools.partial(read_npz, file))
    if file.suffix == ".safetensors":
        return _safetensors(file)
    if file.suffix == ".npy":
        return Arrays(FEATURES[:1], lambda _: np.array(map_array(file)))
    if file.suffix == ".csv":
        pair = read_csv(file)
        return Arrays((FEATURES[0], LABELS[0]), lambda name: pair[name == LABELS[0]])
    if file.suffix in PICKLES:
        refuse_pickle(file)
    raise DataError(
        f"Expected {KNOWN}, got {file.name}. Save with numpy.savez(path, features=..., labels=...)."
    )


def read_labels(path: str | os.PathLike[str]) -> Any:
    """The labels of a file of their own: a .npy array, the last column of a .csv, or by name."""
    file = Path(path)
    if file.suffix == ".npy":
        return read_arrays(file)[FEATURES[0]]
    if file.suffix == ".csv" and file.is_file():
        return read_csv_labels(file)
    return pick(read_arrays(file), LABELS, file)


def pick(arrays: Mapping[str, Any], names: Iterable[str], source: object) -> Any:
    """The array under the first of the names that is there, or an error that lists them.

    >>> pick({"y": [1]}, LABELS, "points.npz")
    [1]
    """
    for name in names:
        if name in arrays:
            return arrays[name]
    found = ", ".join(repr(name)[1:-1] for name in sorted(arrays)) or "nothing"
    raise DataError(f"Expected {' or '.join(names)} in {source}, found {found}.")


def pick_optional(arrays: Mapping[str, Any], names: Iterable[str]) -> Any | None:
    """The array under the first of the names that is there, or None."""
    return next((arrays[name] for name in names if name in arrays), None)


def _safetensors(file: Path) -> Arrays:
    def read(name: str) -> Any:
        with _opened(file) as archive:
            return plain_tensor(archive.get_tensor(name), file)

    with _opened(file) as archive:
        return Arrays(archive.keys(), read)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """A file of safetensors, whose faults are errors of ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as archive:
            yield archive
    except SafetensorError as error:
        raise DataError(f"Expected a safetensors file, but {file} is not one ({error}).") from error
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error}.") from error
    except MemoryError as error:
        raise DataError(f"Cannot read {file}: its arrays do not fit the memory.") from error


def plain_tensor(tensor: Any, where: object) -> Any:
    """A tensor of numbers that can be calculated with; those of 8 bits and less are refused.

    >>> import torch
    >>> plain_tensor(torch.ones(2), "it")
    tensor([1., 1.])
    """
    import torch

    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if tensor.dtype.is_floating_point and tensor.dtype not in known:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise DataError(
            f"Expected numbers of 16 bits or more in {where}, got {kind}. Convert them."
        )
    return tensor
