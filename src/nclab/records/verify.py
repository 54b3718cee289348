"""Verifying a run: every line against its seal, every file against its checksum and the others."""

import os
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from nclab.errors import RecordError
from nclab.files import open_regular, read_regular
from nclab.records.checkpoints import FOLDER, Checkpoint, list_checkpoints, read_checkpoint
from nclab.records.heartbeat import read_state
from nclab.records.journal import BLOCK, ENDING, Scan, scan
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lock import is_held
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import Manifest, read_manifest
from nclab.records.read import LeftOut, find_runs, what_is_gone
from nclab.records.results import CLAIMS, SKIPPED
from nclab.records.seals import SEALED, open_json

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
    manifest: Manifest | str
    try:
        manifest = read_manifest(folder, root=root)
    except RecordError as error:
        manifest = str(error)
    # Before the journal, which may be growing: a checkpoint is never ahead of it.
    linked = (folder / FOLDER).is_symlink()
    paths = [] if linked else list_checkpoints(folder).values()
    kept = {path.name: _kept(path, root) for path in paths}
    whole = {name: one for name, one in kept.items() if isinstance(one, Checkpoint)}
    journal = Journal.of(folder, manifest, whole, root)
    return [
        _manifest(manifest, journal),
        _journal(journal),
        *(_checkpoint(f"{FOLDER}/{name}", one, journal) for name, one in kept.items()),
        *([Verified(FOLDER, "skipped", "it is a link, which is not followed")] if linked else []),
    ]


