"""A run that may still grow: its curves, its pictures and its state, read incrementally."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nclab.errors import RecordError
from nclab.files import translate_os_errors
from nclab.records import Tail
from nclab.records.heartbeat import read_state
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lines import decode
from nclab.records.manifest import Manifest, read_manifest
from nclab.records.read import progress_of, state_of, what_is_gone
from nclab.records.schema import ALARM, END, GEOMETRY, MEASUREMENT, START, TRAIN, State, split_of
from nclab.report.columns import (
    LIMIT,
    PLACES,
    Columns,
    Key,
    evenly,
    is_number,
    title_of_curve,
)

FRAMES = 60
"""Up to twice as many lines are kept of what is shown one at a time."""
NAMED = b'"split":'
SPLIT = re.compile(NAMED + rb'("(?:[^"\\]|\\.)*")')
HEAD = 400
"""Bytes in which a record says when and of what it is, before its layers."""
SIZES = {"dim", "samples", "num_classes", "zero_features", "ignored"}
"""Numbers of a layer that are no curves."""


class GrowingRun:
    """Reads a journal once; every `refresh` reads what was added since."""

    def __init__(self, folder: Path, *, root: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self._root = root
        self.manifest: Manifest = read_manifest(folder, root=root)
        self.name = self.manifest.name
        self.path = folder.relative_to(root).as_posix()
        """Where the run is in the folder of runs; `.` for that folder itself."""
        self._limit = limit
        self._tail = Tail(folder, root=root)
        self._size = -1
        self._begin()

    def _begin(self) -> None:
        self.columns: dict[str, Columns] = {}
        """By the kind of record, and measurements by split: one makes no gaps in another."""
        self.end: dict[str, Any] | None = None
        self.alarms: list[dict[str, Any]] = []
        self.geometry = Frames()
        self.splits: dict[str, Frames] = {}
        """The measurements of each split of the data."""
        self.heartbeat: dict[str, Any] = {}
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    def refresh(self) -> bool:
        """Read what is new; whether there was anything. RecordError if it cannot be read."""
        before = (self.heartbeat, self.end)
        self.heartbeat = read_state(self.folder, root=self._root)
        try:
            size = (self.folder / JOURNAL).lstat().st_size
        except OSError:
            size = 0
        first, grown = self._size < 0, False
        if size != self._size:
            with translate_os_errors("read", f"{self.path}/{JOURNAL}", RecordError):
                for content in self._tail.contents():
                    if self._tail.restarted and not grown:
                        self._begin()
                    grown = True
                    for kind, lines in split(content).items():
                        self._take(kind, lines, first)
        self._size = size
        return grown or before != (self.heartbeat, self.end)

    def _take(self, kind: str, lines: "Lines", first: bool) -> None:
        if kind == END:
            self.end = known(decode(lines[-1]))
        elif kind == GEOMETRY:
            self.geometry.extend(lines)
        elif kind == ALARM:
            self.alarms += [known(record) for record in map(decode, lines) if record]
        elif kind == MEASUREMENT:
            for split, own in lines.by_split().items():
                self.splits.setdefault(split, Frames()).extend(own)
                self._add(title_of_curve(kind, split), own, first)
        elif kind != START:
            self._add(kind, lines, first)

    def _add(self, name: str, lines: "Lines", first: bool) -> None:
        self.columns.setdefault(name, Columns(self._limit)).extend(lines, first=first)

    @property
    def problem(self) -> str | None:
        """What of its journal could not be read, in one line."""
        found = self._tail.problem
        if found is None and self._size >= 0 and self.state != "running":
            told = {"ended": self.end is not None, "sealed": bool(self._tail.reading.sealed)}
            found = what_is_gone(self.folder, self.manifest, self.heartbeat, **told)
        return f"The run {self.path}: {found}" if found else None

    @property
    def state(self) -> State:
        """running, finished, failed or stopped."""
        return state_of(self.folder, self.end, self.heartbeat, root=self._root)

    @property
    def progress(self) -> float | None:
        """From 0 to 1, None where the run does not say how long it is."""
        return progress_of(self.state, self.heartbeat)

    def places(self) -> list[str]:
        """What its curves are drawn over, what says most first."""
        known = [name for name in PLACES if any(one.has(name) for one in self.columns.values())]
        timed = ["log_time"] if "log_time" in known else []
        return ["epoch", "step", *timed] if "epoch" in known or not timed else [*timed, "step"]

    def layers(self) -> list[str]:
        """Names of the measured layers, the last is what the classifier reads."""
        names = (layer for layer, _ in self.names())
        return [layer for layer in dict.fromkeys(names) if layer]

    def names(self) -> list[Key]:
        """Every curve of the run."""
        keys = (key for columns in self.columns.values() for key in columns.names())
        return [key for key in dict.fromkeys(keys) if key[1] not in SIZES]

    def curve(self, key: Key, place: str) -> tuple[list[float], list[float | None]]:
        """One curve, from the kind of record that has most of it."""
        found: tuple[list[float], list[float | None]] = ([], [])
        for columns in self.columns.values():
            one = columns.points(key, place)
            if len(one[0]) > len(found[0]):
                found = one
        return found

    def newest(self, key: Key) -> float | None:
        """The last number of a curve, None where the last record has none."""
        found = [columns for columns in self.columns.values() if key in columns]
        return max(found, key=len).newest(key) if found else None

    @property
    def measurements(self) -> "Frames":
        """Those of the training data, or of the first data that were measured."""
        first = next(iter(self.splits.values()), None)
        return self.splits.get(TRAIN) or first or Frames()

    def last_layers(self) -> list[str]:
        """What the classifier reads, of every split of the data."""
        layers = self.layers()
        ends = [f" · {split}" for split in self.splits if split != TRAIN]
        found = [[one for one in layers if one.endswith(end)][-1:] for end in ends]
        plain = [one for one in layers if not one.endswith(tuple(ends))] if ends else layers
        return [*plain[-1:], *(one for part in found for one in part)]

    def last_measurement(self) -> dict[str, Any]:
        """The newest measurement with all its arrays, empty if there is none."""
        newest = self.measurements.newest
        if self._last[0] is not newest:
            self._last = (newest, known(decode(newest) or {}))
        return self._last[1]

    def measured(self) -> int:
        """How many measurements there are."""
        return sum(frames.seen for frames in self.splits.values())


def known(value: Any) -> Any:
    """What was JSON, without the numbers that no page can show: infinite ones, and 10 ** 400.

    >>> known({"step": 3, "loss": float("inf"), "counts": [10 ** 400, "a"]})
    {'step': 3, 'loss': None, 'counts': [None, 'a']}
    """
    if isinstance(value, dict):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list):
        return [known(one) for one in value]
    return value if isinstance(value, bool | str) or is_number(value) else None


class Lines(Sequence[bytes]):
    """Some lines of a text, cut out of it only when they are looked at."""

    def __init__(self, content: bytes, starts: list[int]) -> None:
        self._content, self._starts = content, starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[at] for at in range(len(self))[place]]
        start = self._starts[place]
        return self._content[start : self._content.index(b"\n", start)]

    def by_split(self) -> "dict[str, Lines]":
        """Measurements by the split that they name; decoded only where it is behind their layers.

        >>> content = b'{"split":"test","layers":[]}\\n{"layers":[{"split":"a"}]}\\n'
        >>> {split: lines[0] for split, lines in Lines(content, [0, 29]).by_split().items()}
        {'test': b'{"split":"test","layers":[]}', 'train': b'{"layers":[{"split":"a"}]}'}
        """
        found: dict[str, list[int]] = {}
        for place, start in enumerate(self._starts):
            line, split = self[place], None
            if NAMED in line:
                named = SPLIT.search(line[:HEAD].partition(b'"layers":')[0])
                split = decode(b'{"kind":"","split":%s}' % named[1] if named else line)
            found.setdefault(split_of(split), []).append(start)
        return {split: Lines(self._content, starts) for split, starts in found.items()}


def split(content: bytes) -> dict[str, Lines]:
    """The lines of a journal by the kind of their records, without decoding them.

    >>> found = split(b'{"kind":"a","n":1}\\n{"kind":"b"}\\ndamaged\\n{"kind":"a","n":2}\\n')
    >>> list(found), found["a"][-1]
    (['a', 'b'], b'{"kind":"a","n":2}')
    """
    starts: dict[bytes, list[int]] = {}
    opening, same = b"\n", []  # no line begins like this
    place = 0
    end = content.find(b"\n")
    while end >= 0:
        if content.startswith(opening, place):
            same.append(place)
        elif content.startswith(b'{"kind":"', place):
            opening = content[place : content.find(b'"', place + 9) + 1]
            same = starts.setdefault(opening, [])
            same.append(place)
        place = end + 1
        end = content.find(b"\n", place)
    return {
        kind[9:-1].decode("ascii", "replace"): Lines(content, found)
        for kind, found in starts.items()
    }


class Frames:
    """Lines that are shown one at a time: every stride-th and the newest, decoded when asked.

    >>> frames = Frames(limit=2)
    >>> frames.extend([b"%d" % n for n in range(10)])
    >>> frames.lines()
    [b'0', b'4', b'8', b'9']
    """

    def __init__(self, limit: int = FRAMES) -> None:
        self.limit, self.stride, self.seen = limit, 1, 0
        self._kept: list[bytes] = []
        self.newest = b""

    def extend(self, lines: Sequence[bytes]) -> None:
        """Take new lines."""
        while (self.seen + len(lines)) / self.stride > 2 * self.limit:
            self.stride *= 2
            self._kept = self._kept[::2]
        self._kept += lines[-self.seen % self.stride :: self.stride]
        self.seen += len(lines)
        self.newest = lines[-1] if len(lines) else self.newest

    def lines(self, most: int | None = None) -> list[bytes]:
        """Evenly chosen lines, at most so many, always with the newest."""
        kept = self._kept
        if kept and (self.seen - 1) % self.stride:
            kept = [*kept, self.newest]
        return [kept[place] for place in evenly(len(kept), len(kept) if most is None else most)]

    def records(self, most: int | None = None) -> list[dict[str, Any]]:
        """The same, decoded."""
        return [record for record in map(decode, self.lines(most)) if record]
