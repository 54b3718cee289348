"""Shards: features and labels in many files, each read in slices and only what is asked for."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.array_files import pick, pick_optional, read_arrays
from nclab.class_columns import BIAS, FEATURES, LABELS, WEIGHT
from nclab.errors import DataError, MissingExtra
from nclab.npy import map_array
from nclab.pickles import PICKLES, refuse_pickle

SUFFIXES = (".safetensors", ".npz", ".npy", ".parquet", ".arrow", ".feather")
SLICE_BYTES = 1 << 26
"""Of features in memory at a time."""


class Shard(ABC):
    """One file of features with their labels."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def labels(self) -> Tensor:
        """All labels of the file, without reading its features."""

    @abstractmethod
    def features(self) -> Iterator[Tensor]:
        """The rows in order, some at a time."""

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels, some rows at a time; refused where their numbers differ."""
        labels = self.labels()
        done = 0
        for rows in self.features():
            if rows.ndim != 2:
                raise DataError(
                    f"Expected features of shape (rows, dimension), got {tuple(rows.shape)}."
                )
            done += len(rows)
            if done > len(labels):
                raise DataError(f"Expected one label a row, got {len(labels)} for {done} or more.")
            yield rows, labels[done - len(rows) : done]
        if done != len(labels):
            raise DataError(f"Expected one label a row, got {len(labels)} for {done} rows.")


def open_shard(path: str | os.PathLike[str]) -> Shard:
    """A file by its suffix; nothing is read yet.

    >>> open_shard("part-0.tar")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a shard, one of .safetensors, .npz, .npy, .parquet, .arrow, \
.feather; got part-0.tar.
    """
    file = Path(path)
    if file.suffix in PICKLES:
        refuse_pickle(file)
    if file.suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise DataError(f"Expected a shard, one of {known}; got {file.name}.")
    kinds: dict[str, Callable[[Path], Shard]]
    kinds = {".safetensors": _Safetensors, ".npz": _Npz, ".npy": _Npy}
    return kinds.get(file.suffix, _Arrow)(file)


def find_shards(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files by name, pattern or folder, each once, `part-2` before `part-10`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in (2, 10):
    ...     np.savez(folder / f"part-{number}.npz", X=np.zeros((3, 2)), y=[0, 1, 0])
    >>> [file.name for file in find_shards(f"{folder}/*.npz")]
    ['part-2.npz', 'part-10.npz']
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Path] = []
    for one in given:
        place = Path(one)
        if is_pattern(place):
            root = Path(place.anchor or ".")
            files = list(root.glob(str(place.relative_to(place.anchor))))
            if not files:
                raise DataError(f"Expected shards, but no file matches {one}.")
        elif place.is_dir():
            inside = sorted(place.iterdir(), key=_natural)
            files = [file for file in inside if file.suffix in SUFFIXES]
            pickles = [file for file in inside if file.suffix in PICKLES]
            if pickles and not files:
                refuse_pickle(pickles[0])
            if not files:
                raise DataError(f"Expected shards ({', '.join(SUFFIXES)}) in {place}, got none.")
        elif place.exists():
            files = [place]
        else:
            raise DataError(f"Expected a shard, but {place} does not exist.")
        found += sorted(files, key=_natural)
    unique: dict[Path, Path] = {}
    for file in found:
        if not _is_labels(file):
            unique.setdefault(file.resolve(), file)
    if not unique:
        raise DataError("Expected at least one shard, got none.")
    return [*unique.values()]


def common_head(shards: Iterable[Path]) -> tuple[Any, Any]:
    """Weight and bias that shards hold beside their features; (None, None) where none does.

    Refused where two shards hold different ones. Files that cannot be read tell nothing here.
    """
    found: dict[Path, tuple[Any, Any]] = {}
    for file in shards:
        if file.suffix not in (".npz", ".safetensors"):
            continue
        try:
            arrays = read_arrays(file)
            weight, bias = pick_optional(arrays, WEIGHT), pick_optional(arrays, BIAS)
        except DataError:
            continue
        if weight is not None:
            found[file] = weight, bias
    if not found:
        return None, None
    first, head = next(iter(found.items()))
    for file, other in found.items():
        for name, one, own in zip(("weight", "bias"), head, other, strict=True):
            if not _equal(one, own):
                raise DataError(
                    f"Expected one {name} for all shards, {file.name} has another than "
                    f"{first.name}. Say which: weight= (--head FILE)."
                )
    return head


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool((one == other).all())


def is_pattern(path: Path) -> bool:
    """Whether a path stands for all files that match it; not where a file is called that."""
    return any(letter in str(path) for letter in "*?[") and not path.exists()


def _natural(path: Path) -> list[Any]:
    """Numbers in a name by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _is_labels(path: Path) -> bool:
    """Whether a .npy file is the other half of one with features."""
    return path.suffix == ".npy" and "labels" in path.name and "features" not in path.name


