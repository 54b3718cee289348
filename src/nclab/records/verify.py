"""Verifying runs: every line and file against its checksum, and the files against each other."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nclab.errors import RecordError
from nclab.files import open_regular, read_regular
from nclab.records.checkpoints import CHECKPOINTS, Checkpoint, list_checkpoints, read_checkpoint
from nclab.records.encoding import CHECKSUM_SCHEMA, line_prefix, load_checked_json
from nclab.records.journal import JOURNAL, JournalReader, prefix_checksum
from nclab.records.manifest import MANIFEST, Manifest, read_manifest
from nclab.records.read import LeftOut, find_runs, lost_lines
from nclab.records.results import CLAIMS, SKIPPED
from nclab.records.schema import END
from nclab.records.state import STATE, is_locked, read_state

VerifyState = Literal["good", "unchecked", "skipped", "differs", "damaged"]
_RESTORE = "Restore it from a copy."


@dataclass(frozen=True)
class Verified:
    """Result of verifying one file."""

    file: str
    """Name of the file, or of the part of a run that was computed again."""
    state: VerifyState
    found: str
    """What was checked, or the first damaged byte and what it affects."""
    repair: str = ""
    """What to do if something is wrong."""


def verify_run(folder: Path) -> list[Verified]:
    """Verify every file of a run; nothing is changed.

    >>> import tempfile
    >>> from nclab.records import open_run
    >>> folder = Path(tempfile.mkdtemp()) / "one"
    >>> open_run(folder, kind="demo", config={}).close()
    >>> [(result.file, result.state) for result in verify_run(folder)]
    [('manifest.json', 'good'), ('journal.jsonl', 'good')]
    """
    return _verify(folder, folder)


def verify_folder(root: Path) -> list[Verified]:
    """Verify every run and every file of results in a folder; names are relative to the folder."""
    left_out: list[LeftOut] = []
    results = [
        replace(result, file=(folder / result.file).relative_to(root).as_posix())
        for folder in find_runs(root, left_out=left_out)
        for result in _verify(folder, root)
    ]
    names = {result.file for result in results}
    for entry in left_out:
        name = entry.path.relative_to(root).as_posix()
        if name not in names:
            state: VerifyState = "skipped" if entry.is_link else "damaged"
            results.append(Verified(name, state, entry.why, "" if entry.is_link else _RESTORE))
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
        return Verified(name, "unchecked", "written by a version without checksums")
    return Verified(name, "good", "its checksum is right")


def _verify(folder: Path, root: Path) -> list[Verified]:
    manifest: Manifest | str
    try:
        manifest = read_manifest(folder, root=root)
    except RecordError as error:
        manifest = str(error)
    # Checkpoints before the journal, which may be growing: no checkpoint is ahead of the journal.
    is_linked = (folder / CHECKPOINTS).is_symlink()
    checkpoints: dict[str, Checkpoint | str] = {}
    for path in () if is_linked else list_checkpoints(folder).values():
        try:
            checkpoints[path.name] = replace(read_checkpoint(path, root=root), tensors={})
        except RecordError as error:
            checkpoints[path.name] = str(error)
    _, state_problem = read_state(folder, root=root)
    if isinstance(manifest, str):
        results = [Verified(MANIFEST, "damaged", manifest, _RESTORE)]
    elif manifest.schema < CHECKSUM_SCHEMA:
        results = [Verified(MANIFEST, "unchecked", "written by a version without checksums")]
    else:
        results = [Verified(MANIFEST, "good", "its checksum is right")]
    results += _verify_journal(folder, root, manifest, checkpoints)
    if is_linked:
        message = "it is a link, which is not followed"
        results.append(Verified(CHECKPOINTS, "skipped", message))
    if state_problem:
        repair = "Delete it; the run can be resumed without it."
        results.append(Verified(STATE, "damaged", state_problem, repair))
    return results


def _verify_journal(
    folder: Path, root: Path, manifest: Manifest | str, checkpoints: dict[str, Checkpoint | str]
) -> list[Verified]:
    """Verify the journal, and every checkpoint against it."""
    heartbeat, _ = read_state(folder, root=root)  # before the journal, which is written first
    reader = JournalReader(folder, root=root)
    prefixes: dict[int, int] = {}
    try:
        for _ in reader.new_lines():
            pass
        reader.require_readable()
        with open_regular(reader.path, root=root) as stream:
            for checkpoint in checkpoints.values():
                if isinstance(checkpoint, Checkpoint):
                    prefix = prefix_checksum(stream, checkpoint.journal_length)
                    if prefix is not None:
                        prefixes[checkpoint.journal_length] = prefix[0]
        cannot_read = "" if reader.lines or reader.torn is not None else "it is empty"
    except FileNotFoundError:
        cannot_read = "it is missing"
    except OSError as error:
        cannot_read = f"it cannot be read: {error.strerror}"
    except RecordError as error:
        cannot_read = str(error)

    def fits(checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint was written with this journal."""
        is_same_run = not reader.identity or checkpoint.identity == reader.identity
        prefix = prefixes.get(checkpoint.journal_length)
        return is_same_run and prefix == checkpoint.journal_checksum

    intact = {n: item for n, item in checkpoints.items() if isinstance(item, Checkpoint)}
    usable = [checkpoint.step for checkpoint in intact.values() if fits(checkpoint)]
    repair = "Restore it from a copy, or delete the folder."
    if usable:
        repair = f"Resume the run: it goes back to step {max(usable)} and repeats the lines."
    lost = None
    if not isinstance(manifest, str) and not cannot_read and not is_locked(folder, root=root):
        ended = reader.last_intact.startswith(line_prefix(END))
        checked = bool(reader.has_checksums)
        lost = lost_lines(folder, manifest, heartbeat, ended=ended, has_checksums=checked)
    if cannot_read:
        journal = Verified(JOURNAL, "damaged", cannot_read, repair if usable else _RESTORE)
    else:
        longest = max(
            (item for item in intact.values() if item.identity == (reader.identity or "")),
            key=lambda item: item.journal_length,
            default=None,
        )
        journal = _judge_journal(reader, lost, longest, repair)
    results = [journal]
    for name, item in checkpoints.items():
        file = f"{CHECKPOINTS}/{name}"
        if isinstance(item, str):
            delete = "Delete it; the run resumes from the one before."
            results.append(Verified(file, "damaged", item, delete))
        elif cannot_read or fits(item):
            results.append(Verified(file, "good", "its digest is right"))
        else:
            results.append(_judge_checkpoint(file, item, reader, is_only=not usable))
    return results


