"""Runs on disk, as anyone may read them while they are written."""

import os
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nclab.errors import NclabWarning, RecordError
from nclab.files import list_folder, open_regular
from nclab.frame import as_frame
from nclab.records.checkpoints import FOLDER as CHECKPOINTS
from nclab.records.heartbeat import read_state
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lines import LONGEST, decode, opening
from nclab.records.lock import is_held
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import Manifest, read_manifest
from nclab.records.reading import FOREIGN, JournalLines, Reading
from nclab.records.schema import END, MEASUREMENT, START, State, layers_of, split_of
from nclab.records.seals import SEALED, open_line

if TYPE_CHECKING:
    from pandas import DataFrame

Record = dict[str, Any]

DEPTH = 3
GLANCE_BYTES = 1 << 16
GLANCED = (opening(MEASUREMENT), opening(END))


@dataclass(frozen=True, repr=False)
class RunView:
    """What a run holds at the moment of reading."""

    folder: Path
    name: str
    manifest: Manifest
    records: list[Record]
    state: State
    progress: float | None
    """From 0 to 1; None where the run does not say how long it is."""
    heartbeat: dict[str, Any]
    """The last `state.json`: step, total and what else the writer told."""
    problem: str | None = None
    """What of the journal could not be read, in words."""
    checked: bool = False
    """Whether every line was checked against its seal; older journals have none."""

    def of_kind(self, kind: str) -> list[Record]:
        """Records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        """The last record of a kind."""
        return next((r for r in reversed(self.records) if r["kind"] == kind), None)

    def __repr__(self) -> str:
        count = len(self.records)
        return f"<RunView: {self.name}, {self.manifest.kind}, {self.state}, {count} records>"

    def to_frame(self) -> "DataFrame":
        """A pandas table of what was measured: a row for each layer and moment, scalars only."""
        rows = []
        for record in self.of_kind(MEASUREMENT):
            when: Record = {
                key: record[key] for key in ("step", "epoch", "log_time") if key in record
            }
            when["split"] = split_of(record)
            for layer in layers_of(record):
                plain = {k: v for k, v in layer.items() if not isinstance(v, dict | list)}
                rows.append({**when, **plain})
        return as_frame(rows)

    @property
    def end(self) -> Record | None:
        """The record that ended the run, with its summary."""
        return self.last(END)


def read_run(
    folder: str | os.PathLike[str],
    *,
    kinds: Collection[str] | None = None,
    arrays: bool = True,
    root: Path | None = None,
    warn: bool = True,
) -> RunView:
    """Read a run without disturbing its writer; damaged lines are left out with a warning.

    With `kinds` other records are passed over unread, without `arrays` every list of
    numbers is left out: a page that shows curves needs neither pictures nor per-class values.
    With a `root` no link below it is followed. Without `warn` only `problem` tells of damage.
    """
    place = Path(folder)
    manifest = read_manifest(place, root=root)
    heartbeat = read_state(place, root=root)  # first: what it says of the end is written after it
    path = place / JOURNAL
    whole = _Whole(Reading(manifest.identity))
    try:
        with open_regular(path, root=root) as stream:
            lines = whole.lines(JournalLines(stream))
            records = list(parse(lines, whole.reading, kinds=kinds, arrays=arrays))
    except FileNotFoundError:
        records = []
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    reading = whole.reading
    problem = reading.problem
    if problem and warn:
        warnings.warn(f"{path}: {problem}.", NclabWarning, stacklevel=2)
    end_problem = _problem_at_end(place, root, whole.torn, whole=bool(whole.last))
    if end_problem:  # told, not warned: a kill did it
        problem = f"{problem}; {end_problem}" if problem else end_problem
    end = decode(whole.last) if reading.last_is_good else None
    ended = end if end and end["kind"] == END else None
    about = (place, manifest, heartbeat)
    return _view(about, records, ended, problem, bool(reading.sealed), root)


def _problem_at_end(
    folder: Path, root: Path | None, torn: int | None, *, whole: bool
) -> str | None:
    """What is wrong with a journal that nobody is writing: a torn end, or no line at all."""
    if (torn is None and whole) or is_held(folder, root=root):
        return None
    if torn is not None:
        return f"its end is torn, from byte {torn} on" if whole else "its journal has no whole line"
    there = os.path.lexists(folder / JOURNAL)
    return "its journal is empty" if there else "it has no journal"


@dataclass
class _Whole:
    """The lines of a journal that are whole, and where the rest begins."""

    reading: Reading
    last: bytes = b""
    torn: int | None = None
    """The first byte of a line that is being written, or that a kill has left."""

    def lines(self, all_: JournalLines) -> Iterator[bytes]:
        begin = 0
        for line in all_:
            if not line.endswith(b"\n"):
                self.torn = begin
                return
            begin, self.last = all_.offset, line
            yield line


def glance(folder: str | os.PathLike[str], *, root: Path | None = None) -> RunView:
    """A run with its last measurement and its end only: fast however long the journal is.

    With a `root` no link below it is followed.
    """
    place = Path(folder)
    manifest = read_manifest(place, root=root)
    heartbeat = read_state(place, root=root)  # first: what it says of the end is written after it
    path = place / JOURNAL
    wanted: dict[str, Record] = {}
    damaged = 0
    end = _End()
    try:
        reading = Reading.of(path, identity=manifest.identity, root=root)
        sealed = reading.sealed is True
        for line in _lines_backwards(path, root, end):
            record = None
            if line is None:  # farther back than a glance goes, or too long to be a line of ours
                damaged += 1
                break
            if sealed and open_line(line, manifest.identity) is None:
                damaged += 1
            elif line.startswith(GLANCED):
                record = decode(line)
                damaged += record is None
            if record is not None:
                wanted.setdefault(record["kind"], record)
                if record["kind"] == MEASUREMENT:
                    break
        problem = f"{damaged} of its last lines cannot be read" if damaged else None
        problem = problem or _problem_at_end(place, root, end.torn, whole=end.whole)
        if reading.foreign:
            problem = FOREIGN
    except OSError as error:
        sealed, problem = False, f"its journal cannot be read: {error.strerror}"
    records = [wanted[kind] for kind in (MEASUREMENT, END) if kind in wanted]
    about = (place, manifest, heartbeat)
    return _view(about, records, wanted.get(END), problem, sealed, root)


@dataclass
class _End:
    """What is seen of the end of a journal that is read backwards."""

    whole: bool = False
    """Whether there is a whole line."""
    torn: int | None = None
    """The first byte after the last whole line, if there is any."""


class LeftOut(NamedTuple):
    """What is in a folder of runs and is not shown."""

    path: Path
    why: str
    """In one line."""
    is_link: bool = False


def find_runs(root: str | os.PathLike[str], *, left_out: list[LeftOut] | None = None) -> list[Path]:
    """Every run in a folder and up to three levels below it, sorted by path.

    Links are not followed. They, folders that cannot be read and journals whose manifest cannot
    are told in `left_out`, as are links in place of a manifest or of the checkpoints of a run.
    """
    found: list[Path] = []
    _search(Path(root), Path(root), found, [] if left_out is None else left_out)
    return sorted(found)


def parse(
    lines: Iterable[bytes], reading: Reading, *, kinds: Collection[str] | None, arrays: bool
) -> Iterator[Record]:
    """The records of some lines, without the heading; damaged ones are counted in `reading`."""
    starts = None if kinds is None else tuple(map(opening, kinds))
    for line in lines:
        if not reading.accepts(line):
            continue
        if starts is not None and not line.startswith(starts) and line.startswith(b'{"kind":"'):
            continue
        record = decode(line)
        if record is None:
            reading.refuse()
        elif record["kind"] != START and (kinds is None or record["kind"] in kinds):
            yield record if arrays else cast(Record, without_arrays(record))


def without_arrays(value: Any) -> Any:
    """The value without its lists of numbers; lists of objects stay.

    >>> without_arrays({"kind": "m", "layers": [{"min_intra": 0.9, "intra": [0.9, 1.0]}]})
    {'kind': 'm', 'layers': [{'min_intra': 0.9}]}
    """
    if isinstance(value, dict):
        return {key: without_arrays(item) for key, item in value.items() if not _is_array(item)}
    if isinstance(value, list):
        return [without_arrays(item) for item in value]
    return value


def _is_array(value: Any) -> bool:
    while isinstance(value, list):
        if not value:
            return True
        value = value[0]
        if isinstance(value, int | float):
            return True
    return False


def _view(
    about: tuple[Path, Manifest, dict[str, Any]],
    records: list[Record],
    end: Record | None,
    problem: str | None,
    checked: bool,
    root: Path | None,
) -> RunView:
    folder, manifest, heartbeat = about
    state = state_of(folder, end, heartbeat, root=root)
    if state != "running" and problem is None:
        ended = end is not None
        problem = what_is_gone(folder, manifest, heartbeat, ended=ended, sealed=checked)
    progress = progress_of(state, heartbeat)
    told = (heartbeat, problem, checked)
    return RunView(folder, manifest.name, manifest, records, state, progress, *told)


def what_is_gone(
    folder: Path, manifest: Manifest, heartbeat: Mapping[str, Any], *, ended: bool, sealed: bool
) -> str | None:
    """What a journal has lost although every line is whole, in words; nobody may be writing it.

    Lines that are cut off, or all of them, are missed only by the files beside the journal.
    """
    try:
        size = (folder / JOURNAL).lstat().st_size
    except OSError:
        return "its journal is missing"
    if manifest.schema >= SEALED and not sealed:
        return "its lines have lost their checks" if size else "its journal is empty"
    had = heartbeat.get("journal_length")
    if isinstance(had, int) and size < had:
        return f"its journal has {size} bytes, it had {had}: lines are missing at its end"
    if heartbeat.get("state") == "finished" and not ended:
        return "it has finished, but its journal has no end: lines are missing there"
    return None


def state_of(
    folder: Path,
    end: Record | None,
    heartbeat: Mapping[str, Any],
    *,
    root: Path | None = None,
) -> State:
    """The state of a run, from its last record, its lock and its last heartbeat."""
    if end is not None:
        return "finished" if end.get("state") == "finished" else "failed"
    if is_held(folder, root=root):
        return "running"
    return "failed" if heartbeat.get("state") == "failed" else "stopped"


def progress_of(state: State, heartbeat: Mapping[str, Any]) -> float | None:
    """From 0 to 1, None where a run does not say how long it is.

    >>> progress_of("running", {"step": 1, "total": 4}), progress_of("finished", {})
    (0.25, 1.0)
    """
    if state == "finished":
        return 1.0
    step, total = heartbeat.get("step"), heartbeat.get("total")
    if not (isinstance(step, int | float) and isinstance(total, int | float) and total > 0):
        return None
    return step / total if 0 < step < total else float(step > 0)


def _lines_backwards(path: Path, root: Path | None, found: _End) -> Iterator[bytes | None]:
    """Whole lines from the last to the first, reading only as far back as is asked for.

    None where a line is too long to be one of ours, and after as many bytes as two such lines have.
    How the file ends is told in `found`.
    """
    try:
        stream = open_regular(path, root=root)
    except FileNotFoundError:
        return
    with stream:
        end = position = stream.seek(0, os.SEEK_END)
        rest = b""
        torn = True  # what follows the last newline is being written
        found.torn = 0 if end else None
        while position > 0:
            if len(rest) > LONGEST or end - position > 2 * LONGEST:
                yield None
                return
            size = min(max(GLANCE_BYTES, len(rest)), position)
            position -= size
            stream.seek(position)
            rest = stream.read(size) + rest
            lines = rest.split(b"\n")
            if torn and len(lines) > 1:
                last = lines.pop()
                found.whole, found.torn = True, end - len(last) if last else None
                torn = False
            elif torn:
                continue
            rest = lines[0]
            yield from reversed(lines[1:])
        if rest and not torn:
            yield rest


def _search(folder: Path, root: Path, found: list[Path], left_out: list[LeftOut]) -> None:
    if os.path.lexists(folder / MANIFEST):
        try:
            read_manifest(folder, root=root)
        except RecordError as error:
            linked = os.path.islink(folder / MANIFEST)
            run = os.path.lexists(folder / JOURNAL)
            if run or linked:  # else it is another program's manifest
                left_out.append(LeftOut(folder / MANIFEST, str(error), is_link=linked and not run))
        else:
            found.append(folder)
            if os.path.islink(folder / CHECKPOINTS):
                left_out.append(_linked(folder / CHECKPOINTS))
            return
    if len(folder.parts) - len(root.parts) >= DEPTH:
        return
    try:
        inside = list_folder(folder, root=root)
    except OSError as error:
        left_out.append(LeftOut(folder, f"Cannot read the folder {folder}: {error.strerror}."))
        return
    for name, mode in inside.items():
        path = folder / name
        if name.startswith(".") or name == MANIFEST:
            continue
        if stat.S_ISDIR(mode):
            _search(path, root, found, left_out)
        elif stat.S_ISLNK(mode) and (os.path.isdir(path) or not os.path.exists(path)):
            left_out.append(_linked(path))


def _linked(path: Path) -> LeftOut:
    words = f"The link {path} is not followed. Ask for where it leads by itself."
    return LeftOut(path, words, is_link=True)