@dataclass(frozen=True)
class Journal:
    """A journal and what the other files of its run say of it."""

    whole: dict[str, Checkpoint]
    """Checkpoints whose digest is right, by name."""
    identity: str | None
    """Of the run, as most of its files have it; None where there is nothing to tell."""
    cannot: Verified | None = None
    """Why it could not be read."""
    scanned: Scan | None = None
    size: int = 0
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32 by the number of first bytes, of every checkpoint's."""
    gone: str | None = None
    """What it has lost although every line is whole."""
    is_strange: bool = False
    manifest_is_strange: bool = False

    @classmethod
    def of(
        cls, folder: Path, manifest: Manifest | str, whole: dict[str, Checkpoint], root: Path
    ) -> "Journal":
        """Read it, as the run that its own first line tells of."""
        path = folder / JOURNAL
        told = None if isinstance(manifest, str) else manifest.identity
        heartbeat = read_state(folder, root=root)  # first, for it is written after the journal
        try:
            found = scan(path, identity=told, root=root)
            strange = found.reading.foreign
            if strange:
                found = scan(path, root=root)
            size = path.lstat().st_size
            lengths = {one.journal_length for one in whole.values()}
            checksums = _checksums(path, sorted(lengths), root)
        except FileNotFoundError:
            missing = Verified(JOURNAL, "damaged", "it is missing", "Restore it from a copy.")
            return cls(whole, told, missing)
        except OSError as error:
            words = f"it cannot be read: {error.strerror}"
            return cls(whole, told, Verified(JOURNAL, "damaged", words))
        except RecordError as error:
            return cls(whole, told, Verified(JOURNAL, "damaged", str(error)))
        gone = None
        if not isinstance(manifest, str) and not strange and not is_held(folder, root=root):
            about = {"ended": found.last.startswith(ENDING), "sealed": bool(found.reading.sealed)}
            gone = what_is_gone(folder, manifest, heartbeat, **about)
        own = found.reading.identity
        others = {one.identity for one in whole.values()}
        # Where the checkpoints take no side, neither of the two can be believed.
        for_manifest, for_journal = told in others, own in others
        return cls(
            whole,
            told if for_manifest or not strange else own if for_journal else None,
            None,
            found,
            size,
            checksums,
            gone,
            is_strange=strange and (for_manifest or not for_journal),
            manifest_is_strange=strange and (for_journal or not for_manifest),
        )

    def fits(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint was written with this journal."""
        known = self.checksums.get(checkpoint.journal_length)
        return known == checkpoint.journal_checksum and self.is_of_run(checkpoint)

    def is_of_run(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has the identity of the run."""
        return self.identity is None or checkpoint.identity == self.identity

    @property
    def ahead(self) -> Checkpoint | None:
        """A checkpoint of the run that was written with a longer journal."""
        assert self.scanned is not None
        ends = [one for one in self.whole.values() if self.is_of_run(one)]
        longest = max(ends, key=lambda one: one.journal_length, default=None)
        return longest if longest and longest.journal_length > self.scanned.end else None

    @property
    def way_back(self) -> str:
        """How to repair it: from the last checkpoint that was written with what is left of it."""
        usable = [one.step for one in self.whole.values() if self.fits(one)]
        if usable:
            return f"Resume the run: it goes back to step {max(usable)} and makes the lines again."
        return "Restore it from a copy, or delete the folder."


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


def _kept(path: Path, root: Path) -> Checkpoint | str:
    """A checkpoint without its tensors, or what is wrong with it."""
    try:
        return replace(read_checkpoint(path, root=root), tensors={})
    except RecordError as error:
        return str(error)


def _checksums(path: Path, lengths: list[int], root: Path) -> dict[int, int]:
    """CRC-32 of the first bytes, for each length that the file has."""
    found: dict[int, int] = {}
    checksum = position = 0
    with open_regular(path, root=root) as stream:
        for length in lengths:
            while position < length and (block := stream.read(min(BLOCK, length - position))):
                checksum, position = zlib.crc32(block, checksum), position + len(block)
            if position == length:
                found[length] = checksum
    return found


def _manifest(manifest: Manifest | str, journal: Journal) -> Verified:
    if isinstance(manifest, str):
        return Verified(MANIFEST, "damaged", manifest, "Restore it from a copy.")
    if journal.manifest_is_strange:
        words = "it is of another run than the journal: name, config and seed are not those of "
        return Verified(MANIFEST, "damaged", f"{words}these numbers", "Restore it from a copy.")
    if manifest.schema < SEALED:
        return Verified(MANIFEST, "unchecked", "written before files had checks")
    return Verified(MANIFEST, "good", "as it was written")


def _journal(journal: Journal) -> Verified:
    found = journal.scanned
    if found is None:
        assert journal.cannot is not None
        return journal.cannot
    reading = found.reading
    if journal.size == 0:  # the manifest is written after the first line
        return Verified(JOURNAL, "damaged", "it is empty", journal.way_back)
    if journal.is_strange:
        words = "it is of another run than the manifest: none of its numbers is one of this run"
        return Verified(JOURNAL, "damaged", words, "Restore it from a copy.")
    if found.damage is not None:
        words = f"{reading.problem}: byte {found.damage.offset}, line {found.damage.line}"
        return Verified(JOURNAL, "damaged", words, journal.way_back)
    ahead = journal.ahead
    if found.end < journal.size:
        words = f"the end from byte {found.end} on is torn; {found.lines} lines before it are good"
        repair = journal.way_back if ahead else "Resume the run: what is torn is cut off."
        return Verified(JOURNAL, "damaged", words, repair)
    if ahead is not None:
        words = (
            f"it ends at byte {found.end}, line {found.lines}, but the checkpoint of step "
            f"{ahead.step} was written with {ahead.journal_length} bytes of it: lines are missing "
            "at its end"
        )
        return Verified(JOURNAL, "damaged", words, journal.way_back)
    if journal.gone:
        words = f"{found.lines} lines are good, but {journal.gone}"
        return Verified(JOURNAL, "damaged", words, journal.way_back)
    if not reading.sealed:
        words = f"{found.lines} lines of JSON, written before lines had checks"
        return Verified(JOURNAL, "unchecked", words)
    return Verified(JOURNAL, "good", f"{found.lines} lines as they were written")


def _checkpoint(name: str, one: Checkpoint | str, journal: Journal) -> Verified:
    again = "Delete it: the one before is used."
    if isinstance(one, str):
        return Verified(name, "damaged", one, again)
    scanned = journal.scanned
    if scanned is None or journal.fits(one):
        return Verified(name, "good", "its digest is right")
    alone = not any(journal.fits(other) for other in journal.whole.values())
    if alone:
        again = "Restore it from a copy; without one that belongs to it the run cannot go on."
    if not journal.is_of_run(one):
        words = "it is of another run; this one cannot go on from it"
        return Verified(name, "damaged", words, again)
    length, damage = one.journal_length, scanned.damage
    if length > scanned.end:
        if one.identity:  # it is of this run, so that the journal is what has lost something
            words = "its digest is right, but the journal has lost lines that it was written with"
            return Verified(name, "good", words)
        words = f"it was written with {length} bytes of a journal, this one has {scanned.end}"
        return Verified(name, "damaged", f"{words}; the run cannot go on from it", again)
    if journal.is_strange or (damage is not None and damage.offset < length):
        return Verified(name, "good", "its digest is right, but the journal before it is damaged")
    words = "it was written with another journal; the run cannot go on from it"
    return Verified(name, "damaged", words, again)
