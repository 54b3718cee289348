"""Arrays and tensors in files: .npz, .safetensors, .npy and .csv; never a pickle."""

import contextlib
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError, MissingExtra, NclabError
from nclab.files import write_whole

if TYPE_CHECKING:
    from torch import Tensor

FEATURES = ("features", "X", "inputs")
"""Names of an array of features."""
LABELS = ("labels", "y", "targets")
"""Names of an array of labels."""
WEIGHT = ("weight", "W")
"""Names of the weight of a classifier."""
BIAS = ("bias", "b")
"""Names of the bias of a classifier."""
LABEL_COLUMNS = (*LABELS, "label", "target", "class")
"""Names of the label column of a .csv file; without such a name, the last column has the labels."""
KNOWN = "a .npz, .safetensors, .npy or .csv file"
PICKLES = (".pt", ".pth", ".pkl", ".bin")
"""Suffixes of files that may hold pickles, which can run code."""
CONVERT = """\
    import torch; from safetensors.torch import save_file
    part = torch.load({name!r}, weights_only=True)
    save_file({{"features": part["features"], "labels": part["labels"]}}, {new!r})"""
LARGEST_INTEGER = 2**53
"""Largest absolute value of a label: float64 cannot represent all larger integers."""
_PLAIN = "nclab"
"""Key of the metadata under which `write_tree` stores the plain values as JSON."""
_TENSOR = "tensor"
"""Key of the placeholder that stands for a tensor in the JSON of `write_tree`."""


class Arrays(Mapping[str, Any]):
    """The arrays of a file by name. Each array is read when it is used."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Any]) -> None:
        self._names = list(names)
        self._read = read

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
    """Return the arrays of a .npz (numpy), .safetensors (torch), .npy or .csv file by name.

    A .npy file holds features without labels, a .csv file features and a label in every row.
    """
    file = Path(path)
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise DataError(f"Expected {KNOWN}, but {file} {problem}.")
    if file.suffix == ".npz":
        with _open_npz(file) as archive:
            return Arrays(archive.files, lambda name: _read_npz(file, name))
    if file.suffix == ".safetensors":
        with _open_safetensors(file) as archive:
            return Arrays(archive.keys(), lambda name: _read_safetensors(file, name))
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
    """Return the labels in a file of labels: .npy, .csv, or a file with an array "labels"."""
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
    raise DataError(f"Expected {' or '.join(names)} in {source}, got {present}.")


def pick_optional(arrays: Mapping[str, Any], names: Iterable[str]) -> Any | None:
    """Return the array with the first of the names that exists, or None."""
    return next((arrays[name] for name in names if name in arrays), None)


def reject_pickle(file: Path) -> NoReturn:
    """Raise an error that shows how to convert a pickle file.

    nclab opens no pickles, because they can run code.

    >>> reject_pickle(Path("out/a.pt"))
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file without pickle, got a.pt. Convert it:
        import torch; from safetensors.torch import save_file
        part = torch.load('out/a.pt', weights_only=True)
        save_file({"features": part["features"], "labels": part["labels"]}, 'out/a.safetensors')
    """
    lines = CONVERT.format(name=str(file), new=str(file.with_suffix(".safetensors")))
    raise DataError(f"Expected a file without pickle, got {file.name}. Convert it:\n{lines}")


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn every error that a library raises for a damaged or hostile file into a DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif isinstance(error, MemoryError):
            reason = "its arrays do not fit into memory"
        elif "pickle" in str(error) or "Python objects" in str(error):
            reason = "it holds Python objects, which can run code. Save arrays of numbers"
        else:
            message = (str(error) or type(error).__name__).splitlines()[0]
            reason = f"it is damaged ({message:.200})"
        raise DataError(f"Cannot read {file}: {reason}.") from error


def read_npy(file: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Return the array of a .npy file, memory-mapped if `mapped`."""
    with _readable(file):
        if mapped:
            return _checked(np.lib.format.open_memmap(file, mode="r"), file)
        with file.open("rb") as stream:
            return _native(_checked(np.load(stream, allow_pickle=False), file))


def _read_npz(file: Path, name: str) -> NDArray[Any]:
    with _open_npz(file) as archive:
        return _native(_checked(archive[name], file))


