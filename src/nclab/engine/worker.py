"""A worker process: it runs one job after another and ends with its parent."""

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
"""Shortest time between two progress messages; the last step is always sent."""
PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl: the signal that this process gets when its parent dies."""

Message = tuple[str, Any]
"""Kind of a message, `ready`, `progress`, `done` or `failed`, and its content."""


def run_worker(pipe: Connection, threads: int) -> None:
    """Run jobs from the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops us
    if sys.platform == "linux":  # the kernel kills this process when its parent dies
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch_parent, daemon=True).start()
    pipe.send(("ready", None))
    while True:
        try:
            order = pipe.recv_bytes()
        except EOFError:
            return
        run_job(order, threads, pipe.send)


def run_job(
    order: bytes,
    threads: int,
    send: Callable[[Message], None],
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> None:
    """Run one pickled job; send its progress, then `done` or `failed`."""
    try:
        function, arguments, options = pickle.loads(order)
        use_threads(threads)
        # Torch's method of sending tensors needs the worker to stay alive, plain pickle does not.
        answer = dumps(function(_reporter(send), *arguments, **options))
    except Exception as error:  # noqa: BLE001 - any error of a job is its result
        send(("failed", describe_error(error)))
    else:
        send(("done", answer))


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return an error in one line, and its traceback."""
    first = str(error).strip().splitlines()
    kind = type(error).__name__
    line = f"{kind}: {first[0]}" if first else kind
    return line, "".join(traceback.format_exception(error))


def _reporter(send: Callable[[Message], None]) -> Callable[[int, int | None], None]:
    """Return the function with which a job reports its step and the number of steps."""
    last = -REPORT_SECONDS

    def report(step: int, total: int | None = None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_SECONDS or step == total:
            last = now
            send(("progress", (step, total)))

    return report


def use_threads(threads: int) -> None:
    """Set the threads of torch if it is imported; otherwise it will read the environment."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


@contextmanager
def thread_environment(threads: int) -> Iterator[None]:
    """Set the environment variables for the number of threads, and restore them."""
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


def _watch_parent() -> None:
    """Kill this process when its parent ends, also where Linux does not."""
    parent: Any = parent_process()
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
