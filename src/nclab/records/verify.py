"""Verifying runs: every line and file against its checksum, and the files against each other."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nclab.errors import RecordError
from nclab.files import read_regular
from nclab.records.encoding import CHECKSUM_SCHEMA, load_checked_json
from nclab.records.journal import JOURNAL, JournalReader, belongs, is_locked
from nclab.records.manifest import (
    CHECKPOINTS,
    MANIFEST,
    Checkpoint,
    list_checkpoints,
    read_checkpoint,
    read_manifest,
)
from nclab.records.read import STATE, SkippedPath, find_runs, read_state
from nclab.records.results import CLAIMS, SKIPPED

VerifyState = Literal["good", "unchecked", "skipped", "differs", "damaged"]
_RESTORE = "Restore it from a copy."
_OLD = "written by a version without checksums"


@dataclass(frozen=True)
class Verified:
    """Result of verifying one file."""

    file: str
    """Name of the file, or of the part of a run that was recomputed."""
    state: VerifyState
    message: str
    """Description of what was checked, or of the first damaged byte and what it affects."""
    repair: str = ""
    """What to do if something is wrong."""


def verify_run(folder: Path) -> list[Verified]:
    """Return a result for every file of a run; nothing is changed."""
    return _verify(folder, folder)


def verify_folder(root: Path) -> list[Verified]:
    """Return a result for each file of runs and experiments; names are relative to the folder."""
    skipped: list[SkippedPath] = []
    results = [
        replace(result, file=(folder / result.file).relative_to(root).as_posix())
        for folder in find_runs(root, skipped=skipped)
        for result in _verify(folder, root)
    ]
    names = {result.file for result in results}
    for entry in skipped:
        name = entry.path.relative_to(root).as_posix()
        if name not in names:
            state: VerifyState = "skipped" if entry.is_link else "damaged"
            results.append(Verified(name, state, entry.reason, "" if entry.is_link else _RESTORE))
    paths = [root / name for name in (CLAIMS, SKIPPED)]
    for pattern in ("*/numbers.json", "*/*.picture.json"):
        paths += root.glob(pattern)
    return results + [_verify_result(path, root) for path in sorted(paths) if os.path.lexists(path)]


def _verify_result(path: Path, root: Path) -> Verified:
    name = path.relative_to(root).as_posix()
    try:
        _, has_checksum = load_checked_json(read_regular(path, root=root))
    except OSError as error:
        return Verified(name, "damaged", f"it cannot be read: {error.strerror}")
    except RecordError as error:
        repair = "Delete it and reproduce the experiment again."
        return Verified(name, "damaged", str(error), repair)
    if not has_checksum:
        return Verified(name, "unchecked", _OLD)
    return Verified(name, "good", "its checksum is right")


def _verify(folder: Path, root: Path) -> list[Verified]:
    try:
        if read_manifest(folder, root=root).schema < CHECKSUM_SCHEMA:
            results = [Verified(MANIFEST, "unchecked", _OLD)]
        else:
            results = [Verified(MANIFEST, "good", "its checksum is right")]
    except RecordError as error:
        results = [Verified(MANIFEST, "damaged", str(error), _RESTORE)]
    # Read checkpoints before the journal: if the run grows, none may be newer than the journal.
    is_linked = (folder / CHECKPOINTS).is_symlink()
    checkpoints: dict[str, Checkpoint | str] = {}
    for path in () if is_linked else list_checkpoints(folder).values():
        try:
            checkpoints[path.name] = replace(read_checkpoint(path, root=root), tensors={})
        except RecordError as error:
            checkpoints[path.name] = str(error)
    heartbeat, state_problem = read_state(folder, root=root)
    reader = JournalReader(folder, root=root)
    journal = _verify_journal(reader, folder, root, heartbeat)
    intact = [item for item in checkpoints.values() if isinstance(item, Checkpoint)]
    identity = reader.identity or ""
    fitting = [item.step for item in intact if belongs(item, reader.path, identity, root=root)]
    ahead = [item for item in intact if item.journal_length > reader.intact_end]
    ahead = [item for item in ahead if item.identity == identity]
    if ahead and journal.state != "damaged":
        message = f"it ends at byte {reader.intact_end}, before the checkpoint of step "
        message += f"{ahead[-1].step} was written: lines are missing at its end"
        journal = Verified(JOURNAL, "damaged", message, _RESTORE)
    if journal.state == "damaged" and fitting and not reader.is_foreign:
        repair = f"Resume the run: it goes back to step {max(fitting)} and repeats the lines."
        journal = replace(journal, repair=repair)
    is_damaged = journal.state == "damaged"
    results.append(journal)
    for name, item in checkpoints.items():
        file = f"{CHECKPOINTS}/{name}"
        repair = "Delete it; the run resumes from the checkpoint before it."
        if isinstance(item, str):
            results.append(Verified(file, "damaged", item, repair))
        elif item.step in fitting or (is_damaged and item.identity == reader.identity != ""):
            results.append(Verified(file, "good", "its digest is right"))
        else:
            if not fitting:
                repair = "Restore it from a copy; the run cannot go on without a checkpoint."
            message = "it belongs to another run, or was written with another journal"
            results.append(Verified(file, "damaged", message, repair))
    if is_linked:
        message = "it is a link, which is not followed"
        results.append(Verified(CHECKPOINTS, "skipped", message))
    if state_problem:
        repair = "Delete it; the run can be resumed without it."
        results.append(Verified(STATE, "damaged", state_problem, repair))
    return results


def _verify_journal(
    reader: JournalReader, folder: Path, root: Path, heartbeat: dict[str, object]
) -> Verified:
    """Read the journal to its end; return whether its lines are intact."""
    try:
        for _ in reader.new_lines():
            pass
        reader.require_readable()
    except OSError as error:
        return Verified(JOURNAL, "damaged", f"it cannot be read: {error.strerror}", _RESTORE)
    except RecordError as error:
        return Verified(JOURNAL, "damaged", str(error), _RESTORE)
    if reader.is_foreign:
        message = "it belongs to another run than the manifest, so none of its records is used"
        return Verified(JOURNAL, "damaged", message, "Restore the journal or the manifest.")
    count = f"{reader.intact_lines} lines"
    if reader.damage is not None:
        message = f"{reader.problem}: byte {reader.damage.offset}, line {reader.damage.line}"
        repair = "Restore it from a copy, or delete the folder."
        return Verified(JOURNAL, "damaged", message, repair)
    is_live = is_locked(folder, root=root)
    if reader.damaged_at_end or (reader.torn is not None and not is_live):
        message = f"damaged from byte {reader.intact_end} on; {count} before it are intact"
        cut = "Resume the run: the damaged end is cut off."
        return Verified(JOURNAL, "damaged", message, cut)
    problem = None if is_live else reader.end_problem(heartbeat)
    if problem:
        return Verified(JOURNAL, "damaged", f"{count} are intact, but {problem}", _RESTORE)
    if not reader.has_checksums:
        return Verified(JOURNAL, "unchecked", f"{count} of JSON, {_OLD}")
    return Verified(JOURNAL, "good", f"the checksums of {count} are right")
