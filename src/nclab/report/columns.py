"""Scalars of many records as columns that are thinned while they grow, for curves."""

import re
from array import array
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from nclab.records.encoding import decode
from nclab.records.schema import EPOCH, TRAIN, layers_of, split_of, title_of_layer
from nclab.text import MAX_NUMBER, is_number

Key = tuple[str, str]
"""Layer and metric of a curve; the layer is empty for metrics of the whole network."""
LIMIT = 500
"""Points of a column; while a run grows, up to twice as many."""
BUDGET_BYTES = 2**20
"""Bytes of JSON to decode when a long journal is first read; at least `FEWEST` records are."""
FEWEST = 64
AXES = {"step": "step", "epoch": "epoch", "log_time": "log t"}
"""Horizontal axes of curves: names in records and names on pages."""
ARRAY = re.compile(rb'(?<!\\)":\[[][0-9eE+.,\- nul]*\]')
"""A list of numbers in JSON; most of a record consists of lists, and curves need none."""


class Columns:
    """Every stride-th record of one kind and the newest one; the stride doubles when they are many.

    >>> columns = Columns(limit=2)
    >>> columns.extend([b'{"kind":"m","step":%d,"loss":%d}' % (n, 9 - n) for n in range(6)])
    >>> columns.stride, columns.points(("", "loss"), "step")
    (2, ([0.0, 2.0, 4.0, 5.0], [9.0, 7.0, 5.0, 4.0]))
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.stride = 1
        self.count = 0
        """Number of records so far, kept or not."""
        self.values: dict[Key, array[float]] = {}
        self._at: dict[str, array[float]] = {name: array("d") for name in AXES}
        self._newest: dict[Key, float] = {}
        self._newest_at: dict[str, float] = {}
        self._newest_kept = True

    def __len__(self) -> int:
        return len(self._at["step"])

    def extend(self, lines: Sequence[bytes], *, is_first: bool | None = None) -> None:
        """Add new lines of this kind; only those that are kept are decoded.

        `is_first` tells that the lines are the beginning of a journal, by default if there are no
        records yet. Of long first lines fewer are kept.
        """
        if not lines:
            return
        self._widen(lines, is_first=not len(self) if is_first is None else is_first)
        begin = -self.count % self.stride
        for index in range(begin, len(lines), self.stride):
            self._keep(lines[index])
        self.count += len(lines)
        self._newest_kept = (self.count - 1) % self.stride == 0
        if not self._newest_kept:
            moment, numbers = _scalars(_decode(lines[-1]))
            self._newest_at = {name: float(value) for name, value in moment.items()}
            self._newest = {key: float(value) for key, value in numbers.items()}

    def points(self, key: Key, axis: str) -> tuple[list[float], list[float | None]]:
        """Return one curve with the newest record at its end, and None for missing values."""
        if key not in self:
            return [], []
        column = self.values.get(key, array("d"))
        at = self._at[axis].tolist()
        kept = [_known(value) for value in column]
        kept += [None] * (len(at) - len(kept))
        if not self._newest_kept:
            at.append(self._newest_at.get(axis, nan))
            kept.append(self._newest.get(key))
        known = [(x, y) for x, y in zip(at, kept, strict=True) if x == x]
        return [x for x, _ in known], [y for _, y in known]

    def __contains__(self, key: Key) -> bool:
        return key in self.values or key in self._newest

    def newest(self, key: Key) -> float | None:
        """Return the value of the newest record, or None if it has none."""
        if not self._newest_kept:
            return self._newest.get(key)
        column = self.values.get(key, ())
        return _known(column[-1]) if column and len(column) == len(self) else None

    def table(
        self, most: int
    ) -> tuple[dict[str, list[float | None]], dict[Key, list[float | None]]]:
        """Return axes and columns of at most so many rows, evenly chosen, with the newest row."""
        rows = len(self)
        picked = evenly(rows, max(1, most - (not self._newest_kept)))
        axes = {name: [_known(at[row]) for row in picked] for name, at in self._at.items()}
        columns: dict[Key, list[float | None]] = {}
        for key in self.names():
            column = self.values.get(key, ())
            columns[key] = [_known(column[row]) if row < len(column) else None for row in picked]
        if not self._newest_kept:
            for name, values in axes.items():
                values.append(self._newest_at.get(name))
            for key, values in columns.items():
                values.append(self._newest.get(key))
        return axes, columns

    def has(self, axis: str) -> bool:
        """Whether some record has a value on this axis."""
        return axis in self._newest_at or any(value == value for value in self._at[axis])

    def names(self) -> list[Key]:
        """Return all curves in the order in which records name them."""
        return list(dict.fromkeys([*self.values, *self._newest]))

    def _widen(self, lines: Sequence[bytes], *, is_first: bool) -> None:
        limit = self.limit
        if is_first:
            length = sum(len(lines[index]) for index in (0, len(lines) // 2, -1)) / 3
            limit = min(limit, max(FEWEST, int(BUDGET_BYTES / max(1.0, length))))
        while (self.count + len(lines)) / self.stride > 2 * limit:
            self.stride *= 2
            if len(self):
                self._at = {name: column[::2] for name, column in self._at.items()}
                self.values = {key: column[::2] for key, column in self.values.items()}

    def _keep(self, line: bytes) -> None:
        moment, numbers = _scalars(_decode(line))
        rows = len(self)
        for name, axis in self._at.items():
            axis.append(moment.get(name, nan))
        for key, value in numbers.items():
            column = self.values.get(key)
            if column is None:
                column = self.values[key] = array("d")
            if len(column) < rows:
                column.extend([nan] * (rows - len(column)))
            column.append(value)


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many indices below `count`, evenly chosen, with both ends.

    >>> evenly(3, 9), evenly(100, 4), evenly(100, 1)
    ([0, 1, 2], [0, 33, 66, 99], [99])
    """
    if count <= most:
        return list(range(count))
    return [count - 1 if most < 2 else round(n * (count - 1) / (most - 1)) for n in range(most)]


