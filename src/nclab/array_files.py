"""Arrays in .npz, .safetensors, .npy and .csv files, by their usual names; never a pickle."""

import contextlib
import functools
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError, MissingExtra

FEATURES = ("features", "X", "inputs")
"""Names of an array of features."""
LABELS = ("labels", "y", "targets")
"""Names of an array of labels."""
WEIGHT = ("weight", "W")
"""Names of the weight of a classifier."""
BIAS = ("bias", "b")
"""Names of the bias of a classifier."""
LABEL_COLUMNS = (*LABELS, "label", "target", "class")
"""Names of the label column of a .csv file. Without such a column the labels are the last one."""
KNOWN = "a .npz, .safetensors, .npy or .csv file"
PICKLES = (".pt", ".pth", ".pkl", ".bin")
"""Suffixes of files that may hold pickles, which can run code."""
CONVERT = """\
    import torch; from safetensors.torch import save_file
    part = torch.load({name!r}, weights_only=True)
    save_file({{"features": part["features"], "labels": part["labels"]}}, {new!r})"""
LARGEST_INTEGER = 2**53
"""Largest size up to which float64 holds every integer."""


class Arrays(Mapping[str, Any]):
    """The arrays of a file by name. Each array is read when it is used."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Any]) -> None:
        self._names = list(names)
        self._read = functools.cache(read)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the method of Mapping would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """Return the arrays of a .npz (numpy) or .safetensors (torch) file by name.

    A .npy file holds features alone, a .csv file features and a label in every row.

    >>> import tempfile
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
        raise DataError(f"Expected {KNOWN}, but {file} is not a regular file.")
    if file.suffix == ".npz":
        return _read_npz(file)
    if file.suffix == ".safetensors":
        return _read_safetensors(file)
    if file.suffix == ".npy":
        return Arrays(FEATURES[:1], lambda _: read_npy(file))
    if file.suffix == ".csv":
        pair = read_csv(file)
        return Arrays((FEATURES[0], LABELS[0]), lambda name: pair[name == LABELS[0]])
    if file.suffix in PICKLES:
        reject_pickle(file)
    raise DataError(
        f"Expected {KNOWN}, got {file.name}. Save with numpy.savez(path, features=..., labels=...)."
    )


def read_labels(path: str | os.PathLike[str]) -> Any:
    """Return the labels of a file without features: .npy, .csv, or an array called "labels"."""
    file = Path(path)
    if file.suffix == ".npy":
        return read_arrays(file)[FEATURES[0]]
    if file.suffix == ".csv" and file.is_file():
        table, column = _csv_table(file, lambda first: not set(LABEL_COLUMNS).isdisjoint(first))
        if not len(table):
            raise DataError(f"Expected labels in {file}, got no rows.")
        return _labels(table, column, file)
    return pick(read_arrays(file), LABELS, file)


def pick(arrays: Mapping[str, Any], names: Iterable[str], source: object) -> Any:
    """Return the array with the first of the names that exists; raise if none exists.

    >>> pick({"y": [1]}, LABELS, "points.npz")
    [1]
    """
    for name in names:
        if name in arrays:
            return arrays[name]
    present = ", ".join(repr(name)[1:-1] for name in sorted(arrays)) or "nothing"
    raise DataError(f"Expected {' or '.join(names)} in {source}, found {present}.")


def pick_optional(arrays: Mapping[str, Any], names: Iterable[str]) -> Any | None:
    """Return the array with the first of the names that exists, or None."""
    return next((arrays[name] for name in names if name in arrays), None)


def reject_pickle(file: Path) -> NoReturn:
    """Raise with the lines that convert a pickle, which can run code and is never opened.

    >>> reject_pickle(Path("out/a.pt"))
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file without pickle, got a.pt. Convert it:
        import torch; from safetensors.torch import save_file
        part = torch.load('out/a.pt', weights_only=True)
        save_file({"features": part["features"], "labels": part["labels"]}, 'out/a.safetensors')
    """
    lines = CONVERT.format(name=str(file), new=str(file.with_suffix(".safetensors")))
    raise DataError(f"Expected a file without pickle, got {file.name}. Convert it:\n{lines}")


# numpy


def read_npy(file: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Return the array of a .npy file, memory-mapped if `mapped`."""
    with _readable(file):
        if mapped:
            return _checked(np.lib.format.open_memmap(file, mode="r"), file)
        with file.open("rb") as stream:
            return _native(_checked(np.load(stream, allow_pickle=False), file))


def _read_npz(file: Path) -> Arrays:
    if not zipfile.is_zipfile(file):
        raise DataError(f"Expected a .npz archive, but {file} is not one (or is cut short).")

    def read(name: str) -> NDArray[Any]:
        with _npz(file) as archive:
            return _native(_checked(archive[name], file))

    with _npz(file) as archive:
        return Arrays(archive.files, read)


@contextlib.contextmanager
def _npz(file: Path) -> Iterator[Any]:
    """Open an archive. The file is opened here, as numpy does not close it after an error."""
    with (
        _readable(file),
        file.open("rb") as stream,
        np.load(stream, allow_pickle=False) as archive,
    ):
        yield archive


def _checked(array: Any, file: Path) -> NDArray[Any]:
    """Return an array of numbers or texts; raise for other types."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufcSU":
        kind = array.dtype if isinstance(array, np.ndarray) else "no array"
        raise DataError(f"Expected numbers or texts in {file}, got {kind}.")
    return array


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn every error of a library on a damaged or hostile file into a DataError."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror or error}.") from error
    except MemoryError as error:
        raise DataError(f"Cannot read {file}: its arrays do not fit into memory.") from error
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in message or "Python objects" in message:
            raise DataError(
                f"Expected plain numeric arrays, but {file} holds pickled objects, which could run "
                "code. Save the arrays with a numeric dtype."
            ) from error
        raise DataError(f"Cannot read {file}: it is damaged ({message:.200}).") from error


