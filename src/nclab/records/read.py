"""Reading runs, also while they are written: one run, its last measurement, all of a folder."""

import os
import stat
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nclab.errors import NclabWarning, RecordError
from nclab.files import list_folder, open_regular
from nclab.records.checkpoints import CHECKPOINTS
from nclab.records.encoding import CHECKSUM_SCHEMA, MAX_LINE_BYTES, decode, line_prefix
from nclab.records.journal import FOREIGN, JOURNAL, JournalReader, Record
from nclab.records.manifest import MANIFEST, Manifest, read_manifest
from nclab.records.schema import END, MEASUREMENT, State, layers_of, split_of
from nclab.records.state import is_locked, progress_of, read_state, state_of
from nclab.text import as_frame

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_DEPTH = 3
"""Levels of folders in which runs are searched."""
_GLANCE_BYTES = 1 << 16
"""Bytes at the end of a journal that `glance` reads first."""


@dataclass(frozen=True, repr=False)
class RunView:
    """Content of a run at the moment of reading."""

    folder: Path
    name: str
    manifest: Manifest
    records: list[Record]
    state: State
    progress: float | None
    """Progress between 0 and 1; None if the run does not know its length."""
    heartbeat: dict[str, Any]
    """Content of `state.json`: step, total and other facts from the writer."""
    problem: str | None = None
    """What could not be read, in one line."""
    checked: bool = False
    """Whether every line has a checksum; lines of nclab 0.1.0 have none."""

    def of_kind(self, kind: str) -> list[Record]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        """Return the last record of a kind."""
        return next((r for r in reversed(self.records) if r["kind"] == kind), None)

    def __repr__(self) -> str:
        count = len(self.records)
        return f"<RunView: {self.name}, {self.manifest.kind}, {self.state}, {count} records>"

    def to_frame(self) -> "DataFrame":
        """Return all measured scalars as a pandas table, a row for each step and layer."""
        rows = []
        for record in self.of_kind(MEASUREMENT):
            moment: Record = {
                key: record[key] for key in ("step", "epoch", "log_time") if key in record
            }
            moment["split"] = split_of(record)
            for layer in layers_of(record):
                scalars = {k: v for k, v in layer.items() if not isinstance(v, dict | list)}
                rows.append({**moment, **scalars})
        return as_frame(rows)

    @property
    def end(self) -> Record | None:
        """Record that ended the run, with its summary."""
        return self.last(END)


class LeftOut(NamedTuple):
    """A file or folder that is skipped among runs."""

    path: Path
    why: str
    """Reason, in one line."""
    is_link: bool = False


def read_run(
    folder: str | os.PathLike[str],
    *,
    kinds: Collection[str] | None = None,
    arrays: bool = True,
    root: Path | None = None,
    warn: bool = True,
) -> RunView:
    """Read a run without disturbing its writer; damaged lines are skipped with a warning.

    Args:
        kinds: kinds of records to read; others are skipped quickly. By default all.
        arrays: whether records keep their lists of numbers.
        root: a folder below which no link is followed.
        warn: whether to warn of damage. `RunView.problem` describes it in either case.
    """
    path = Path(folder)
    manifest = read_manifest(path, root=root)
    heartbeat = read_state(path, root=root)  # before the journal, which is written first
    reader = JournalReader(path, kinds=kinds, arrays=arrays, root=root)
    try:
        records = list(reader.records())
    except OSError as error:
        raise RecordError(f"Cannot read {reader.path}: {error.strerror}.") from error
    problem = reader.problem
    if problem and warn:
        warnings.warn(f"{reader.path}: {problem}.", NclabWarning, stacklevel=2)
    end_problem = _end_problem(path, root, reader.torn, has_lines=reader.lines > 0)
    last = decode(reader.last)
    end = last if last and last["kind"] == END else None
    return _view(
        path, root, manifest, heartbeat, records, end, [problem, end_problem], reader.has_checksums
    )


def glance(folder: str | os.PathLike[str], *, root: Path | None = None) -> RunView:
    """Read the last measurement and the end of a run only, which is fast for any length.

    With `root`, no link below that folder is followed.
    """
    path = Path(folder)
    manifest = read_manifest(path, root=root)
    heartbeat = read_state(path, root=root)  # before the journal, which is written first
    reader = JournalReader(path, root=root)
    records: dict[str, Record] = {}
    try:
        reader.read_heading()
        problem = _read_backwards(reader, root, records)
        if reader.is_foreign:
            problem, records = FOREIGN, {}
    except OSError as error:
        problem = f"its journal cannot be read: {error.strerror}"
    kept = [records[kind] for kind in (MEASUREMENT, END) if kind in records]
    end = records.get(END)
    return _view(path, root, manifest, heartbeat, kept, end, [problem], reader.has_checksums)