def _scalars(record: Mapping[str, Any]) -> tuple[dict[str, float], dict[Key, float]]:
    """Return the position of a record on each axis, and its numbers by layer and metric."""
    moment: dict[str, float] = {}
    numbers: dict[Key, float] = {}
    split = split_of(record)
    for index, layer in enumerate(layers_of(record)):
        title = curve_title(title_of_layer(layer, index), split)
        for name, value in layer.items():
            kind = type(value)  # of JSON, so that this is exact, and faster than isinstance
            if kind is float or (kind is int and -MAX_NUMBER < value < MAX_NUMBER):
                numbers[title, name] = value
    layer_name, train = record.get("layer"), record.get("train")
    title = layer_name if type(layer_name) is str else ""
    prefix = "train " if record.get("kind") == EPOCH else ""
    for name, value in record.items():
        kind = type(value)
        if kind is float or (kind is int and -MAX_NUMBER < value < MAX_NUMBER):
            if name in AXES:
                moment[name] = value
            else:
                numbers[title, prefix + name] = value
    if type(train) is dict:
        numbers |= {
            ("", f"{split} {name}"): value for name, value in train.items() if is_number(value)
        }
    return moment, numbers


def curve_title(layer: str, split: str) -> str:
    """Return the title of the curves of a layer on one split; training data are not named.

    >>> curve_title("fc", "train"), curve_title("fc", "test")
    ('fc', 'fc · test')
    """
    return layer if split == TRAIN else f"{layer} · {split}"


def _decode(line: bytes) -> dict[str, Any]:
    """Return a record without its lists of numbers; a damaged line gives an empty record."""
    return decode(ARRAY.sub(b'":null', line)) or {}


def _known(value: float) -> float | None:
    return value if value == value else None
