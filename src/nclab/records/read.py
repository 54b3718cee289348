"""Reading runs, also while they are written: a run, its newest records, or all runs of a folder."""

import json
import os
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from nclab.errors import NclabWarning, RecordError
from nclab.files import list_folder, read_regular
from nclab.records.encoding import decode, line_prefix
from nclab.records.journal import JOURNAL, JournalReader, Record, is_locked
from nclab.records.manifest import CHECKPOINTS, MANIFEST, Manifest, read_manifest
from nclab.records.schema import END, MEASUREMENT, State, layers_of, split_of
from nclab.text import as_frame

if TYPE_CHECKING:
    from pandas import DataFrame

STATE = "state.json"
MAX_DEPTH = 3
"""Number of levels of subfolders in which runs are searched."""
MOMENT_COLUMNS = ("step", "epoch", "log_time", "source")
"""Entries of a measurement that say when and how it was made."""
_MAX_STATE_BYTES = 1 << 20


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

    def of_kind(self, kind: str) -> list[Record]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        """Return the last record of a kind."""
        return next((r for r in reversed(self.records) if r["kind"] == kind), None)

    def __repr__(self) -> str:
        count = len(self.records)
        return f"<RunView: {self.name}, {self.manifest.kind}, {self.state}, {count} records>"

    def layer_rows(self) -> list[Record]:
        """Return the measured scalars, a row for each measurement and layer."""
        return [
            {
                **{name: record[name] for name in MOMENT_COLUMNS if name in record},
                "split": split_of(record),
                **{k: v for k, v in layer.items() if not isinstance(v, dict | list)},
            }
            for record in self.of_kind(MEASUREMENT)
            for layer in layers_of(record)
        ]

    def to_frame(self) -> "DataFrame":
        """Return all measured scalars as a pandas table, a row for each step and layer."""
        return as_frame(self.layer_rows())

    @property
    def end(self) -> Record | None:
        """Record that ended the run, with its summary."""
        return self.last(END)


class SkippedPath(NamedTuple):
    """A file or folder that a search for runs skipped."""

    path: Path
    reason: str
    """Reason why it was skipped, in one line."""
    is_link: bool = False


def read_run(
    folder: str | os.PathLike[str],
    *,
    kinds: Collection[str] | None = None,
    root: Path | None = None,
    warn: bool = True,
) -> RunView:
    """Read a run without disturbing its writer; damaged lines are skipped with a warning.

    Args:
        kinds: kinds of records to read; others are skipped quickly. By default all.
        root: a folder below which no link is followed.
        warn: whether to warn of damage. `RunView.problem` describes it in either case.
    """
    reader = JournalReader(folder, kinds=kinds, root=root)
    view = _view(reader, root, reader.records())
    if warn and reader.problem:
        warnings.warn(f"{reader.path}: {reader.problem}.", NclabWarning, stacklevel=2)
    return view


def glance(folder: str | os.PathLike[str], *, root: Path | None = None) -> RunView:
    """Read only the last measurement and the end record of a run: fast, and without warnings.

    With `root`, no link below that folder is followed. `RunView.problem` names a journal that
    cannot be read.
    """
    reader = JournalReader(folder, root=root)
    return _view(reader, root, _newest(reader.new_lines()), raises=False)


