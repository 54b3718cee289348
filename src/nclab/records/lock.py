"""One writer a folder: a lock that the system lets go when its process dies."""

import contextlib
import fcntl
import os
import time
import weakref
from pathlib import Path

from nclab.errors import RecordError
from nclab.files import explained

FILE = "lock"
TRIES, PAUSE_SECONDS = 5, 0.05
"""A reader that looks whether the lock is held holds it for a moment; the writer tries again."""


class Lock:
    """Held from its making to `close`, by this process alone."""

    def __init__(self, folder: Path) -> None:
        with explained("write", folder / FILE, RecordError):
            descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o666)
            self._descriptor: int | None = descriptor
            try:
                _take(descriptor, folder)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                self.close()
                raise
        _HELD.add(self)

    def close(self) -> None:
        """Let go; doing so twice does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_held(folder: Path) -> bool:
    """Whether a living process writes to this run.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lock = Lock(folder)
    >>> held = is_held(folder)
    >>> lock.close()
    >>> held, is_held(folder)
    (True, False)
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    else:
        return False
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
    raise RecordError(
        f"Expected a run of our own, but {folder} is in use by process {owner}. "
        "Wait for it, or take another folder."
    )


_HELD: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    """A forked child must not keep the lock of a parent that is killed."""
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_leave_to_parent)
