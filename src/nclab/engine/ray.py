"""Independent jobs on a Ray cluster: the machines that are there, or this one alone."""

import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self

from nclab import __version__
from nclab.engine.folder import look_for, marked
from nclab.engine.jobs import (
    Job,
    OnDone,
    OnProgress,
    Outcome,
    Telling,
    check_counts,
    ended,
    raised,
)
from nclab.engine.local import cores
from nclab.engine.ray_address import knock, runs_here
from nclab.engine.worker import THREAD_VARIABLES, Word, failure, perform
from nclab.errors import MissingExtra, NclabError

# Ray reads these once. It must tell nobody of its use; and what it says of dead workers, even on
# standard output, is in the outcomes.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
except ImportError as error:
    raise MissingExtra("The Ray engine", package="ray") from error


def run_jobs(
    jobs: Sequence[Job],
    *,
    address: str | None = None,
    folder: Path | None = None,
    workers: int | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    on_done: OnDone | None = None,
) -> list[Outcome]:
    """As `nclab.engine.run_jobs`, on the cluster at an address; see `Cluster`."""
    told: dict[str, Any] = {"on_progress": on_progress, "on_done": on_done}
    with Cluster(address) as cluster:
        return cluster.run_jobs(jobs, folder=folder, workers=workers, threads=threads, **told)


class Cluster:
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

    def run_jobs(
        self,
        jobs: Sequence[Job],
        *,
        folder: Path | None = None,
        workers: int | None = None,
        threads: int = 1,
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
    ) -> list[Outcome]:
        """Run every job and return their outcomes in order; one that fails or dies stops no other.

        At most `workers` run at the same time, by default as many as there are cores for. No job
        is tried twice. Ctrl-C stops them all.
        """
        check_counts(workers=workers, threads=threads, least=1)
        if not jobs:
            return []
        self._join()
        if not _slots(threads):
            raise NclabError(f"Expected a machine with {threads} cores, but no node has so many.")
        with marked(folder) as mark:
            environment = dict.fromkeys(THREAD_VARIABLES, str(threads))
            task = ray.remote(_work).options(
                num_cpus=threads,
                num_returns="streaming",
                max_retries=0,
                runtime_env={"env_vars": environment},
            )
            crew = _Crew(jobs, Telling(jobs, on_progress, on_done), task, (threads, sys.argv, mark))
            return crew.run(workers or len(jobs))

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


class _Crew:
    """The caller's side: hands out jobs and hears what they say."""

    def __init__(self, jobs: Sequence[Job], tell: Telling, task: Any, way: tuple[Any, ...]) -> None:
        self._jobs, self._tell, self._task, self._way = jobs, tell, task, way
        self._waiting = deque(range(len(jobs)))
        self._running: dict[Any, int] = {}
        self._outcomes: dict[int, Outcome] = {}

    def run(self, count: int) -> list[Outcome]:
        try:
            while len(self._outcomes) < len(self._jobs):
                while self._waiting and len(self._running) < count:
                    self._hand_out(self._waiting.popleft())
                if self._running:
                    [stream], _ = ray.wait(list(self._running), num_returns=1)
                    self._hear(stream, self._running[stream])
        finally:
            for stream in self._running:
                ray.cancel(stream, force=True)
        return [self._outcomes[index] for index in range(len(self._jobs))]

    def _hand_out(self, index: int) -> None:
        job = self._jobs[index]
        try:
            order = cloudpickle.dumps((job.function, job.arguments, job.options))
        except Exception as error:  # noqa: BLE001 - what cannot be pickled raises anything
            self._settle(index, raised(job, error))
        else:
            self._running[self._task.remote(order, *self._way)] = index

    def _hear(self, stream: Any, index: int) -> None:
        job = self._jobs[index]
        try:
            word, content = ray.get(next(stream))
            if word == "progress":
                self._tell.progress(index, *content)
                return
            outcome = ended(job, word, content)
        except RayError as error:
            outcome = _dead(job, error)
        del self._running[stream]
        self._settle(index, outcome)

    def _settle(self, index: int, outcome: Outcome) -> None:
        self._outcomes[index] = self._tell.done(index, outcome)


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


def _dead(job: Job, error: RayError) -> Outcome:
    """The outcome of a job whose process or machine is gone, or never knew what to do."""
    if isinstance(error, RayTaskError):  # what a job raises is not raised by `_work`
        why = str(error).strip().splitlines()[-1]
        missing = f"Expected nclab {__version__} on every machine of the cluster, got {why}."
        return raised(job, NclabError(missing))
    line = failure(error)[0]
    if not isinstance(error, OutOfMemoryError):
        line = f"The process of {job.name} died. {line}"
    return Outcome(job.name, error=line)


def _slots(threads: int) -> int:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(resources.get("CPU", 0) // threads) for resources in nodes)
