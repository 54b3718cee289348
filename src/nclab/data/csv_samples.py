"""Samples in a .csv file: a row each, numbers and a label."""

from pathlib import Path
from typing import Any

import numpy as np

from nclab.data.arrays import LABELS
from nclab.errors import DataError

NAMES = (*LABELS, "label", "target", "class")
"""What the column of the labels may be called; the last one is taken where none is."""


def read_csv(path: Path) -> tuple[Any, Any]:
    """Inputs (n, d) and integer labels (n,); a first line that has no numbers names the columns.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("y,height,width\\n1,0.5,2\\n0,1.5,3\\n")
    >>> inputs, labels = read_csv(file)
    >>> inputs.tolist(), labels.tolist()
    ([[0.5, 2.0], [1.5, 3.0]], [1, 0])
    """
    if not path.is_file():
        raise DataError(f"Expected a .csv file, but {path} does not exist.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = [cell.strip().strip('"') for cell in file.readline().split(",")]
        named = not any(_is_number(cell) for cell in first)
        with path.open(encoding="utf-8-sig") as file:
            table = np.loadtxt(file, delimiter=",", skiprows=int(named), ndmin=2, comments=None)
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {str(error).splitlines()[0]}.") from error
    if table.shape[0] == 0 or table.shape[1] < 2:
        raise DataError(
            f"Expected rows of at least one number and a label in {path}, got {table.shape[0]} "
            f"rows of {table.shape[1]}."
        )
    where = [index for index, name in enumerate(first) if named and name in NAMES]
    column = where[0] if where else table.shape[1] - 1
    labels = table[:, column]
    wrong = np.flatnonzero(labels != np.round(labels))
    if len(wrong):
        raise DataError(
            f"Expected integer labels in column {column + 1} of {path}, got "
            f"{labels[wrong[0]]:g} in row {wrong[0]}. Name the column of the labels 'label', or "
            "put it last."
        )
    return np.delete(table, column, axis=1), labels.astype(np.int64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
