"""Shards: features and labels in many files, read in slices of rows."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.array_files import FEATURES, LABELS, PICKLES, pick, read_arrays, read_npy, reject_pickle
from nclab.errors import DataError, MissingExtra

SUFFIXES = (".safetensors", ".npz", ".npy", ".parquet", ".arrow", ".feather")
SLICE_BYTES = 1 << 26
"""Bytes of features that are in memory at a time."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A file, a folder, a pattern such as "part-*.npz", or several of these."""


class Shard(ABC):
    """One file of features with their labels."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def labels(self) -> Tensor:
        """Return all labels of the file, without reading its features."""

    @abstractmethod
    def features(self) -> Iterator[Tensor]:
        """Yield the rows in order, a slice at a time."""

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield slices of features and labels; raise if their numbers differ."""
        labels = self.labels()
        done = 0
        for rows in self.features():
            if rows.ndim != 2:
                raise DataError(
                    f"Expected features of shape (rows, dimension), got {tuple(rows.shape)}."
                )
            done += len(rows)
            if done > len(labels):
                raise DataError(
                    f"Expected one label per row, got {len(labels)} for {done} rows or more."
                )
            yield rows, labels[done - len(rows) : done]
        if done != len(labels):
            raise DataError(f"Expected one label per row, got {len(labels)} for {done} rows.")


def open_shard(path: str | os.PathLike[str]) -> Shard:
    """Return the reader for a file by its suffix, without reading the file.

    >>> open_shard("part-0.tar")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a shard, one of .safetensors, .npz, .npy, .parquet, .arrow, \
.feather; got part-0.tar.
    """
    file = Path(path)
    if file.suffix in PICKLES:
        reject_pickle(file)
    if file.suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise DataError(f"Expected a shard, one of {known}; got {file.name}.")
    kinds: dict[str, Callable[[Path], Shard]]
    kinds = {".safetensors": _Safetensors, ".npz": _Npz, ".npy": _Npy}
    return kinds.get(file.suffix, _Arrow)(file)


def find_shards(paths: Paths) -> list[Path]:
    """Return the files for paths, patterns and folders, each once, with `part-2` before `part-10`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in (2, 10):
    ...     np.savez(folder / f"part-{number}.npz", X=np.zeros((3, 2)), y=[0, 1, 0])
    >>> [file.name for file in find_shards(f"{folder}/*.npz")]
    ['part-2.npz', 'part-10.npz']
    """
    files = list[Path]()
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        files += sorted(_files_of(Path(path)), key=_natural_key)
    by_content = dict[Path, Path]()
    for file in files:
        is_labels = file.suffix == ".npy" and "labels" in file.name and "features" not in file.name
        if not is_labels:  # they belong to a .npy file of features
            by_content.setdefault(file.resolve(), file)
    if not by_content:
        raise DataError("Expected at least one shard, got none.")
    return [*by_content.values()]