def _newest(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield the last measurement and the record that ends the run; decode only these two lines."""
    newest: dict[bytes, bytes] = {}
    prefixes = (line_prefix(MEASUREMENT), line_prefix(END))
    for line in lines:
        for prefix in prefixes:
            if line.startswith(prefix):
                newest[prefix] = line
    for prefix in prefixes:
        record = decode(newest.get(prefix, b""))
        if record is not None:
            yield record


def _view(
    reader: JournalReader, root: Path | None, records: Iterable[Record], *, raises: bool = True
) -> RunView:
    """Return the run with its manifest, its state and the `records` that `reader` yields.

    If the journal cannot be read, raise an error (`raises`) or describe it in `RunView.problem`.
    """
    folder = reader.path.parent
    contents: list[Record] = []
    unreadable = None
    manifest = read_manifest(folder, root=root)
    heartbeat, state_problem = read_state(folder, root=root)  # before the journal, which may grow
    try:
        contents = list(records)
    except OSError as error:
        if raises:
            raise RecordError(f"Cannot read {reader.path}: {error.strerror}.") from error
        unreadable = f"its journal cannot be read: {error.strerror}"
    state = state_of(folder, reader.end, heartbeat, root=root)
    problem = unreadable or reader.problem
    if not problem and state != "running":
        problem = reader.end_problem(heartbeat)
    return RunView(
        folder,
        manifest.name,
        manifest,
        contents,
        state,
        progress_of(state, heartbeat),
        heartbeat,
        "; ".join(text for text in (problem, state_problem) if text) or None,
    )


def read_state(folder: Path, *, root: Path | None = None) -> tuple[dict[str, Any], str | None]:
    """Return the content of `state.json` and what is wrong with the file.

    A missing file is not an error: the run was killed before its first heartbeat.
    """
    try:
        content = json.loads(read_regular(folder / STATE, root=root, max_bytes=_MAX_STATE_BYTES))
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, f"its {STATE} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        content = None
    numbers = ("step", "total", "journal_length")
    if (
        isinstance(content, dict)
        and content.get("state") in get_args(State)
        and all(isinstance(content.get(name), int | float | None) for name in numbers)
    ):
        return content, None
    return {}, f"its {STATE} is damaged, so its progress is unknown"


def state_of(
    folder: Path,
    end: Mapping[str, Any] | None,
    heartbeat: Mapping[str, Any],
    *,
    root: Path | None = None,
) -> State:
    """Return the state of a run from its last record, its lock and its last heartbeat."""
    if end is not None:
        return "finished" if end.get("state") == "finished" else "failed"
    if is_locked(folder, root=root):
        return "running"
    return "failed" if heartbeat.get("state") == "failed" else "stopped"


def progress_of(state: State, heartbeat: Mapping[str, Any]) -> float | None:
    """Return the progress between 0 and 1, or None if the run does not know its length.

    >>> progress_of("running", {"step": 1, "total": 4}), progress_of("finished", {})
    (0.25, 1.0)
    """
    if state == "finished":
        return 1.0
    step, total = heartbeat.get("step"), heartbeat.get("total")
    if not (isinstance(step, int | float) and isinstance(total, int | float) and total > 0):
        return None
    return step / total if 0 < step < total else float(step > 0)


def find_runs(
    root: str | os.PathLike[str], *, skipped: list[SkippedPath] | None = None
) -> list[Path]:
    """Return the folders of all runs in a folder and up to three levels below, sorted by path.

    Links are not followed. Links, unreadable folders and damaged manifests are added to `skipped`.
    """
    folders: list[Path] = []
    _search(Path(root), Path(root), folders, [] if skipped is None else skipped)
    return sorted(folders)


def _search(folder: Path, root: Path, folders: list[Path], skipped: list[SkippedPath]) -> None:
    if os.path.lexists(folder / MANIFEST):
        try:
            read_manifest(folder, root=root)
        except RecordError as error:
            is_link = os.path.islink(folder / MANIFEST)
            has_journal = os.path.lexists(folder / JOURNAL)
            if has_journal or is_link:  # otherwise the manifest may be of another program
                is_link = is_link and not has_journal
                skipped.append(SkippedPath(folder / MANIFEST, str(error), is_link=is_link))
        else:
            folders.append(folder)
            if os.path.islink(folder / CHECKPOINTS):
                skipped.append(_skipped_link(folder / CHECKPOINTS))
            return
    if len(folder.parts) - len(root.parts) >= MAX_DEPTH:
        return
    try:
        modes = list_folder(folder, root=root)
    except OSError as error:
        message = f"Cannot read the folder {folder}: {error.strerror}."
        skipped.append(SkippedPath(folder, message))
        return
    for name, mode in modes.items():
        path = folder / name
        if name.startswith(".") or name == MANIFEST:
            continue
        if stat.S_ISDIR(mode):
            _search(path, root, folders, skipped)
        elif stat.S_ISLNK(mode) and (os.path.isdir(path) or not os.path.exists(path)):
            skipped.append(_skipped_link(path))


def _skipped_link(path: Path) -> SkippedPath:
    message = f"The link {path} is not followed. Name the folder that it points to."
    return SkippedPath(path, message, is_link=True)
