"""Engine of a Ray cluster of several machines, or of this machine alone."""

import logging
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self
from uuid import uuid4

from nclab import __version__
from nclab.engine.jobs import (
    THREAD_VARIABLES,
    Engine,
    Job,
    JobList,
    JobResult,
    Message,
    describe_error,
    run_job,
)
from nclab.engine.local import cores
from nclab.errors import MissingExtra, NclabError

# Ray reads these variables when it is imported. They switch off usage statistics, and messages
# about dead workers, which are in the results.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
except ImportError as error:
    raise MissingExtra("The Ray engine", package="ray") from error

CONNECT_SECONDS = 5.0
"""Timeout of an address; Ray itself would try for a quarter of an hour."""
ATTEMPTS, PAUSE_SECONDS = 5, 0.2
"""Number and interval of searches for a new file, which a network folder may show late."""


class Cluster(Engine):
    """Engine of a Ray cluster, which is joined or started at first use and left at the end.

    The address is `host:port` of a cluster that includes this machine, by default that of
    RAY_ADDRESS. `local`, or no address, starts a new cluster with the cores of this machine, which
    is stopped at the end. After `ray.init`, the cluster of that call is used.
    """

    here = False

    def __init__(self, address: str | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._joined = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._joined:
            ray.shutdown()
            self._joined = False

    def slots(self) -> int:
        """Return the number of cores of all machines."""
        self._join()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(int(resources.get("CPU", 0)) for resources in nodes)

    def run_all(self, work: JobList) -> None:
        """Run jobs as tasks of the cluster, as many at a time as it has cores."""
        self._join()
        with _marker(work.folder) as marker:
            environment = dict.fromkeys(THREAD_VARIABLES, "1")
            task = ray.remote(_work).options(
                num_cpus=1,
                num_returns="streaming",
                max_retries=0,
                runtime_env={"env_vars": environment},
            )
            _Tasks(work, task, (sys.argv, marker)).run()

    def _join(self) -> None:
        if ray.is_initialized():
            return
        address = self._address
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            options |= {"num_cpus": cores(), "include_dashboard": False}
        else:
            _connect(address)
        try:
            ray.init(address, **options)
        except Exception as error:  # Ray raises anything, bare exceptions too
            line, trace = describe_error(error)
            advice = "Use the address local, or `ray start --address=HOST:PORT` on this machine."
            if address == "local":
                advice = "Set RAY_TMPDIR to a short path on a disk with space, or work without Ray."
            elif "AuthToken" in trace:
                advice = "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the cluster's token."
            raise NclabError(
                f"Cannot use the Ray cluster at {address}. {line.rstrip('.')}. {advice}"
            ) from error
        self._joined = True


class _Tasks:
    """Tasks of a cluster that run jobs and stream messages."""

    def __init__(self, work: JobList, task: Any, arguments: tuple[Any, ...]) -> None:
        self._work, self._task, self._arguments = work, task, arguments
        self._running: dict[Any, int] = {}

    def run(self) -> None:
        count = self._work.workers or len(self._work.jobs)
        try:
            while self._work.unfinished:
                while self._work.waiting and len(self._running) < count:
                    self._start(self._work.waiting.popleft())
                if self._running:
                    [stream], _ = ray.wait(list(self._running), num_returns=1)
                    self._handle(stream, self._running[stream])
        finally:
            for stream in self._running:
                ray.cancel(stream, force=True)

    def _start(self, index: int) -> None:
        job = self._work.jobs[index]
        try:
            order = cloudpickle.dumps((job.function, job.arguments, job.options))
        except Exception as error:  # noqa: BLE001 - pickling may raise anything
            self._work.end(index, JobResult.raised(job, error))
        else:
            self._running[self._task.remote(order, *self._arguments)] = index

    def _handle(self, stream: Any, index: int) -> None:
        """Take the next message of a task: report its progress, or store its result or error."""
        job = self._work.jobs[index]
        try:
            kind, content = ray.get(next(stream))
            if kind == "progress":
                self._work.progress(index, *content)
                return
            result = JobResult.from_message(job, kind, content)
        except RayError as error:
            result = _dead(job, error)
        del self._running[stream]
        self._work.end(index, result)


def _work(order: bytes, command: list[str], marker: Path | None) -> Iterator[Message]:
    """Run one job in a worker of the cluster; yield its messages."""
    sys.argv = command  # manifests record the command
    messages: SimpleQueue[Message] = SimpleQueue()

    def run() -> None:
        try:
            _find_marker(marker)
            run_job(order, messages.put, cloudpickle.dumps)
        except BaseException as error:  # noqa: BLE001 - without a last message we would wait forever
            messages.put(("failed", describe_error(error)))

    Thread(target=run, daemon=True).start()
    kind = ""
    while kind not in ("done", "failed"):
        kind, content = messages.get()
        yield kind, content


def _dead(job: Job, error: RayError) -> JobResult:
    """Return the result of a job whose process or machine died, or that could not start."""
    if isinstance(error, RayTaskError):  # `_work` itself raised, not the job
        reason = str(error).strip().splitlines()[-1]
        missing = f"Expected nclab {__version__} on every machine of the cluster, got {reason}."
        return JobResult.raised(job, NclabError(missing))
    line = describe_error(error)[0]
    if not isinstance(error, OutOfMemoryError):
        line = f"The process of {job.name} died. {line}"
    return JobResult(job.name, error=line)


def _connect(address: str) -> None:
    """Raise unless a server accepts connections at the address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        raise NclabError(f"Expected host:port of a Ray cluster, or local, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NclabError(
            f"Expected a Ray cluster at {address}, but nothing answers there: "
            f"{getattr(error, 'strerror', None) or error}. Start a cluster with "
            "`ray start --head --port=PORT`, or omit the address."
        ) from error


@contextmanager
def _marker(folder: Path | None) -> Iterator[Path | None]:
    """Create the folder with a marker file, by which jobs on other machines recognise it."""
    if folder is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder.absolute() / f".shared-{uuid4().hex}"
    marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)


def _find_marker(marker: Path | None) -> None:
    """Raise if this machine still does not see the marker file after some attempts."""
    if marker is None:
        return
    for _ in range(ATTEMPTS):
        if marker.exists():
            return
        time.sleep(PAUSE_SECONDS)
    raise NclabError(
        f"Expected {marker.parent} to be the same folder on every machine of the cluster, but "
        f"{platform.node()} has a different folder there. Use a folder that all of them share."
    )
