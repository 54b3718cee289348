"""A run on disk, as its one writer sees it."""

import contextlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nclab.errors import NclabError, NclabWarning, RecordError
from nclab.files import delete, flush_folder, remove_leftovers, translate_os_errors
from nclab.records import checkpoints
from nclab.records.checkpoints import Checkpoint
from nclab.records.heartbeat import FILE as STATE
from nclab.records.heartbeat import Heartbeat, read_state
from nclab.records.journal import FILE as JOURNAL
from nclab.records.journal import JournalWriter, damage_message
from nclab.records.lines import exact
from nclab.records.lock import Lock
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import (
    Manifest,
    first_difference,
    identity_of,
    read_manifest,
    write_manifest,
)
from nclab.records.read import glance
from nclab.records.schema import END

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
"""Checkpoints kept: the last, and the one before in case the last is damaged."""


def open_run(
    folder: str | os.PathLike[str],
    *,
    kind: str,
    config: Mapping[str, Any],
    seed: int | None = None,
    name: str | None = None,
    device: str = "cpu",
    backend: str | None = None,
) -> "Run":
    """Create a run, or go on with one of the same kind, config and seed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "first"
    >>> with open_run(folder, kind="demo", config={"rate": 0.1}, seed=0) as run:
    ...     run.append({"kind": "measurement", "step": 1, "loss": 0.5})
    ...     run.finish(loss=0.5)
    >>> open_run(folder, kind="demo", config={"rate": 0.2}, seed=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    nclab.errors.RecordError: ...config.rate: 0.1 there, 0.2 here...
    """
    place = Path(folder)
    with translate_os_errors("write", place, RecordError):
        (place / checkpoints.FOLDER).mkdir(parents=True, exist_ok=True)
    wanted = Manifest(
        name=name or place.resolve().name,
        kind=kind,
        config=exact(dict(config), what="the config of a run"),
        seed=seed,
        device=device,
        backend=backend,
    )
    wanted = replace(wanted, identity=identity_of(kind, wanted.config, seed))
    lock = Lock(place)
    try:
        remove_leftovers(place, (MANIFEST, STATE))
        remove_leftovers(place / checkpoints.FOLDER, ("step-*.safetensors",))
        if (place / MANIFEST).exists():
            manifest = read_manifest(place)
            _same(manifest, wanted, place)
            journal = JournalWriter(place / JOURNAL, manifest.identity)
        else:
            manifest = wanted
            journal = _first_journal(place, manifest)
        return Run(place, manifest, journal, lock)
    except BaseException:
        lock.close()
        raise


def refuse_other(
    folder: str | os.PathLike[str], *, kind: str, config: Mapping[str, Any], seed: int | None = None
) -> None:
    """Refuse at once a folder that holds another run, or one that has finished.

    For who opens the run later: a training should not go on for hours before it is told.
    """
    place = Path(folder)
    if not (place / MANIFEST).exists():
        return
    wanted = {"kind": kind, "seed": seed, "config": exact(dict(config), what="the config of a run")}
    _same_run(read_manifest(place), wanted, place)
    if glance(place).state == "finished":
        raise RecordError(
            f"Expected a new folder or a run that goes on, but {place} has finished. "
            "Take another folder, or delete this one."
        )


def _same_run(old: Manifest, new: Mapping[str, Any], folder: Path) -> None:
    for part in ("kind", "seed", "config"):
        found = first_difference({part: getattr(old, part)}, {part: new[part]})
        if found:
            raise RecordError(
                f"Expected the run that {folder} holds, got another one: {found}. "
                "Take another folder."
            )


def _same(old: Manifest, new: Manifest, folder: Path) -> None:
    """Refuse another run; warn of another version, device or CPU, which may round differently."""
    _same_run(old, vars(new), folder)
    changed = first_difference(_surroundings(old, old), _surroundings(new, old))
    if changed:
        warnings.warn(
            f"{folder} was begun with another version, device or CPU ({changed}); its numbers may "
            "differ from those of a run made in one go.",
            NclabWarning,
            stacklevel=3,
        )


