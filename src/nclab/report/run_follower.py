"""A run that may still grow: its curves, pictures and state, read incrementally."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nclab.errors import RecordError
from nclab.files import translate_os_errors
from nclab.records import JournalReader
from nclab.records.encoding import decode
from nclab.records.journal import JOURNAL
from nclab.records.manifest import Manifest, read_manifest
from nclab.records.read import progress_of, read_state, state_of
from nclab.records.schema import ALARM, END, GEOMETRY, MEASUREMENT, START, TRAIN, State, split_of
from nclab.report.columns import AXES, Columns, Frames, Key, curve_title
from nclab.text import is_number

NOT_CURVES = {"dim", "samples", "num_classes", "zero_features", "ignored"}
"""Sizes of a layer, which are not drawn as curves."""
_BATCH_BYTES = 1 << 22
"""Bytes of lines that are in memory at once; at least one line is."""
_SPLIT = re.compile(rb'"split":("(?:[^"\\]|\\.)*")')
_HEAD_BYTES = 400
"""Bytes of a measurement in which its step and its split stand, before its layers."""


class RunFollower:
    """Follows one run; every `refresh` reads what was added to its journal since."""

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
        """Forget everything that was read."""
        self.columns: dict[str, Columns] = {}
        """Scalars by kind of record; measurements by split, so that none makes gaps in another."""
        self.end: dict[str, Any] | None = None
        self.alarms: list[dict[str, Any]] = []
        self.geometry = Frames()
        self.splits: dict[str, Frames] = {}
        """Measurements of each split of the data."""
        self.heartbeat: dict[str, Any] = {}
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    def refresh(self) -> bool:
        """Read what is new and return whether there was anything."""
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
        """What of the run could not be read, in one line."""
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
        """Return the horizontal axes of its curves, the most useful first."""
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
        """Return one curve, from the kind of records that has most of its points."""
        curves = [columns.points(key, axis) for columns in self.columns.values()]
        return max(curves, key=lambda curve: len(curve[0]), default=([], []))

    def newest(self, key: Key) -> float | None:
        """Return the last value of a curve; None if the last record lacks it."""
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
    """Return measurements by split; decode only lines whose split stands behind their layers."""
    groups: dict[str, list[bytes]] = {}
    for line in lines:
        split = split_of(None)
        if b'"split":' in line:
            match = _SPLIT.search(line[:_HEAD_BYTES].partition(b'"layers":')[0])
            split = split_of({"split": json.loads(match[1])} if match else decode(line))
        groups.setdefault(split, []).append(line)
    return groups
