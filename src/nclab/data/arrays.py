"""Arrays in .npz and .safetensors files, found by their usual names; no pickle is ever loaded."""

import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nclab.errors import DataError

FEATURES = ("features", "X", "inputs")
LABELS = ("labels", "y", "targets")
WEIGHT = ("weight", "W")
BIAS = ("bias", "b")


def read_arrays(
    path: str | os.PathLike[str], names: Iterable[str] | None = None, *, optional: bool = False
) -> dict[str, Any]:
    """Every array of a .npz (numpy) or .safetensors (torch) file, by name; or only those named.

    Where none of the names is there all are read, so that a message can say what is; none if they
    are `optional`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "points.npz"
    >>> np.savez(file, X=np.zeros((3, 2)), y=[0, 1, 0])
    >>> sorted(read_arrays(file))
    ['X', 'y']
    """
    file = Path(path)
    if file.is_dir():
        raise DataError(f"Expected a .npz or .safetensors file, got the folder {file}.")
    if not file.exists():
        raise DataError(f"Expected a .npz or .safetensors file, but {file} does not exist.")
    if file.suffix == ".npz":
        return _read_npz(file, names, optional)
    if file.suffix == ".safetensors":
        return _read_safetensors(file, names, optional)
    raise DataError(
        f"Expected a .npz or .safetensors file, got {file.name}. "
        "Save with numpy.savez(path, features=..., labels=...)."
    )


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


def _wanted(known: Sequence[str], names: Iterable[str] | None, optional: bool) -> list[str]:
    wanted = None if names is None else set(names)
    some = [name for name in known if wanted is not None and name in wanted]
    return some if some or optional else list(known)


def _read_npz(file: Path, names: Iterable[str] | None, optional: bool) -> dict[str, Any]:
    if not zipfile.is_zipfile(file):
        raise DataError(f"Expected a .npz archive, but {file} is not one (or is cut short).")
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in _wanted(archive.files, names, optional)}
    except ValueError as error:
        if "object arrays" in str(error).lower() or "pickled data" in str(error).lower():
            raise DataError(
                f"Expected plain numeric arrays, but {file} holds pickled objects, which could "
                "run code. Save the arrays with a numeric dtype."
            ) from error
        raise DataError(f"Cannot read {file}: {str(error).splitlines()[0]}.") from error
    except MemoryError as error:
        raise DataError(f"Cannot read {file}: its arrays do not fit the memory.") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"Cannot read {file}: it is damaged ({error}).") from error


def _read_safetensors(file: Path, names: Iterable[str] | None, optional: bool) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as archive:
            known = list(archive.keys())
            return {name: archive.get_tensor(name) for name in _wanted(known, names, optional)}
    except SafetensorError as error:
        raise DataError(f"Expected a safetensors file, but {file} is not one ({error}).") from error
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error}.") from error
