"""Verifying a run: every line against its seal, every checkpoint and file against its checksum."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nclab.errors import RecordError
from nclab.records import checkpoints
from nclab.records.journal import FILE as JOURNAL
from nclab.records.journal import scan
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import read_manifest
from nclab.records.read import LeftOut, find_runs
from nclab.records.results import CLAIMS, SKIPPED
from nclab.records.seals import SEALED, open_json
from nclab.regular_files import read_regular

State = Literal["good", "unchecked", "skipped", "differs", "damaged"]


@dataclass(frozen=True)
class Verified:
    """One file of a run."""

    file: str
    """Or what of a run was made again."""
    state: State
    found: str
    """What was checked, or the first bad byte and what it affects."""
    repair: str = ""
    """What to do, where something is wrong."""


def verify_run(folder: Path) -> list[Verified]:
    """Every file of a run; nothing is changed.

    >>> import tempfile
    >>> from nclab.records import open_run
    >>> place = Path(tempfile.mkdtemp()) / "one"
    >>> open_run(place, kind="demo", config={}).close()
    >>> [(one.file, one.state) for one in verify_run(place)]
    [('manifest.json', 'good'), ('journal.jsonl', 'good')]
    """
    return _verified(folder, folder)


def _verified(folder: Path, root: Path) -> list[Verified]:
    return [_manifest(folder, root), _journal(folder, root), *_checkpoints(folder, root)]


def verify_folder(root: Path) -> list[Verified]:
    """Every run and every file of results in a folder; names are relative to it."""
    odd: list[LeftOut] = []
    found = [
        replace(one, file=(folder / one.file).relative_to(root).as_posix())
        for folder in find_runs(root, left_out=odd)
        for one in _verified(folder, root)
    ]
    named = {one.file for one in found}
    found += [one for one in (_left_out(one, root) for one in odd) if one.file not in named]
    results = [root / name for name in (CLAIMS, SKIPPED)]
    results += [path for one in ("*/numbers.json", "*/*.picture.json") for path in root.glob(one)]
    return found + [_result(path, root) for path in sorted(results) if os.path.lexists(path)]


def _left_out(one: LeftOut, root: Path) -> Verified:
    name = one.path.relative_to(root).as_posix()
    if one.is_link:
        return Verified(name, "skipped", one.why)
    return Verified(name, "damaged", one.why, "Restore it from a copy.")


def _result(path: Path, root: Path) -> Verified:
    name = path.relative_to(root).as_posix()
    again = "Delete it and reproduce the experiment again."
    try:
        _, sealed = open_json(read_regular(path, root=root))
    except OSError as error:
        return Verified(name, "damaged", f"it cannot be read: {error.strerror}")
    except RecordError as error:
        return Verified(name, "damaged", str(error), again)
    if not sealed:
        return Verified(name, "unchecked", "written before files had checks")
    return Verified(name, "good", "as it was written")


def _manifest(folder: Path, root: Path) -> Verified:
    try:
        schema = read_manifest(folder, root=root).schema
    except RecordError as error:
        return Verified(MANIFEST, "damaged", str(error), "Restore it from a copy.")
    if schema < SEALED:
        return Verified(MANIFEST, "unchecked", "written before files had checks")
    return Verified(MANIFEST, "good", "as it was written")


def _journal(folder: Path, root: Path) -> Verified:
    path = folder / JOURNAL
    try:
        found = scan(path, root=root)
        size = path.lstat().st_size
    except FileNotFoundError:
        return Verified(JOURNAL, "damaged", "it is missing", "Restore it from a copy.")
    except OSError as error:
        return Verified(JOURNAL, "damaged", f"it cannot be read: {error.strerror}")
    except RecordError as error:
        return Verified(JOURNAL, "damaged", str(error))
    reading = found.reading
    if size == 0:  # the manifest is written after the first line
        return Verified(JOURNAL, "damaged", "it is empty", "Restore it from a copy.")
    if found.damage is not None:
        usable = _usable_before(folder, found.damage.offset, root)
        words = f"{reading.problem}: byte {found.damage.offset}, line {found.damage.line}"
        repair = "Restore it from a copy, or delete the folder."
        if usable is not None:
            repair = f"Resume the run: it goes back to step {usable} and makes the lines again."
        return Verified(JOURNAL, "damaged", words, repair)
    if found.end < size:
        words = f"the end from byte {found.end} on is torn; {found.lines} lines before it are good"
        return Verified(JOURNAL, "damaged", words, "Resume the run: what is torn is cut off.")
    if not reading.sealed:
        words = f"{found.lines} lines of JSON, written before lines had checks"
        return Verified(JOURNAL, "unchecked", words)
    return Verified(JOURNAL, "good", f"{found.lines} lines as they were written")


def _usable_before(folder: Path, offset: int, root: Path) -> int | None:
    """The step of the last good checkpoint whose journal ends before a byte."""
    if (folder / checkpoints.FOLDER).is_symlink():
        return None
    for step, path in reversed(checkpoints.list_checkpoints(folder).items()):
        try:
            if checkpoints.read_checkpoint(path, root=root).journal_length <= offset:
                return step
        except RecordError:
            continue
    return None


def _checkpoints(folder: Path, root: Path) -> Iterator[Verified]:
    if (folder / checkpoints.FOLDER).is_symlink():
        yield Verified(checkpoints.FOLDER, "skipped", "it is a link, which is not followed")
        return
    for path in checkpoints.list_checkpoints(folder).values():
        name = f"{checkpoints.FOLDER}/{path.name}"
        try:
            checkpoints.read_checkpoint(path, root=root)
        except RecordError as error:
            yield Verified(name, "damaged", str(error), "Delete it: the one before is used.")
        else:
            yield Verified(name, "good", "its digest is right")
