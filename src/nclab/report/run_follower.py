"""A run that may still grow: its curves, pictures and state, read incrementally.

Only some records of a long journal are kept: for curves as columns of scalars, for animations as
lines that are not decoded.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from nclab.errors import RecordError
from nclab.files import translate_os_errors
from nclab.records import JournalReader
from nclab.records.encoding import decode
from nclab.records.journal import JOURNAL
from nclab.records.manifest import Manifest, read_manifest
from nclab.records.read import progress_of, read_state, state_of
from nclab.records.schema import (
    ALARM,
    END,
    EPOCH,
    GEOMETRY,
    MEASUREMENT,
    START,
    TRAIN,
    State,
    layers_of,
    split_of,
    title_of_layer,
)
from nclab.text import MAX_NUMBER, is_number

Key = tuple[str, str]
"""Layer and metric of a curve; the layer is empty for metrics of the whole network."""
LIMIT = 500
"""Number of records to keep for curves; there are up to twice as many while a run grows."""
MAX_FRAMES = 60
"""Number of frames to keep of an animation; there are up to twice as many while a run grows."""
BUDGET_BYTES = 2**20
"""Bytes of JSON that the first reading of a long journal decodes, to be fast."""
FEWEST = 64
"""Number of records that are decoded in any case, even if they exceed `BUDGET_BYTES`."""
AXES = {"step": "step", "epoch": "epoch", "log_time": "log t"}
"""Horizontal axes of curves: their names in records, and on pages."""
ARRAY = re.compile(rb'(?<!\\)":\[[][0-9eE+.,\- nul]*\]')
"""Pattern of a list of numbers in JSON. Lists fill most of a record; curves do not need them."""
NOT_CURVES = {"dim", "samples", "num_classes", "zero_features", "ignored"}
"""Names of counts in the record of a layer, which are not drawn as curves."""
_BATCH_BYTES = 1 << 22
"""Lines are read in batches of about this number of bytes, to limit the memory."""
_SPLIT = re.compile(rb'"split":("(?:[^"\\]|\\.)*")')
_HEAD_BYTES = 400
"""Number of bytes at the start of a measurement that usually contain its step and its split."""


class Columns:
    """Numbers of every n-th record of one kind (n = `stride`), and of the newest record.

    The stride doubles whenever there are too many records.

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
        """Add new lines of this kind; only every n-th line is decoded.

        Args:
            is_first: whether this is the first reading of a journal, which decodes fewer lines if
                they are long; see `BUDGET_BYTES`. By default true while there are no records.
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
        """Return axes and columns with at most `most` evenly spaced rows, the newest included."""
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
        """Return layer and metric of every curve, in the order of their first values."""
        return list(self._values)

    def _widen(self, lines: Sequence[bytes], *, is_first: bool) -> None:
        """Double the stride until it selects few enough of the old and new records."""
        limit = self.limit
        if is_first:
            length = sum(len(lines[index]) for index in (0, len(lines) // 2, -1)) / 3
            limit = min(limit, max(FEWEST, int(BUDGET_BYTES / max(1.0, length))))
        while (self.count + len(lines)) / self.stride > 2 * limit:
            self.stride *= 2
            self._select(slice(None, None, 2))

    def _select(self, rows: slice) -> None:
        """Keep only these rows of all columns."""
        self._axes = {name: column[rows] for name, column in self._axes.items()}
        self._values = {key: column[rows] for key, column in self._values.items()}

    def _keep(self, line: bytes) -> None:
        """Add the numbers of a record as a new row; a damaged line adds an empty row."""
        moment, numbers = _scalars(decode(ARRAY.sub(b'":null', line)) or {})
        for name, axis in self._axes.items():
            axis.append(moment.get(name, nan))
        for key in numbers:
            if key not in self._values:
                self._values[key] = array("d", [nan] * (len(self) - 1))
        for key, column in self._values.items():
            column.append(numbers.get(key, nan))


class Frames:
    """Journal lines for an animation: every n-th (n = `stride`) and the newest, not decoded."""

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
        """Return at most `most` evenly spaced lines, including the newest."""
        lines = self._kept
        if lines and (self.count - 1) % self.stride:
            lines = [*lines, self.newest]
        return [lines[index] for index in evenly(len(lines), len(lines) if most is None else most)]

    def records(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return at most `most` evenly spaced records, including the newest."""
        return [record for record in map(decode, self.lines(most)) if record]


