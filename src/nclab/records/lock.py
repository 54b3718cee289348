"""One writer a folder: a lock that the system lets go when its process dies."""

import contextlib
import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Protocol

from nclab.errors import RecordError
from nclab.files import open_regular, translate_os_errors

FILE = "lock"
TRIES, PAUSE_SECONDS = 5, 0.05
"""A reader that looks whether the lock is held holds it for a moment; the writer tries again."""


class Lock:
    """Held from its making to `close`, by this process alone."""

    def __init__(self, folder: Path) -> None:
        with translate_os_errors("write", folder / FILE, RecordError):
            descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o666)
            self._descriptor: int | None = descriptor
            try:
                hold(descriptor, folder)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                self.close()
                raise
        leave_to_parent(self)

    def close(self) -> None:
        """Let go; doing so twice does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_held(folder: Path, *, root: Path | None = None) -> bool:
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
        with open_regular(folder / FILE, root=root) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or a file system without locks
        return False
    return False


def hold(descriptor: int, path: Path) -> None:
    """Take the lock of an open file, or say who has it."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    raise RecordError(
        f"Expected a run of our own, but {path} is in use by process {_owner(descriptor)}. "
        "Wait for it, or take another folder."
    )


def _owner(descriptor: int) -> str:
    """The process that wrote its number into a lock."""
    told = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return told if told.isdigit() else "unknown"


class Closing(Protocol):
    """Something that holds a lock until it is closed."""

    def close(self) -> None:
        """Let go; doing so twice does no harm."""


_HELD: "weakref.WeakSet[Closing]" = weakref.WeakSet()


def leave_to_parent(held: Closing) -> None:
    """A forked child must not keep the lock of a parent that is killed, nor write beside it."""
    _HELD.add(held)


def _close_all() -> None:
    for held in list(_HELD):
        held.close()


os.register_at_fork(after_in_child=_close_all)