@contextlib.contextmanager
def _open_npz(file: Path) -> Iterator[Any]:
    """Open a .npz archive. The file is opened here, as numpy does not close it after an error."""
    if not zipfile.is_zipfile(file):
        raise DataError(f"Expected a .npz archive, but {file} is not one (or is cut short).")
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


def _read_safetensors(file: Path, name: str) -> "Tensor":
    """Return one tensor of a .safetensors file; raise for floats of 8 bits or fewer."""
    with _open_safetensors(file) as archive:
        tensor: Tensor = archive.get_tensor(name)
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 2:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise DataError(f"Expected numbers of 16 bits or more in {file}, got {kind}. Convert them.")
    return tensor


@contextlib.contextmanager
def _open_safetensors(file: Path) -> Iterator[Any]:
    from safetensors import safe_open

    with _readable(file), safe_open(file, framework="pt") as archive:
        yield archive


def read_csv(file: Path) -> tuple[Any, Any]:
    """Return inputs (n, d) and labels (n,), integers or names of classes, of a .csv file.

    A first line without numbers holds the names of the columns.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("y,height,width\\n1,0.5,2\\n0,1.5,3\\n")
    >>> inputs, labels = read_csv(file)
    >>> inputs.tolist(), labels.tolist()
    ([[0.5, 2.0], [1.5, 3.0]], [1, 0])
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
    for number, name in enumerate(inputs.columns, start=1):
        if inputs[name].dtype.kind not in "iuf":
            texts = [str(word) for word in inputs[name] if not _is_number(str(word))]
            raise DataError(
                f"Cannot read {file}: expected numbers in column {number}, got "
                f"{(texts or [''])[0]!r:.60}."
            )
    return inputs.to_numpy(np.float64), _labels(table, column, file)


def _csv_table(file: Path, is_header: Callable[[list[str]], bool]) -> tuple[Any, int]:
    """Return a .csv file as a pandas table with labels as text, and the index of their column."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("A .csv file", package="pandas", extra="notebook") from error
    with _readable(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of pandas deprecate float_precision
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows that are too long
        with file.open(encoding="utf-8-sig") as lines:
            first = [cell.strip().strip('"') for cell in lines.readline().split(",")]
        has_names = is_header(first)
        known = [index for index, name in enumerate(first) if has_names and name in LABEL_COLUMNS]
        column = known[0] if known else len(first) - 1
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
    """Return the labels of a table: integers if all are numbers, else texts."""
    cells = table.iloc[:, column]
    empty = np.flatnonzero(cells.isna() | (cells == ""))
    if len(empty):
        raise DataError(
            f"Expected a label in column {column + 1} of {file} in every row, got none in row "
            f"{empty[0]}."
        )
    texts = np.array(cells.tolist(), dtype=np.str_)
    try:
        labels = texts.astype(np.float64)
    except ValueError:
        return texts
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


def write_tree(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dictionaries and lists of tensors and plain values to one safetensors file."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _extract_tensors(state, tensors)
    write_whole(path, save(tensors, metadata={_PLAIN: json.dumps(plain)}))


def read_tree(path: Path) -> dict[str, Any]:
    """Return the nested dictionaries that `write_tree` wrote."""
    try:
        with _open_safetensors(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            plain = json.loads(file.metadata()[_PLAIN])
            return dict(_insert_tensors(plain, tensors))
    except DataError as error:
        raise NclabError(
            f"Expected the saved state of a measurement in {path}, got a damaged file. Delete the "
            "file to start again."
        ) from error


def _extract_tensors(value: Any, tensors: "dict[str, Tensor]") -> Any:
    """Return the value with placeholders for its tensors; add the tensors to `tensors`."""
    from torch import Tensor

    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _extract_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_extract_tensors(item, tensors) for item in value]
    return value


def _insert_tensors(value: Any, tensors: "Mapping[str, Tensor]") -> Any:
    """Return the value, with each placeholder replaced by its tensor."""
    if isinstance(value, dict):
        if set(value) == {_TENSOR} and isinstance(value[_TENSOR], str):
            return tensors[value[_TENSOR]]
        return {key: _insert_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_insert_tensors(item, tensors) for item in value]
    return value