# safetensors


def _read_safetensors(file: Path) -> Arrays:
    def read(name: str) -> Any:
        with _open_safetensors(file) as archive:
            return check_precision(archive.get_tensor(name), file)

    with _open_safetensors(file) as archive:
        return Arrays(archive.keys(), read)


@contextlib.contextmanager
def _open_safetensors(file: Path) -> Iterator[Any]:
    """Open a safetensors file; its errors become DataErrors."""
    from safetensors import safe_open

    with _readable(file), safe_open(file, framework="pt") as archive:
        yield archive


def check_precision(tensor: Any, source: object) -> Any:
    """Return a tensor; raise for floating-point numbers of 8 bits or fewer.

    >>> import torch
    >>> check_precision(torch.ones(2), "f.safetensors")
    tensor([1., 1.])
    """
    import torch

    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if tensor.dtype.is_floating_point and tensor.dtype not in known:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise DataError(
            f"Expected numbers of 16 bits or more in {source}, got {kind}. Convert them."
        )
    return tensor


# csv


def read_csv(file: Path) -> tuple[Any, Any]:
    """Return inputs (n, d) and labels (n,), integers or names of classes, of a .csv file.

    A first line without numbers holds the names of the columns.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("y,height,width\\n1,0.5,2\\n0,1.5,3\\n")
    >>> inputs, labels = read_csv(file)
    >>> inputs.tolist(), labels.tolist()
    ([[0.5, 2.0], [1.5, 3.0]], [1, 0])
    >>> _ = file.write_text("0.5,2,cat\\n1.5,3,dog\\n")
    >>> read_csv(file)[1].tolist()
    ['cat', 'dog']
    """
    if not file.is_file():
        raise DataError(f"Expected a .csv file, but {file} does not exist.")
    table, column = _csv_table(file, lambda first: not any(map(_is_number, first)))
    if table.shape[0] == 0 or table.shape[1] < 2:
        raise DataError(
            f"Expected rows of at least one number and a label in {file}, got {len(table)} rows "
            f"of {table.shape[1] or 1}."
        )
    inputs = table.drop(columns=table.columns[column])
    for number, name in enumerate(inputs.columns):
        if inputs[name].dtype.kind not in "iuf":
            words = [word for word in inputs[name] if not _is_number(str(word))]
            raise DataError(
                f"Cannot read {file}: expected numbers in column {number + 1}, got "
                f"{str((words or [''])[0])!r:.60}."
            )
    return inputs.to_numpy(np.float64), _labels(table, column, file)


def _csv_table(file: Path, is_header: Callable[[list[str]], bool]) -> tuple[Any, int]:
    """Return a .csv file as a pandas table with labels as text, and the index of their column."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("A .csv file", package="pandas", extra="notebook") from error
    with _readable(file), file.open(encoding="utf-8-sig") as lines:
        first = [cell.strip().strip('"') for cell in lines.readline().split(",")]
    has_names = is_header(first)
    known = [index for index, name in enumerate(first) if has_names and name in LABEL_COLUMNS]
    column = known[0] if known else len(first) - 1
    with _readable(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of pandas deprecate float_precision
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows that are too long
        try:
            table = pandas.read_csv(
                file,
                header=0 if has_names else None,
                index_col=False,
                converters={column: lambda cell: str(cell).strip(' "')},
                encoding="utf-8-sig",
                float_precision="round_trip",
                skipinitialspace=True,
            )
        except pandas.errors.EmptyDataError:
            table = pandas.DataFrame()
    return table, column


def _labels(table: Any, column: int, file: Path) -> Any:
    """Return the labels of a table: integers if all are numbers, else words."""
    cells = table.iloc[:, column]
    empty = np.flatnonzero(cells.isna() | (cells == ""))
    if len(empty):
        raise DataError(
            f"Expected a label in column {column + 1} of {file} in every row, got none in row "
            f"{empty[0]}."
        )
    words = np.array(cells.tolist(), dtype=np.str_)
    try:
        labels = words.astype(np.float64)
    except ValueError:
        return words
    wrong = np.flatnonzero((labels != np.round(labels)) | ~(np.abs(labels) <= LARGEST_INTEGER))
    if len(wrong):
        raise DataError(
            f"Expected integer labels in column {column + 1} of {file}, got "
            f"{labels[wrong[0]]:g} in row {wrong[0]}. Name the column of the labels 'label', or "
            "put it last."
        )
    return labels.astype(np.int64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