def _slices(rows: Any, count: int, width: int) -> Iterator[Tensor]:
    """Some rows at a time of whatever can be sliced."""
    step = max(1, SLICE_BYTES // max(1, width))
    for start in range(0, max(count, 1), step):
        yield torch.as_tensor(rows[start : start + step])


class _Safetensors(Shard):
    """Memory-mapped by safetensors itself, which also checks all sizes."""

    def labels(self) -> Tensor:
        with self._open() as archive:
            labels: Tensor = self._slice(archive, LABELS)[:]
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
            raise DataError(f"it is no safetensors file, or is cut short ({error}).") from error
        except OSError as error:
            raise DataError(f"it cannot be read: {error}.") from error

    def _slice(self, archive: Any, names: Iterable[str]) -> Any:
        known = {name: name for name in archive.keys()}  # noqa: SIM118
        return archive.get_slice(pick(known, names, self.path.name))


class _Npz(Shard):
    """An archive; an array of it is read whole."""

    def labels(self) -> Tensor:
        return _numbers(self._array(LABELS))

    def features(self) -> Iterator[Tensor]:
        rows = self._array(FEATURES)
        yield from _slices(rows, len(rows), rows[:1].nbytes)

    def _array(self, names: Iterable[str]) -> Any:
        return pick(read_arrays(self.path), names, self.path.name)


class _Npy(Shard):
    """Features in one file, memory-mapped, and labels in another beside it."""

    def labels(self) -> Tensor:
        if "features" not in self.path.name:
            raise DataError(
                "Expected the name of a .npy shard to say features, with its labels beside it: "
                "part-0.features.npy and part-0.labels.npy. Or measure one file with --labels FILE."
            )
        beside = self.path.with_name(self.path.name.replace("features", "labels"))
        if not beside.exists():
            raise DataError(f"Expected its labels beside it in {beside.name}.")
        return _numbers(_native(_mapped(beside)))

    def features(self) -> Iterator[Tensor]:
        rows = _mapped(self.path)
        for part in range(0, max(len(rows), 1), step := max(1, SLICE_BYTES // _row_bytes(rows))):
            yield torch.from_numpy(_native(rows[part : part + step]))


def _native(rows: Any) -> Any:
    """In memory, in the byte order of this machine, as torch asks for it."""
    return np.array(rows, dtype=rows.dtype.newbyteorder("="))


def _numbers(labels: Any) -> Tensor:
    """Labels as a tensor of their own; names of classes are for single files."""
    if labels.dtype.kind not in "iufb":
        raise DataError(
            f"Expected class numbers as labels of shards, got {labels.dtype}. Write numbers, and "
            "pass the names as class_names (--class-names)."
        )
    return torch.from_numpy(np.array(labels))


def _row_bytes(rows: Any) -> int:
    return max(1, int(rows.nbytes) // max(1, len(rows)))


def _mapped(file: Path) -> Any:
    rows = map_array(file)
    if rows.ndim == 0:
        raise DataError(f"Expected rows in {file.name}, got a single number.")
    return rows


class _Arrow(Shard):
    """Parquet, Arrow or Feather: a column of lists of equal length, and one of labels."""

    def labels(self) -> Tensor:
        parts = []
        for part in self._column(LABELS):
            if part.null_count:
                raise DataError("Expected a label in every row, got missing ones.")
            parts.append(_numbers(part.to_numpy(zero_copy_only=False)))
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def features(self) -> Iterator[Tensor]:
        for part in self._column(FEATURES):
            lists = hasattr(part, "value_lengths")
            flat = part.flatten().to_numpy(zero_copy_only=False) if lists else np.array(None)
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
            name = pick({one: one for one in table.schema.names}, names, self.path.name)
            for batch in table.to_batches(columns=[name]):
                yield batch.column(0)
        except (arrow.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
            raise DataError(f"it is damaged, or no {kind} file ({first}).") from error
