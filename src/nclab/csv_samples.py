"""Samples in a .csv file: a row each, numbers and a label."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nclab.class_columns import LABELS
from nclab.errors import DataError

NAMES = (*LABELS, "label", "target", "class")
"""What the column of the labels may be called; the last one is taken where none is."""
LARGEST = 2**53
"""Up to this float64 holds every integer."""


def read_csv(path: Path) -> tuple[Any, Any]:
    """Inputs (n, d) and labels (n,), integers or names of classes, all in one file.

    A first line that has no numbers names the columns.

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
    if not path.is_file():
        raise DataError(f"Expected a .csv file, but {path} does not exist.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = [cell.strip().strip('"') for cell in file.readline().split(",")]
        named = not any(_is_number(cell) for cell in first)
        where = [index for index, name in enumerate(first) if named and name in NAMES]
        column, width = where[0] if where else len(first) - 1, len(first)
        rest = [index for index in range(width) if index != column]
        table = _loaded(path, named, rest, float) if rest else np.zeros((0, 0))
        words = _loaded(path, named, [column], str)[:, 0]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"Cannot read {path}: {str(error).splitlines()[0].rstrip('.')}.") from error
    if table.shape[0] == 0:
        raise DataError(
            f"Expected rows of at least one number and a label in {path}, got {len(words)} "
            f"rows of {width}."
        )
    return table, _labels(np.char.strip(words, ' "'), column, path)


def read_csv_labels(path: Path) -> Any:
    """The labels alone, of a file that may have no other column."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = [cell.strip().strip('"') for cell in file.readline().split(",")]
        where = [index for index, name in enumerate(first) if name in NAMES]
        column = where[0] if where else len(first) - 1
        words = _loaded(path, bool(where), [column], str)[:, 0]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"Cannot read {path}: {str(error).splitlines()[0].rstrip('.')}.") from error
    return _labels(np.char.strip(words, ' "'), column, path)


def _loaded(path: Path, named: bool, columns: list[int], kind: type) -> Any:
    with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a file without rows, which is refused
        return np.loadtxt(
            file,
            delimiter=",",
            skiprows=int(named),
            ndmin=2,
            comments=None,
            usecols=columns,
            dtype=kind,
        )


def _labels(words: Any, column: int, path: Path) -> Any:
    """Integers where all are numbers, else the words."""
    try:
        labels = words.astype(np.float64)
    except ValueError:
        return words
    wrong = np.flatnonzero((labels != np.round(labels)) | ~(np.abs(labels) <= LARGEST))
    if len(wrong):
        raise DataError(
            f"Expected integer labels in column {column + 1} of {path}, got "
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
