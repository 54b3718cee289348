"""What a worker process does: one job after another, one thread, no life without its parent."""

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import parent_process
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
REPORT_SECONDS = 0.1
"""Progress is sent at most this often; the last step always."""

PR_SET_PDEATHSIG = 1

Word = tuple[str, Any]
"""What a worker says: `ready`, `progress`, `done` or `failed`, and its content."""


def work(pipe: Connection, threads: int) -> None:
    """Take jobs from the pipe until it closes; every one is answered or dies with us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it stops us
    _die_with_parent()
    pipe.send(("ready", None))
    while True:
        try:
            order = pipe.recv_bytes()
        except EOFError:
            return
        perform(order, threads, pipe.send)


def perform(
    order: bytes,
    threads: int,
    send: Callable[[Word], None],
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> None:
    """Do one job and send what happens: its progress, then `done` or `failed`."""
    try:
        function, arguments, options = pickle.loads(order)
        use_threads(threads)
        # Plain pickle: torch's own way of passing tensors needs the worker to stay alive.
        answer = dumps(function(reporter(send), *arguments, **options))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its result
        send(("failed", failure(error)))
    else:
        send(("done", answer))


def failure(error: BaseException) -> tuple[str, str]:
    """One line on an error, and the whole story."""
    first = str(error).strip().splitlines()
    kind = type(error).__name__
    line = f"{kind}: {first[0]}" if first else kind
    return line, "".join(traceback.format_exception(error))


def reporter(send: Callable[[Word], None]) -> Callable[[int, int | None], None]:
    """What a job calls with its step and how many there are."""
    last = -REPORT_SECONDS

    def report(step: int, total: int | None = None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_SECONDS or step == total:
            last = now
            send(("progress", (step, total)))

    return report


def use_threads(threads: int) -> None:
    """Threads of a torch that is imported already; a later one reads the environment."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


@contextmanager
def thread_environment(threads: int) -> Iterator[None]:
    """The environment that a worker starts with."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _die_with_parent() -> None:
    """Ask the system to kill us with the parent, and watch it ourselves where it cannot."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    parent: Any = parent_process()
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