def evenly(count: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced indices below `count`, including the first and last.

    If `most` is 1, the result is the last index.

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
    scalars = _numbers_in(record)
    moment = {name: scalars.pop(name) for name in AXES if name in scalars}
    numbers |= {(title, prefix + name): value for name, value in scalars.items()}
    if type(train) is dict:
        numbers |= {("", f"{split} {name}"): value for name, value in _numbers_in(train).items()}
    return moment, numbers


def _numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are numbers, by name; skip integers that do not fit into a float."""
    return {
        name: value
        for name, value in values.items()
        if type(value) is float or (type(value) is int and -MAX_NUMBER < value < MAX_NUMBER)
    }


def curve_title(layer: str, split: str) -> str:
    """Return the title of the curves of a layer on one split; the split `train` is not named.

    >>> curve_title("fc", "train"), curve_title("fc", "test")
    ('fc', 'fc · test')
    """
    return layer if split == TRAIN else f"{layer} · {split}"


def _known(value: float) -> float | None:
    return value if value == value else None


class RunFollower:
    """Follows one run; every `refresh` reads what was added to the journal since the last call."""

    def __init__(self, folder: Path, *, root: Path) -> None:
        self.folder = folder
        self._root = root
        self.manifest: Manifest = read_manifest(folder, root=root)
        self.name = self.manifest.name
        self.path = folder.relative_to(root).as_posix()
        """Path of the run in the folder of runs; `.` for that folder itself."""
        self._reader = JournalReader(folder, root=root)
        self._size = -1
        self._state_problem: str | None = None
        self._start()

    def _start(self) -> None:
        """Forget all records that were read."""
        self.columns: dict[str, Columns] = {}
        """Scalars by kind of record. Measurements of each split have their own columns."""
        self.end: dict[str, Any] | None = None
        self.alarms: list[dict[str, Any]] = []
        self.geometry = Frames()
        self.splits: dict[str, Frames] = {}
        """Measurements of each split of the data."""
        self.heartbeat: dict[str, Any] = {}
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    def refresh(self) -> bool:
        """Read what is new and return whether anything changed."""
        before = (self.heartbeat, self.end)
        heartbeat, self._state_problem = read_state(self.folder, root=self._root)
        try:
            size = (self.folder / JOURNAL).lstat().st_size
        except OSError:
            size = 0
        is_first, grown = self._size < 0, False
        if size != self._size:
            with translate_os_errors("read", f"{self.path}/{JOURNAL}", RecordError):
                for batch in _batches(self._reader.new_lines()):
                    if self._reader.restarted and not grown:
                        self._start()
                    grown = True
                    for kind, group in _by_kind(batch).items():
                        self._take(kind, group, is_first)
        self._size = size
        self.heartbeat = heartbeat
        return grown or before != (self.heartbeat, self.end)

    def _take(self, kind: str, lines: list[bytes], is_first: bool) -> None:
        if kind == END:
            self.end = without_huge_numbers(decode(lines[-1]))
        elif kind == GEOMETRY:
            self.geometry.extend(lines)
        elif kind == ALARM:
            self.alarms += [without_huge_numbers(record) for record in map(decode, lines) if record]
        elif kind == MEASUREMENT:
            for split, group in _by_split(lines).items():
                self.splits.setdefault(split, Frames()).extend(group)
                self._extend(curve_title(kind, split), group, is_first)
        elif kind != START:
            self._extend(kind, lines, is_first)

    def _extend(self, name: str, lines: list[bytes], is_first: bool) -> None:
        self.columns.setdefault(name, Columns()).extend(lines, is_first=is_first)

    @property
    def problem(self) -> str | None:
        """Parts of the run that could not be read, in one line; None if all could be read."""
        text = self._reader.problem
        if text is None and self._size >= 0 and self.state != "running":
            text = self._reader.end_problem(self.heartbeat)
        parts = [part for part in (text, self._state_problem) if part]
        return f"The run {self.path}: {'; '.join(parts)}" if parts else None

    @property
    def state(self) -> State:
        """State of the run: running, finished, failed or stopped."""
        return state_of(self.folder, self.end, self.heartbeat, root=self._root)

    @property
    def progress(self) -> float | None:
        """Progress between 0 and 1; None if the run does not know its length."""
        return progress_of(self.state, self.heartbeat)

    def axes(self) -> list[str]:
        """Return the horizontal axes on which the run has curves, the most useful first."""
        all_columns = self.columns.values()
        known = [name for name in AXES if any(columns.has(name) for columns in all_columns)]
        times = ["log_time"] if "log_time" in known else []
        return ["epoch", "step", *times] if "epoch" in known or not times else [*times, "step"]

    def names(self) -> list[Key]:
        """Return layer and metric of every curve."""
        keys = (key for columns in self.columns.values() for key in columns.names())
        return [key for key in dict.fromkeys(keys) if key[1] not in NOT_CURVES]

    def layers(self) -> list[str]:
        """Return the layers that have curves."""
        return list(dict.fromkeys(layer for layer, _ in self.names() if layer))

    def curve(self, key: Key, axis: str) -> tuple[list[float], list[float | None]]:
        """Return one curve; if several kinds of records have it, the curve with the most points."""
        curves = [columns.points(key, axis) for columns in self.columns.values()]
        return max(curves, key=lambda curve: len(curve[0]), default=([], []))

    def newest(self, key: Key) -> float | None:
        """Return the last value of a curve; None if the last record does not contain the metric."""
        candidates = [columns for columns in self.columns.values() if key in columns]
        return max(candidates, key=len).newest(key) if candidates else None

    @property
    def measurements(self) -> Frames:
        """Measurements of the training data, or of the first split that was measured."""
        first = next(iter(self.splits.values()), None)
        return self.splits.get(TRAIN) or first or Frames()

    def last_layers(self) -> list[str]:
        """Return the title of the layer that the classifier reads, for every split."""
        layers = self.layers()
        endings = [f" · {split}" for split in self.splits if split != TRAIN]
        plain = [layer for layer in layers if not layer.endswith(tuple(endings))]
        last = plain[-1:] if endings else layers[-1:]
        for ending in endings:
            last += [layer for layer in layers if layer.endswith(ending)][-1:]
        return last

    def last_measurement(self) -> dict[str, Any]:
        """Return the newest measurement with all its arrays, or an empty record."""
        newest = self.measurements.newest
        if self._last[0] is not newest:
            self._last = (newest, without_huge_numbers(decode(newest) or {}))
        return self._last[1]


def without_huge_numbers(value: Any) -> Any:
    """Return a JSON value with None for numbers that no float holds, such as 10 ** 400.

    >>> without_huge_numbers({"step": 3, "loss": float("inf"), "counts": [10 ** 400, "a"]})
    {'step': 3, 'loss': None, 'counts': [None, 'a']}
    """
    if isinstance(value, dict):
        return {name: without_huge_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_huge_numbers(item) for item in value]
    return value if isinstance(value, bool | str) or is_number(value) else None


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in lists of about `_BATCH_BYTES`."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _by_kind(lines: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Return lines of a journal by the kind of their records, without decoding them."""
    groups: dict[bytes, list[bytes]] = {}
    for line in lines:
        if line.startswith(b'{"kind":"'):
            groups.setdefault(line[9 : line.find(b'"', 9)], []).append(line)
    return {kind.decode("ascii", "replace"): group for kind, group in groups.items()}


def _by_split(lines: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Return measurements by split.

    The split usually comes before the layers, and is found without decoding the line.
    """
    groups: dict[str, list[bytes]] = {}
    for line in lines:
        split = split_of(None)
        if b'"split":' in line:
            match = _SPLIT.search(line[:_HEAD_BYTES].partition(b'"layers":')[0])
            split = split_of({"split": json.loads(match[1])} if match else decode(line))
        groups.setdefault(split, []).append(line)
    return groups
