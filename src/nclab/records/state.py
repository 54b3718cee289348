"""The state of a run: who writes to it, how far it is, and whether its results are usable."""

import contextlib
import fcntl
import json
import math
import os
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from nclab.errors import RecordError
from nclab.files import open_regular, read_regular, translate_os_errors, write_whole
from nclab.records.encoding import to_json
from nclab.records.schema import ALARM, State, last_layer

LOCK = "lock"
STATE = "state.json"
PERIOD_SECONDS = 1.0
"""Shortest time between two writes of `state.json` while the state stays the same."""
_MAX_STATE_BYTES = 1 << 20
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.05
"""A reader that tests the lock holds it for a moment; a writer therefore tries several times."""

Health = Literal["", "not finite", "not measured", "dead", "not converged"]
"""What is wrong with the results of a run; empty if nothing is."""
CONVERGED_ACCURACY = 0.99
"""A run has converged if its training accuracy is at least this."""
SAME_DIRECTION = 1e-6
"""Two classes count as one direction if the cosine between their means exceeds 1 minus this."""


class Lock:
    """Exclusive lock on a run, held by this process until `close`."""

    def __init__(self, folder: Path) -> None:
        with translate_os_errors("write", folder / LOCK, RecordError):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            self._descriptor: int | None = descriptor
            try:
                acquire_lock(descriptor, folder)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                self.close()
                raise
        close_in_children(self)

    def close(self) -> None:
        """Release the lock; a second call has no effect."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(folder: Path, *, root: Path | None = None) -> bool:
    """Whether a living process writes to this run.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lock = Lock(folder)
    >>> before = is_locked(folder)
    >>> lock.close()
    >>> before, is_locked(folder)
    (True, False)
    """
    try:
        with open_regular(folder / LOCK, root=root) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock file, or a file system without locks
        return False
    return False


def acquire_lock(descriptor: int, path: Path) -> None:
    """Lock an open file, or raise an error that names the process that holds the lock."""
    for attempt in range(_LOCK_ATTEMPTS):
        if attempt:
            time.sleep(_LOCK_PAUSE_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    raise RecordError(
        f"Expected a run that no other process writes to, but {path} is in use by process "
        f"{owner if owner.isdigit() else 'unknown'}. Wait for it, or use another folder."
    )


class Closable(Protocol):
    """An object that holds a lock until it is closed."""

    def close(self) -> None:
        """Release the lock."""


_open_locks: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_in_children(lock: Closable) -> None:
    """Close the lock in forked children, which must not keep it after the parent was killed."""
    _open_locks.add(lock)


def _close_all() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_all)


class Heartbeat:
    """Writer of `state.json`, which tells readers how far a run is; not part of the results."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE
        self._last_write = -PERIOD_SECONDS
        self._facts: dict[str, Any] = {}

    def beat(self, state: str, **facts: Any) -> None:
        """Update the facts; write them if the state changed or a second has passed."""
        changed = self._facts.get("state") != state
        self._facts.pop("journal_length", None)  # true only at the moment of its own beat
        self._facts |= {**facts, "state": state}
        now = time.monotonic()
        if changed or now - self._last_write >= PERIOD_SECONDS:
            self._last_write = now
            content = {**self._facts, "pid": os.getpid(), "updated": round(time.time(), 3)}
            write_whole(self._path, to_json(content).encode(), flush=False)


def read_state(folder: Path, *, root: Path | None = None) -> tuple[dict[str, Any], str | None]:
    """Return the content of `state.json` and what is wrong with the file.

    A missing file is not an error: the run was killed before its first heartbeat.

    >>> read_state(Path("no-such-folder"))
    ({}, None)
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


def health_of(
    measurement: Mapping[str, Any] | None,
    *,
    state: State = "finished",
    alarms: Iterable[Mapping[str, Any]] = (),
) -> Health:
    """Return what is wrong with a run, judged by the last measurement of its training data.

    >>> layer = {"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3}
    >>> health_of({"layers": [layer]}), health_of({"layers": [{**layer, "accuracy": 0.7}]})
    ('', 'not converged')
    >>> health_of({"layers": [{**layer, "mean_inter": 1.0}]})
    'dead'
    >>> health_of({"layers": []}, alarms=[{"kind": "alarm", "name": "not finite"}])
    'not finite'
    """
    if measurement is None:
        return ""
    layer = last_layer(measurement)
    if not layer:
        names = [str(alarm.get("name")) for alarm in alarms if alarm.get("kind") == ALARM]
        reasons = f"{measurement.get('why') or ''} {' '.join(names)}"
        return "not finite" if "finite" in reasons or "nan" in reasons.split() else "not measured"
    has_classifier = layer.get("accuracy") is not None
    if has_classifier and not _is_finite(layer.get("loss")):
        return "not finite"
    mean_inter = layer.get("mean_inter")
    if mean_inter is not None and _is_finite(mean_inter) and mean_inter >= 1 - SAME_DIRECTION:
        return "dead"
    if layer.get("zero_features") and layer["zero_features"] == layer.get("samples"):
        return "dead"
    is_final = has_classifier and state != "running"
    if is_final and not has_converged(layer, threshold=CONVERGED_ACCURACY):
        return "not converged"
    return ""


def has_converged(row: Mapping[str, Any], *, threshold: float) -> bool:
    """Whether a network is accurate, finite, and does not map everything to one direction.

    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3}, threshold=0.99)
    True
    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": 1.0}, threshold=0.99)
    False
    """
    values = [row.get(name) for name in ("accuracy", "loss", "max_inter")]
    if not all(_is_finite(value) for value in values):
        return False
    return bool(row["accuracy"] >= threshold and row["max_inter"] < 1 - SAME_DIRECTION)


def _is_finite(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))