def _files_of(path: Path) -> list[Path]:
    """Return the shards of a pattern or folder, or the file itself."""
    if is_pattern(path):
        files = list(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not files:
            raise DataError(f"Expected shards, but no file matches {path}.")
        return files
    if path.is_dir():
        entries = sorted(path.iterdir(), key=_natural_key)
        files = [file for file in entries if file.suffix in SUFFIXES]
        pickles = [file for file in entries if file.suffix in PICKLES]
        if pickles and not files:
            reject_pickle(pickles[0])
        if not files:
            raise DataError(f"Expected shards ({', '.join(SUFFIXES)}) in {path}, got none.")
        return files
    if not path.exists():
        raise DataError(f"Expected a shard, but {path} does not exist.")
    return [path]


def is_pattern(path: Path) -> bool:
    """Whether a path is a pattern such as "part-*.npz", and not the name of an existing file."""
    return any(letter in str(path) for letter in "*?[") and not path.exists()


def _natural_key(path: Path) -> list[Any]:
    """Return a sort key that orders numbers in names by value."""
    parts = re.split(r"(\d+)", str(path))
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _slices(rows: Any, count: int, row_bytes: int) -> Iterator[Tensor]:
    """Yield slices of anything that can be sliced; those of a memory-mapped file are copied."""
    step = max(1, SLICE_BYTES // max(1, row_bytes))
    for start in range(0, max(count, 1), step):
        part = rows[start : start + step]
        if isinstance(part, np.memmap):
            part = np.array(part, dtype=part.dtype.newbyteorder("="))
        yield torch.as_tensor(part)


def _class_numbers(labels: Any) -> Tensor:
    """Return a copy of labels as a tensor; raise if they are class names."""
    if labels.dtype.kind not in "iufb":
        raise DataError(
            f"Expected class numbers as labels of shards, got {labels.dtype}. Write numbers, and "
            "pass the names as class_names (--class-names)."
        )
    return torch.from_numpy(np.array(labels, dtype=labels.dtype.newbyteorder("=")))


class _Safetensors(Shard):
    """A .safetensors file, mapped into memory after all sizes are checked."""

    def labels(self) -> Tensor:
        with self._open() as archive:
            labels: Tensor = self._slice(archive, LABELS)[:]
            if labels.is_complex():
                raise DataError("Expected integer labels, got complex numbers.")
            return labels

    def features(self) -> Iterator[Tensor]:
        with self._open() as archive:
            rows = self._slice(archive, FEATURES)
            shape = rows.get_shape()
            yield from _slices(rows, shape[0] if shape else 0, 4 * int(np.prod(shape[1:])))

    def _open(self) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            return safe_open(self.path, framework="pt")
        except SafetensorError as error:
            raise DataError(f"the safetensors file is damaged or cut short ({error}).") from error
        except OSError as error:
            raise DataError(f"the file cannot be read: {error}.") from error

    def _slice(self, archive: Any, names: Iterable[str]) -> Any:
        known = {name: name for name in archive.keys()}  # noqa: SIM118
        return archive.get_slice(pick(known, names, self.path.name))


class _Npz(Shard):
    """A .npz archive; each of its arrays is read as a whole."""

    def labels(self) -> Tensor:
        return _class_numbers(self._array(LABELS))

    def features(self) -> Iterator[Tensor]:
        rows = self._array(FEATURES)
        yield from _slices(rows, len(rows), rows[:1].nbytes)

    def _array(self, names: Iterable[str]) -> Any:
        return pick(read_arrays(self.path), names, self.path.name)


class _Npy(Shard):
    """Features in a memory-mapped file, and labels in another file."""

    def labels(self) -> Tensor:
        if "features" not in self.path.name:
            raise DataError(
                "Expected a .npy shard with 'features' in its name and a file of labels next to "
                "it: part-0.features.npy and part-0.labels.npy. Or measure one file with --labels "
                "FILE."
            )
        labels = self.path.with_name(self.path.name.replace("features", "labels"))
        if not labels.exists():
            raise DataError(f"Expected the labels in a file {labels.name} in the same folder.")
        return _class_numbers(_mapped(labels))

    def features(self) -> Iterator[Tensor]:
        rows = _mapped(self.path)
        yield from _slices(rows, len(rows), rows[:1].nbytes)


def _mapped(file: Path) -> Any:
    rows = read_npy(file, mapped=True)
    if rows.ndim == 0:
        raise DataError(f"Expected rows in {file.name}, got a single number.")
    return rows


class _Arrow(Shard):
    """A Parquet, Arrow or Feather file with a column of lists and a column of labels."""

    def labels(self) -> Tensor:
        parts = []
        for part in self._column(LABELS):
            if part.null_count:
                raise DataError("Expected a label in every row, got missing ones.")
            parts.append(_class_numbers(part.to_numpy(zero_copy_only=False)))
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def features(self) -> Iterator[Tensor]:
        for part in self._column(FEATURES):
            has_lists = hasattr(part, "value_lengths")
            flat = part.flatten().to_numpy(zero_copy_only=False) if has_lists else np.array(None)
            if flat.dtype.kind not in "iufb":
                raise DataError(f"Expected lists of numbers as features, got {part.type}.")
            if part.null_count:
                raise DataError("Expected lists of equal length as features, got missing values.")
            lengths = part.value_lengths().to_numpy(zero_copy_only=False)
            if len(lengths) and lengths.min() != lengths.max():
                raise DataError(
                    f"Expected lists of equal length as features, got {lengths.min()} to "
                    f"{lengths.max()}."
                )
            yield torch.from_numpy(flat.reshape(len(part), -1).copy())

    def _column(self, names: Iterable[str]) -> Iterator[Any]:
        try:
            import pyarrow as arrow
            import pyarrow.dataset as datasets
        except ImportError as error:
            raise MissingExtra("A Parquet shard", package="pyarrow", extra="arrow") from error
        kind = "parquet" if self.path.suffix == ".parquet" else "ipc"
        try:
            table = datasets.dataset(str(self.path), format=kind)
            name = pick({name: name for name in table.schema.names}, names, self.path.name)
            for batch in table.to_batches(columns=[name]):
                yield batch.column(0)
        except (arrow.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
            raise DataError(f"the {kind} file is damaged ({first}).") from error
