"""End a forked process at its n-th change of the disk, or by a signal at some moment."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

CHANGES = ("open", "replace", "rename", "unlink", "mkdir", "rmdir", "link", "ftruncate")
EXPLODED = 9


def forked(work: Callable[[], object]) -> int:
    """Do work in a forked child; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - told to the parent by the exit code
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return child


def ends_at(change: int, work: Callable[[], object]) -> bool:
    """End the work before its n-th change of the disk; return whether it has so many changes."""

    def armed() -> None:
        left = change

        def counted(made: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os._exit(EXPLODED)
                return made(*given, **options)

            return call

        for name in CHANGES:
            setattr(os, name, counted(getattr(os, name)))
        work()

    code = os.waitstatus_to_exitcode(os.waitpid(forked(armed), 0)[1])
    assert code in (0, EXPLODED), f"change {change}: exit code {code}"
    return code == EXPLODED


def killed_after(seconds: float, work: Callable[[], object]) -> bool:
    """Kill the work after a time; return whether the kill came before its end."""
    child = forked(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