def _read_backwards(
    reader: JournalReader, root: Path | None, records: dict[str, Record]
) -> str | None:
    """Collect the last measurement and the end; return what is wrong with the last lines."""
    prefixes = (line_prefix(MEASUREMENT), line_prefix(END))
    size = _GLANCE_BYTES
    while True:
        lines, torn, is_all = _last_lines(reader.path, root, size)
        damaged = 0
        records.clear()
        for line in reversed(lines):
            record = None
            if not reader.is_intact(line):
                damaged += 1
            elif line.startswith(prefixes):
                record = decode(line)
            if record is not None:
                records.setdefault(record["kind"], record)
                if record["kind"] == MEASUREMENT:
                    break
        if is_all or MEASUREMENT in records:
            break
        if size >= 2 * MAX_LINE_BYTES:  # a line that is too long, or only records of other kinds
            damaged += 1
            break
        size = min(8 * size, 2 * MAX_LINE_BYTES)
    if damaged:
        return f"{damaged} of its last lines cannot be read"
    return _end_problem(reader.path.parent, root, torn, has_lines=bool(lines))


def _last_lines(path: Path, root: Path | None, size: int) -> tuple[list[bytes], int | None, bool]:
    """Return the complete lines in the last bytes of a journal.

    Return also where an incomplete last line begins, and whether these are all lines.
    """
    try:
        stream = open_regular(path, root=root)
    except FileNotFoundError:
        return [], None, True
    with stream:
        length = stream.seek(0, os.SEEK_END)
        start = max(0, length - size)
        stream.seek(start)
        *lines, rest = stream.read(length - start).split(b"\n")
    if start > 0:
        lines = lines[1:]  # its beginning is missing
    return lines, length - len(rest) if rest else None, start == 0


def _end_problem(
    folder: Path, root: Path | None, torn: int | None, *, has_lines: bool
) -> str | None:
    """Return what is wrong with the end of a journal that no process is writing."""
    if (torn is None and has_lines) or is_locked(folder, root=root):
        return None
    if torn is not None and has_lines:
        return f"its last line is incomplete, from byte {torn} on"
    if torn is not None:
        return "its journal has no complete line"
    exists = os.path.lexists(folder / JOURNAL)
    return "its journal is empty" if exists else "it has no journal"


def _view(
    folder: Path,
    root: Path | None,
    manifest: Manifest,
    heartbeat: tuple[dict[str, Any], str | None],
    records: list[Record],
    end: Record | None,
    problems: list[str | None],
    has_checksums: bool | None,
) -> RunView:
    facts, state_problem = heartbeat
    state = state_of(folder, end, facts, root=root)
    if state != "running" and not any(problems):
        ended, checked = end is not None, bool(has_checksums)
        problems = [lost_lines(folder, manifest, facts, ended=ended, has_checksums=checked)]
    text = "; ".join(problem for problem in (*problems, state_problem) if problem)
    return RunView(
        folder,
        manifest.name,
        manifest,
        records,
        state,
        progress_of(state, facts),
        facts,
        text or None,
        bool(has_checksums),
    )


def lost_lines(
    folder: Path,
    manifest: Manifest,
    heartbeat: Mapping[str, Any],
    *,
    ended: bool,
    has_checksums: bool,
) -> str | None:
    """Return what an intact journal has lost at its end, judged by the files next to it.

    Call it only for a run that no process is writing.
    """
    try:
        size = (folder / JOURNAL).lstat().st_size
    except OSError:
        return "its journal is missing"
    if manifest.schema >= CHECKSUM_SCHEMA and not has_checksums:
        return "its lines have lost their checksums" if size else "its journal is empty"
    before = heartbeat.get("journal_length")
    if isinstance(before, int) and size < before:
        return f"its journal has {size} bytes instead of {before}: lines are missing at its end"
    if heartbeat.get("state") == "finished" and not ended:
        return "it has finished, but its last record is missing"
    return None


def find_runs(root: str | os.PathLike[str], *, left_out: list[LeftOut] | None = None) -> list[Path]:
    """Return the folders of all runs in a folder and up to three levels below, sorted by path.

    Links are not followed. Links, unreadable folders and damaged manifests are added to `left_out`.
    """
    folders: list[Path] = []
    _search(Path(root), Path(root), folders, [] if left_out is None else left_out)
    return sorted(folders)


def _search(folder: Path, root: Path, folders: list[Path], left_out: list[LeftOut]) -> None:
    if os.path.lexists(folder / MANIFEST):
        try:
            read_manifest(folder, root=root)
        except RecordError as error:
            is_link = os.path.islink(folder / MANIFEST)
            has_journal = os.path.lexists(folder / JOURNAL)
            if has_journal or is_link:  # else it is the manifest of another program
                is_link = is_link and not has_journal
                left_out.append(LeftOut(folder / MANIFEST, str(error), is_link=is_link))
        else:
            folders.append(folder)
            if os.path.islink(folder / CHECKPOINTS):
                left_out.append(_left_out_link(folder / CHECKPOINTS))
            return
    if len(folder.parts) - len(root.parts) >= MAX_DEPTH:
        return
    try:
        modes = list_folder(folder, root=root)
    except OSError as error:
        message = f"Cannot read the folder {folder}: {error.strerror}."
        left_out.append(LeftOut(folder, message))
        return
    for name, mode in modes.items():
        path = folder / name
        if name.startswith(".") or name == MANIFEST:
            continue
        if stat.S_ISDIR(mode):
            _search(path, root, folders, left_out)
        elif stat.S_ISLNK(mode) and (os.path.isdir(path) or not os.path.exists(path)):
            left_out.append(_left_out_link(path))


def _left_out_link(path: Path) -> LeftOut:
    message = f"The link {path} is not followed. Name the folder that it points to."
    return LeftOut(path, message, is_link=True)