def _judge_journal(
    reader: JournalReader, lost: str | None, longest: Checkpoint | None, repair: str
) -> Verified:
    """Return the result for a journal that could be read to its end."""
    if reader.is_foreign:
        message = "it belongs to another run than the manifest, so none of its records is used"
        return Verified(JOURNAL, "damaged", message, "Restore the journal or the manifest.")
    count = f"{reader.intact_lines} lines"
    if reader.damage is not None:
        message = f"{reader.problem}: byte {reader.damage.offset}, line {reader.damage.line}"
        return Verified(JOURNAL, "damaged", message, repair)
    is_behind = longest is not None and longest.journal_length > reader.intact_end
    if reader.damaged_at_end or reader.torn is not None:
        message = f"damaged from byte {reader.intact_end} on; {count} before it are intact"
        cut = "Resume the run: the damaged end is cut off."
        return Verified(JOURNAL, "damaged", message, repair if is_behind else cut)
    if longest is not None and is_behind:
        message = (
            f"it ends at byte {reader.intact_end}, but the checkpoint of step {longest.step} was "
            f"written with {longest.journal_length} bytes: lines are missing at its end"
        )
        return Verified(JOURNAL, "damaged", message, repair)
    if lost:
        return Verified(JOURNAL, "damaged", f"{count} are intact, but {lost}", repair)
    if not reader.has_checksums:
        message = f"{count} of JSON, written by a version without checksums"
        return Verified(JOURNAL, "unchecked", message)
    return Verified(JOURNAL, "good", f"the checksums of {count} are right")


def _judge_checkpoint(
    file: str, checkpoint: Checkpoint, reader: JournalReader, *, is_only: bool
) -> Verified:
    """Return the result for an intact checkpoint that does not fit the journal."""
    repair = "Delete it; the run resumes from the one before."
    if is_only:
        repair = "Restore it from a copy; the run cannot go on without a checkpoint that fits."
    if reader.identity and checkpoint.identity != reader.identity:
        return Verified(file, "damaged", "it belongs to another run", repair)
    length, damage = checkpoint.journal_length, reader.damage
    is_journal_damaged = damage is not None and damage.offset < length
    is_journal_shorter = checkpoint.identity != "" and length > reader.intact_end
    if reader.is_foreign or is_journal_damaged or is_journal_shorter:
        return Verified(file, "good", "its digest is right, but the journal before it is damaged")
    return Verified(file, "damaged", "it was written with another journal", repair)