def _surroundings(manifest: Manifest, old: Manifest) -> dict[str, Any]:
    """What decides the rounding; not what an older run could not tell."""
    found = {"device": manifest.device, "backend": manifest.backend, "cpu": manifest.cpu}
    found |= {**manifest.versions, "commit": manifest.commit}
    if old.cpu is None:
        del found["cpu"]
    if old.backend is None:
        del found["backend"]
        if "numba" not in old.versions:
            found.pop("numba", None)
    return found


def _first_journal(folder: Path, manifest: Manifest) -> JournalWriter:
    """A new run: the journal first, so that a folder with a manifest always has one."""
    journal = JournalWriter(folder / JOURNAL)
    try:
        if journal.damage is not None or not journal.is_new:
            raise RecordError(
                f"Expected {MANIFEST} beside {folder / JOURNAL}, but it is missing. "
                "Restore it, or take another folder."
            )
        journal.belong_to(manifest.identity)  # the heading may be what a killed start has left
        write_manifest(folder, manifest)
    except BaseException:
        journal.close()
        raise
    flush_folder(folder.resolve().parent)
    return journal


class StrangeCheckpoint(RecordError):
    """A checkpoint that is whole and was written with another journal."""


class Run:
    """The one writer of a run; made by `open_run`."""

    def __init__(
        self, folder: Path, manifest: Manifest, journal: JournalWriter, lock: Lock
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._journal = journal
        self._lock = lock
        self._heartbeat = Heartbeat(folder)
        self._open = True
        if journal.damage is not None and not self.steps():
            journal.close()
            raise RecordError(damage_message(journal.path, journal.damage))

    @property
    def end(self) -> dict[str, Any] | None:
        """The record that ended the run, None while it goes on."""
        return self._journal.end

    @property
    def finished(self) -> bool:
        """Whether the run came to its end; a failed one did not."""
        return self.end is not None and self.end.get("state") == "finished"

    def append(self, record: Mapping[str, Any]) -> None:
        """One line of the journal; no times of day, so that a resumed run is the same."""
        self._goes_on()
        self._journal.append(record)

    def checkpoint(
        self, step: int, tensors: "Mapping[str, Tensor]", extra: Mapping[str, Any] | None = None
    ) -> None:
        """Everything so far is on the disk when this returns; the last two are kept."""
        self._goes_on()
        self._journal.flush()
        state, written = dict(tensors), (self._journal.length, self._journal.checksum)
        told = (*written, self.manifest.identity)
        checkpoint = Checkpoint(int(step), state, dict(extra or {}), *told)
        checkpoints.write_checkpoint(self.folder, checkpoint)
        self._prune()

    def steps(self) -> list[int]:
        """Steps that can be resumed, ascending; a damaged checkpoint is warned of.

        RecordError where none can and one is whole but does not belong to the journal: beginning
        anew would take back records that may be all that is left of the run.
        """
        files = checkpoints.list_checkpoints(self.folder)
        strangers: list[str] = []
        usable = [step for step in files if self._usable(step, strangers)]
        if strangers and not usable and self._journal.damage is None:
            raise RecordError(
                f"Expected a checkpoint that belongs to {self._journal.path}, got none: "
                f"{', '.join(strangers)} do not. Restore journal or checkpoints from a copy; or "
                f"delete {self.folder / checkpoints.FOLDER} to begin anew, without the records."
            )
        return usable

    def resume(self, step: int | None) -> Checkpoint | None:
        """Go back to a checkpoint: what came after it is taken back; None starts anew."""
        files = checkpoints.list_checkpoints(self.folder)
        found = None
        if step is not None and not (step == 0 and 0 not in files):
            found = self._read(step)
        self._reopen()
        gone = [step for step in reversed(files) if found is None or step > found.step]
        for later in gone:  # checkpoints first: a kill in between leaves a good run
            delete(files[later], RecordError)
        if gone:  # else a loss of power might bring back those that are ahead of the journal
            flush_folder(self.folder / checkpoints.FOLDER)
        self._prune()  # a kill may have come before
        self._journal.cut(found.journal_length if found else 0)
        return found

    def resume_latest(self) -> Checkpoint | None:
        """Go back to the last good checkpoint, or start anew."""
        steps = self.steps()
        return self.resume(steps[-1] if steps else None)

    def rewind(self, step: int) -> int:
        """Take back the end and all records from a step on, and say how many records those were.

        For a writer whose checkpoints are kept elsewhere: it goes on, or begins anew, at `step`.
        """
        kept, later = self._journal.before(step)
        if kept < self._journal.length:
            self._reopen()
        for place, path in checkpoints.list_checkpoints(self.folder).items():
            if place >= step:
                delete(path, RecordError)
        if kept < self._journal.length:
            self._journal.cut(kept)
        return later

    def beat(self, *, step: int, total: int | None = None, **extra: Any) -> None:
        """Show how far the run is; cheap enough to be called at every step."""
        self._heartbeat.beat("running", step=step, total=total, **extra)

    def finish(self, **summary: Any) -> None:
        """End the run; the summary is its last record."""
        self._end({"state": "finished", **summary})

    def fail(self, why: str, **summary: Any) -> None:
        """End the run that cannot go on; resuming it takes this record back."""
        self._end({"state": "failed", "why": why, **summary})

    def close(self, *, state: str = "stopped", why: str | None = None) -> None:
        """Let others write; a run that has not ended is marked as stopped."""
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(NclabError):  # a full disk: the journal is what counts
            if self.end is None:
                told = {"why": why} if why else {}
                self._heartbeat.beat(state, **told, journal_length=self._journal.length)
        self._journal.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failed = isinstance(error, Exception)
        self.close(state="failed" if failed else "stopped", why=str(error) if failed else None)

    def _goes_on(self) -> None:
        if not self._open:
            raise RecordError(f"Expected an open run, but {self.folder} is closed. Open it again.")
        if self.end is not None:
            raise RecordError(
                f"Expected a run that goes on, but {self.folder} has {self.end.get('state')}. "
                "Resume from a checkpoint first, or take another folder."
            )

    def _end(self, summary: dict[str, Any]) -> None:
        self._goes_on()
        self._journal.append({"kind": END, **summary})
        self._journal.flush()
        why = {"why": summary["why"]} if "why" in summary else {}
        self._heartbeat.beat(summary["state"], **why, journal_length=self._journal.length)

    def _reopen(self) -> None:
        """Take back what `state.json` says of the end, before the journal becomes shorter."""
        known = read_state(self.folder)
        if "journal_length" in known or known.get("state") == "finished":
            with contextlib.suppress(NclabError):  # a full disk: it only tells how far we are
                self._heartbeat.beat("running")

    def _prune(self) -> None:
        for path in list(checkpoints.list_checkpoints(self.folder).values())[:-KEPT]:
            delete(path, RecordError)

    def _read(self, step: int) -> Checkpoint:
        path, journal = checkpoints.path_of(self.folder, step), self._journal
        checkpoint = checkpoints.read_checkpoint(path)
        if checkpoint.identity != self.manifest.identity:
            raise StrangeCheckpoint(
                f"Expected a checkpoint of the run in {self.folder}, got one of another run: "
                f"{path.name}."
            )
        if journal.checksum_of(checkpoint.journal_length) != checkpoint.journal_checksum:
            if journal.damage is not None or journal.dropped:
                raise StrangeCheckpoint(
                    f"Expected the journal that the checkpoint of step {step} was written with, "
                    f"got a damaged one: {journal.path}."
                )
            ahead = checkpoint.journal_length > journal.length
            known = f"{checkpoint.journal_length} bytes of it, got {journal.length}"
            raise StrangeCheckpoint(
                f"Expected the journal that {path.name} was written with, "
                f"{known if ahead else 'got another one'}: {journal.path}."
            )
        return checkpoint

    def _usable(self, step: int, strangers: list[str]) -> bool:
        try:
            self._read(step)
        except RecordError as error:
            if isinstance(error, StrangeCheckpoint):
                strangers.append(checkpoints.path_of(self.folder, step).name)
            warnings.warn(
                f"{error} The checkpoint of step {step} is left out.", NclabWarning, stacklevel=4
            )
            return False
        return True
