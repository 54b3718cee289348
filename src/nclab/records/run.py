"""Writing a run: create it, append records, save checkpoints, resume and end it."""

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nclab.errors import NclabError, NclabWarning, RecordError
from nclab.files import delete, flush_folder, remove_leftovers, translate_os_errors, write_whole
from nclab.records.encoding import require_json, to_json
from nclab.records.journal import JOURNAL, JournalWriter, Lock, belongs
from nclab.records.manifest import (
    CHECKPOINTS,
    MANIFEST,
    Checkpoint,
    Manifest,
    checkpoint_path,
    first_difference,
    identity_of,
    list_checkpoints,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
    write_manifest,
)
from nclab.records.read import STATE, find_runs, glance
from nclab.records.schema import END

if TYPE_CHECKING:
    from torch import Tensor

KEPT_CHECKPOINTS = 2
"""Checkpoints kept on the disk: the last one, and the one before in case the last is damaged."""
PERIOD_SECONDS = 1.0
"""Shortest time between two writes of `state.json` while the state stays the same."""
_MAX_FOLDERS = 100_000


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
    """Create a run, or continue one of the same kind, config and seed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "first"
    >>> with open_run(folder, kind="demo", config={"rate": 0.1}, seed=0) as run:
    ...     run.append({"kind": "measurement", "step": 1, "loss": 0.5})
    ...     run.finish(loss=0.5)
    >>> open_run(folder, kind="demo", config={"rate": 0.2}, seed=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    nclab.errors.RecordError: ...config.rate: 0.1 before, 0.2 now...
    """
    path = Path(folder)
    with translate_os_errors("write", path, RecordError):
        (path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    wanted = Manifest(
        name=name or path.resolve().name,
        kind=kind,
        config=require_json(dict(config), name="the config of a run"),
        seed=seed,
        device=device,
        backend=backend,
    )
    wanted = replace(wanted, identity=identity_of(kind, wanted.config, seed))
    lock = Lock(path)
    try:
        remove_leftovers(path, (MANIFEST, STATE))
        remove_leftovers(path / CHECKPOINTS, ("step-*.safetensors",))
        if (path / MANIFEST).exists():
            manifest = read_manifest(path)
            _require_same_run(manifest, vars(wanted), path)
            _warn_of_other_environment(manifest, wanted, path)
            journal = JournalWriter(path)
        else:
            manifest = wanted
            journal = _create(path, manifest)
        return Run(path, manifest, journal, lock)
    except BaseException:
        lock.close()
        raise


def _create(folder: Path, manifest: Manifest) -> JournalWriter:
    """Write the journal, then the manifest: a folder with a manifest always has a journal."""
    journal = JournalWriter(folder, manifest.identity)
    try:
        if journal.damage is not None or not journal.is_new:
            raise RecordError(
                f"Expected {MANIFEST} next to {folder / JOURNAL}, but it is missing. Restore it "
                "from a copy, or use another folder."
            )
        write_manifest(folder, manifest)
    except BaseException:
        journal.close()
        raise
    flush_folder(folder.resolve().parent)
    return journal


def require_resumable(
    folder: str | os.PathLike[str], *, kind: str, config: Mapping[str, Any], seed: int | None = None
) -> None:
    """Raise if a folder holds another run, or a run that has finished.

    Call this before a training that opens its run only at the first measurement.
    """
    path = Path(folder)
    if not (path / MANIFEST).exists():
        return
    plain = require_json(dict(config), name="the config of a run")
    _require_same_run(read_manifest(path), {"kind": kind, "seed": seed, "config": plain}, path)
    if glance(path).state == "finished":
        raise RecordError(
            f"Expected a new folder or a run that has not finished, but {path} has finished. Use "
            "another folder, or delete this one."
        )


def _require_same_run(old: Manifest, new: Mapping[str, Any], folder: Path) -> None:
    for name in ("kind", "seed", "config"):
        difference = first_difference({name: getattr(old, name)}, {name: new[name]})
        if difference:
            raise RecordError(
                f"Expected the run that {folder} holds, got another one: {difference}. Use "
                "another folder."
            )


def _warn_of_other_environment(old: Manifest, new: Manifest, folder: Path) -> None:
    """Warn if a run was started with another version, device or CPU: rounding may differ."""
    # Older versions of nclab recorded neither the backend nor the CPU nor the version of numba.
    unknown = {name for name in ("backend", "cpu") if getattr(old, name) is None}
    before = {name: fact for name, fact in _environment(old).items() if name not in unknown}
    now = _environment(new)
    change = first_difference(before, {name: now.get(name) for name in before})
    if change:
        warnings.warn(
            f"{folder} was started with another version, device or CPU ({change}). Its numbers may "
            "differ from those of a run without interruption.",
            NclabWarning,
            stacklevel=3,
        )


def _environment(manifest: Manifest) -> dict[str, Any]:
    """Return the versions and the hardware of a run, which decide how numbers are rounded."""
    names = ("device", "backend", "cpu", "commit")
    return {**manifest.versions, **{name: getattr(manifest, name) for name in names}}


class Run:
    """The only writer of a run; `open_run` creates it."""

    def __init__(
        self, folder: Path, manifest: Manifest, journal: JournalWriter, lock: Lock
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._journal = journal
        self._lock = lock
        self._facts: dict[str, Any] = {}
        """Content of `state.json`, which tells readers how far the run is."""
        self._last_write = -PERIOD_SECONDS
        self._is_open = True
        if journal.damage is not None and not self.steps():
            journal.close()
            raise RecordError(journal.damage_message())

    @property
    def end(self) -> dict[str, Any] | None:
        """Record that ended the run; None while it is not finished."""
        return self._journal.end

    @property
    def finished(self) -> bool:
        """Whether the run reached its end; a failed run did not."""
        return self.end is not None and self.end.get("state") == "finished"

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; it should hold no time of day, so that a repeated run is identical."""
        self._require_active()
        self._journal.append(record)

    def checkpoint(
        self, step: int, tensors: "Mapping[str, Tensor]", extra: Mapping[str, Any] | None = None
    ) -> None:
        """Save a checkpoint; when this returns, it and all records are on the disk."""
        self._require_active()
        self._journal.flush()
        checkpoint = Checkpoint(
            int(step),
            dict(tensors),
            dict(extra or {}),
            self._journal.length,
            self._journal.checksum,
            self.manifest.identity,
        )
        write_checkpoint(self.folder, checkpoint)
        self._delete_old_checkpoints()

    def steps(self) -> list[int]:
        """Return the steps from which the run can resume, ascending; warn of damaged checkpoints.

        Raise if no checkpoint can be used and one belongs to another journal: starting again would
        delete records that may be all that remains of the run.
        """
        usable, foreign = [], []
        for step, path in list_checkpoints(self.folder).items():
            try:
                if self._fits(read_checkpoint(path)):
                    usable.append(step)
                    continue
                foreign.append(path.name)
                problem = f"{path.name} was written by another run or with another journal."
            except RecordError as error:
                problem = str(error)
            message = f"{problem} The checkpoint of step {step} is skipped."
            warnings.warn(message, NclabWarning, stacklevel=3)
        if foreign and not usable and self._journal.damage is None:
            raise RecordError(
                f"Expected checkpoints of {self._journal.path}, got those of another journal: "
                f"{', '.join(foreign)}. Restore the journal or the checkpoints from a copy, or "
                f"delete {self.folder / CHECKPOINTS}: training then starts again, and the "
                "recorded values are lost."
            )
        return usable

    def resume(self, step: int | None) -> Checkpoint | None:
        """Return the checkpoint of a step and remove all later records; with None, remove all."""
        files = list_checkpoints(self.folder)
        checkpoint = None
        if step is not None and not (step == 0 and 0 not in files):
            checkpoint = read_checkpoint(checkpoint_path(self.folder, step))
            if not self._fits(checkpoint):
                raise RecordError(
                    f"Expected a checkpoint that belongs to {self._journal.path}, but the "
                    f"checkpoint of step {step} does not. Resume from another step."
                )
        self._forget_end()
        later = [s for s in reversed(files) if checkpoint is None or s > checkpoint.step]
        for later_step in later:  # before the records, so that a kill in between is harmless
            delete(files[later_step], RecordError)
        if later:  # a power failure must not bring back checkpoints that are ahead of the journal
            flush_folder(self.folder / CHECKPOINTS)
        self._delete_old_checkpoints()
        self._journal.cut(checkpoint.journal_length if checkpoint else 0)
        return checkpoint

    def resume_latest(self) -> Checkpoint | None:
        """Resume from the last usable checkpoint, or start again if there is none."""
        steps = self.steps()
        return self.resume(steps[-1] if steps else None)

    def rewind(self, step: int) -> int:
        """Remove the records of `step` and later steps; return how many were removed.

        This is for trainings that save their own checkpoints and continue at `step`. The record
        that ended the run is also removed.
        """
        length, later = self._journal.before_step(step)
        if length < self._journal.length:
            self._forget_end()
        for checkpoint_step, path in list_checkpoints(self.folder).items():
            if checkpoint_step >= step:
                delete(path, RecordError)
        if length < self._journal.length:
            self._journal.cut(length)
        return later

    def beat(self, *, step: int, total: int | None = None, **extra: Any) -> None:
        """Tell readers how far the run is; cheap enough to call at every step."""
        self._write_state("running", step=step, total=total, **extra)

    def finish(self, **summary: Any) -> None:
        """End the run; the summary is its last record."""
        self._write_end({"state": "finished", **summary})

    def fail(self, why: str, **summary: Any) -> None:
        """End a run that cannot continue; resuming removes the record of the failure."""
        self._write_end({"state": "failed", "why": why, **summary})

    def close(self, *, state: str = "stopped", why: str | None = None) -> None:
        """Release the lock; mark a run that has no last record as stopped."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(NclabError):  # for example a full disk; the journal is complete
            if self.end is None:
                facts = {"why": why} if why else {}
                self._write_state(state, **facts, journal_length=self._journal.length)
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

    def _require_active(self) -> None:
        if not self._is_open:
            raise RecordError(f"Expected an open run, but {self.folder} is closed. Open it again.")
        if self.end is not None:
            raise RecordError(
                f"Expected a run that has not ended, but the state of {self.folder} is "
                f"{self.end.get('state')}. Resume from a checkpoint first, or use another folder."
            )

    def _write_end(self, summary: dict[str, Any]) -> None:
        self._require_active()
        self._journal.append({"kind": END, **summary})
        self._journal.flush()
        why = {"why": summary["why"]} if "why" in summary else {}
        self._write_state(summary["state"], **why, journal_length=self._journal.length)

    def _forget_end(self) -> None:
        """Mark the run as running again, before lines are cut off its journal."""
        with contextlib.suppress(NclabError):  # for example a full disk; the state is not a result
            self._write_state("running")

    def _write_state(self, state: str, **facts: Any) -> None:
        """Update `state.json` if the state changed or a second has passed."""
        changed = self._facts.get("state") != state
        self._facts.pop("journal_length", None)  # valid only for the call that passes it
        self._facts |= {**facts, "state": state}
        now = time.monotonic()
        if changed or now - self._last_write >= PERIOD_SECONDS:
            self._last_write = now
            content = {**self._facts, "pid": os.getpid(), "updated": round(time.time(), 3)}
            write_whole(self.folder / STATE, to_json(content).encode(), flush=False)

    def _delete_old_checkpoints(self) -> None:
        for path in list(list_checkpoints(self.folder).values())[:-KEPT_CHECKPOINTS]:
            delete(path, RecordError)

    def _fits(self, checkpoint: Checkpoint) -> bool:
        return belongs(checkpoint, self._journal.path, self.manifest.identity)


def claim_folder(folder: str | os.PathLike[str]) -> Path:
    """Create and return a folder without a run: `mine`, else `mine-2`, `mine-3`, ...

    In a folder that holds other runs the names are `run-1`, `run-2`, ... Two processes never get
    the same folder.

    >>> import tempfile
    >>> first = claim_folder(Path(tempfile.mkdtemp()) / "mine")
    >>> open_run(first, kind="demo", config={}).close()
    >>> first.name, claim_folder(first).name
    ('mine', 'mine-2')
    >>> claim_folder(first.parent).name
    'run-1'
    """
    path = Path(folder)
    with translate_os_errors("write", path, RecordError):
        for candidate in _candidates(path):
            try:
                candidate.mkdir(parents=True)
            except FileExistsError:
                if not candidate.is_dir():
                    raise
                if candidate is path and not holds_run(path) and not find_runs(path):
                    return path
            else:
                return candidate
    raise RecordError(f"Expected fewer than {_MAX_FOLDERS} folders {path}-*. Use another folder.")


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    is_collection = not holds_run(path) and bool(find_runs(path))
    base = path / "run" if is_collection else path
    for number in range(1 if is_collection else 2, _MAX_FOLDERS):
        yield base.with_name(f"{base.name}-{number}")


def holds_run(folder: Path) -> bool:
    """Whether a folder has a manifest or a journal of a run."""
    return (folder / MANIFEST).exists() or (folder / JOURNAL).exists()


def refuse_folder_of_runs(folder: Path) -> None:
    """Raise if a folder has runs in its subfolders.

    If the folder became a run itself, `find_runs` would not search its subfolders.
    """
    if not holds_run(folder) and (runs := find_runs(folder)):
        raise RecordError(
            f"Expected the folder of one run, got {folder} with {len(runs)} runs in it. Name one "
            f"of them, such as {runs[0]}."
        )
