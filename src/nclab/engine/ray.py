"""Independent jobs on a Ray cluster: the machines that are there, or this one alone."""

import logging
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self

from nclab import __version__
from nclab.engine.folder import look_for, marked
from nclab.engine.jobs import Engine, Job, JobList, JobResult, ended, raised
from nclab.engine.local import cores
from nclab.engine.ray_address import knock, runs_here
from nclab.engine.worker import THREAD_VARIABLES, Word, failure, perform
from nclab.errors import MissingExtra, NclabError

# Ray reads these once. It must tell nobody of its use; and what it says of dead workers, even on
# standard output, is in the results.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
except ImportError as error:
    raise MissingExtra("The Ray engine", package="ray") from error


class Cluster(Engine):
    """A Ray cluster as an engine, joined or started when first needed and left at the end.

    The address is `host:port` of a cluster that this machine belongs to, or `local` for one of
    its own. Without it the cluster is that of RAY_ADDRESS, else one that `ray start` has started
    on this machine, else a new one with the cores of this machine. Only what was started here is
    stopped. A program that has called `ray.init` uses the cluster of that.
    """

    here = False

    def __init__(self, address: str | None = None) -> None:
        asked = address or os.environ.get("RAY_ADDRESS") or "auto"
        self._address = None if asked == "auto" else asked
        self._joined = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._joined:
            ray.shutdown()
            self._joined = False

    def slots(self) -> int:
        """One job a core of any machine."""
        self._join()
        return _slots(threads=1)

    def run_all(self, work: JobList) -> None:
        """As tasks of the cluster, as many at a time as there are cores for."""
        self._join()
        if not _slots(work.threads):
            raise NclabError(
                f"Expected a machine with {work.threads} cores, but no node has so many."
            )
        with marked(work.folder) as mark:
            environment = dict.fromkeys(THREAD_VARIABLES, str(work.threads))
            task = ray.remote(_work).options(
                num_cpus=work.threads,
                num_returns="streaming",
                max_retries=0,
                runtime_env={"env_vars": environment},
            )
            _Tasks(work, task, (work.threads, sys.argv, mark)).run()

    def _join(self) -> None:
        if ray.is_initialized():
            return
        address = self._address
        if address is None and not runs_here():
            address = "local"
        elif address not in (None, "local"):
            knock(address)
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            how |= {"num_cpus": cores(), "include_dashboard": False}
        try:
            ray.init(address, **how)
        except Exception as error:  # Ray raises anything, bare exceptions too
            line, story = failure(error)
            way = "Take the address local, or `ray start --address=HOST:PORT` on this machine."
            if address == "local":
                way = "Set RAY_TMPDIR to a short path on a disk with room, or do without Ray."
            elif "AuthToken" in story:
                way = "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the cluster's token."
            where = f"at {address}" if address else "on this machine"
            raise NclabError(
                f"Cannot use the Ray cluster {where}. {line.rstrip('.')}. {way}"
            ) from error
        self._joined = True


class _Tasks:
    """The caller's side: hands out jobs and hears what they say."""

    def __init__(self, work: JobList, task: Any, way: tuple[Any, ...]) -> None:
        self._work, self._task, self._way = work, task, way
        self._waiting = deque(range(len(work.jobs)))
        self._running: dict[Any, int] = {}

    def run(self) -> None:
        count = self._work.workers or len(self._work.jobs)
        try:
            while self._work.unfinished:
                while self._waiting and len(self._running) < count:
                    self._hand_out(self._waiting.popleft())
                if self._running:
                    [stream], _ = ray.wait(list(self._running), num_returns=1)
                    self._hear(stream, self._running[stream])
        finally:
            for stream in self._running:
                ray.cancel(stream, force=True)

    def _hand_out(self, index: int) -> None:
        job = self._work.jobs[index]
        try:
            order = cloudpickle.dumps((job.function, job.arguments, job.options))
        except Exception as error:  # noqa: BLE001 - what cannot be pickled raises anything
            self._work.end(index, raised(job, error))
        else:
            self._running[self._task.remote(order, *self._way)] = index

    def _hear(self, stream: Any, index: int) -> None:
        job = self._work.jobs[index]
        try:
            word, content = ray.get(next(stream))
            if word == "progress":
                self._work.progress(index, *content)
                return
            result = ended(job, word, content)
        except RayError as error:
            result = _dead(job, error)
        del self._running[stream]
        self._work.end(index, result)


def _work(order: bytes, threads: int, command: list[str], mark: Path | None) -> Iterator[Word]:
    """One job in a worker of the cluster: a stream of what it says, the last word its end."""
    sys.argv = command  # what manifests record
    said: SimpleQueue[Word] = SimpleQueue()

    def do() -> None:
        try:
            look_for(mark)
            perform(order, threads, said.put, cloudpickle.dumps)
        except BaseException as error:  # noqa: BLE001 - a job that leaves must not leave us waiting
            said.put(("failed", failure(error)))

    Thread(target=do, daemon=True).start()
    word = ""
    while word not in ("done", "failed"):
        word, content = said.get()
        yield word, content


def _dead(job: Job, error: RayError) -> JobResult:
    """The result of a job whose process or machine is gone, or never knew what to do."""
    if isinstance(error, RayTaskError):  # what a job raises is not raised by `_work`
        why = str(error).strip().splitlines()[-1]
        missing = f"Expected nclab {__version__} on every machine of the cluster, got {why}."
        return raised(job, NclabError(missing))
    line = failure(error)[0]
    if not isinstance(error, OutOfMemoryError):
        line = f"The process of {job.name} died. {line}"
    return JobResult(job.name, error=line)


def _slots(threads: int) -> int:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(resources.get("CPU", 0) // threads) for resources in nodes)
