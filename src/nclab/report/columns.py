"""Thinned records of a growing run: scalars as columns for curves, lines for animations."""

import re
from array import array
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from nclab.records.encoding import decode
from nclab.records.schema import EPOCH, TRAIN, layers_of, split_of, title_of_layer
from nclab.text import MAX_NUMBER

Key = tuple[str, str]
"""Layer and metric of a curve; the layer is empty for metrics of the whole network."""
LIMIT = 500
"""Points of a column; while a run grows, up to twice as many."""
MAX_FRAMES = 60
"""Frames of an animation that are kept; up to twice as many while a run grows."""
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
        self._values: dict[Key, array[float]] = {}
        """Values of every curve; nan where a record lacks the metric."""
        self._axes: dict[str, array[float]] = {name: array("d") for name in AXES}
        self._has_extra_row = False
        """Whether the last row is the newest record although the stride skips it."""

    def __len__(self) -> int:
        return len(self._axes["step"])

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def extend(self, lines: Sequence[bytes], *, is_first: bool | None = None) -> None:
        """Add new lines of this kind; only those that are kept are decoded.

        Args:
            is_first: whether the lines are the beginning of a journal, by default whether there
                are no records yet. Of long first lines fewer are kept.
        """
        if not lines:
            return
        if self._has_extra_row:
            self._select(slice(-1))
        self._widen(lines, is_first=not len(self) if is_first is None else is_first)
        for line in lines[-self.count % self.stride :: self.stride]:
            self._keep(line)
        self.count += len(lines)
        self._has_extra_row = (self.count - 1) % self.stride != 0
        if self._has_extra_row:
            self._keep(lines[-1])

    def points(self, key: Key, axis: str) -> tuple[list[float], list[float | None]]:
        """Return one curve with the newest record at its end, and None for missing values."""
        if key not in self:
            return [], []
        pairs = zip(self._axes[axis], self._values[key], strict=True)
        known = [(x, _known(y)) for x, y in pairs if x == x]
        return [x for x, _ in known], [y for _, y in known]

    def newest(self, key: Key) -> float | None:
        """Return the value of the newest record, or None if it has none."""
        return _known(self._values[key][-1]) if key in self else None

    def table(
        self, most: int
    ) -> tuple[dict[str, list[float | None]], dict[Key, list[float | None]]]:
        """Return axes and columns of at most so many rows, evenly chosen, with the newest row."""
        rows = evenly(len(self), most)
        axes = {name: [_known(at[row]) for row in rows] for name, at in self._axes.items()}
        columns = {
            key: [_known(column[row]) for row in rows] for key, column in self._values.items()
        }
        return axes, columns

    def has(self, axis: str) -> bool:
        """Whether some record has a value on this axis."""
        return any(value == value for value in self._axes[axis])

    def names(self) -> list[Key]:
        """Return all curves in the order in which records name them."""
        return list(self._values)

    def _widen(self, lines: Sequence[bytes], *, is_first: bool) -> None:
        """Double the stride until the old and the new lines are few enough."""
        limit = self.limit
        if is_first:
            length = sum(len(lines[index]) for index in (0, len(lines) // 2, -1)) / 3
            limit = min(limit, max(FEWEST, int(BUDGET_BYTES / max(1.0, length))))
        while (self.count + len(lines)) / self.stride > 2 * limit:
            self.stride *= 2
            self._select(slice(None, None, 2))

    def _select(self, rows: slice) -> None:
        """Keep some rows of all columns."""
        self._axes = {name: column[rows] for name, column in self._axes.items()}
        self._values = {key: column[rows] for key, column in self._values.items()}

    def _keep(self, line: bytes) -> None:
        """Add the numbers of a record as a new row; a damaged line gives an empty one."""
        moment, numbers = _scalars(decode(ARRAY.sub(b'":null', line)) or {})
        for name, axis in self._axes.items():
            axis.append(moment.get(name, nan))
        for key in numbers:
            if key not in self._values:
                self._values[key] = array("d", [nan] * (len(self) - 1))
        for key, column in self._values.items():
            column.append(numbers.get(key, nan))


class Frames:
    """Lines for an animation: every stride-th one and the newest, decoded on request."""

    def __init__(self, limit: int = MAX_FRAMES) -> None:
        self.limit, self.stride, self.count = limit, 1, 0
        self._kept: list[bytes] = []
        self.newest = b""

    def extend(self, lines: list[bytes]) -> None:
        """Add new lines; if there are too many, double the stride."""
        while (self.count + len(lines)) / self.stride > 2 * self.limit:
            self.stride *= 2
            self._kept = self._kept[::2]
        self._kept += lines[-self.count % self.stride :: self.stride]
        self.count += len(lines)
        self.newest = lines[-1] if lines else self.newest

    def lines(self, most: int | None = None) -> list[bytes]:
        """Return at most so many lines, evenly chosen, always with the newest."""
        kept = self._kept
        if kept and (self.count - 1) % self.stride:
            kept = [*kept, self.newest]
        return [kept[index] for index in evenly(len(kept), len(kept) if most is None else most)]

    def records(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return these lines as records."""
        return [record for record in map(decode, self.lines(most)) if record]


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
    numbers: dict[Key, float] = {}
    split = split_of(record)
    for index, layer in enumerate(layers_of(record)):
        title = curve_title(title_of_layer(layer, index), split)
        numbers |= {(title, name): value for name, value in _numbers_in(layer).items()}
    layer_name, train = record.get("layer"), record.get("train")
    title = layer_name if type(layer_name) is str else ""
    prefix = "train " if record.get("kind") == EPOCH else ""
    own = _numbers_in(record)
    moment = {name: own.pop(name) for name in AXES if name in own}
    numbers |= {(title, prefix + name): value for name, value in own.items()}
    if type(train) is dict:
        numbers |= {("", f"{split} {name}"): value for name, value in _numbers_in(train).items()}
    return moment, numbers


def _numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are numbers; values of JSON have exactly these types."""
    return {
        name: value
        for name, value in values.items()
        if type(value) is float or (type(value) is int and -MAX_NUMBER < value < MAX_NUMBER)
    }


def curve_title(layer: str, split: str) -> str:
    """Return the title of the curves of a layer on one split; training data are not named.

    >>> curve_title("fc", "train"), curve_title("fc", "test")
    ('fc', 'fc · test')
    """
    return layer if split == TRAIN else f"{layer} · {split}"


def _known(value: float) -> float | None:
    return value if value == value else None
