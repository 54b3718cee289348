"""Independent jobs on the cores of this machine, one process each; none can harm another."""

import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from nclab.engine.worker import failure, thread_environment, use_threads, work
from nclab.errors import NclabError

PATIENCE_SECONDS = 2.0
"""How long a worker that was asked to stop may take."""
TRIES = 3
"""So many workers may die while they are handed one job."""

Report = Callable[..., None]
"""What a job gets as its first argument, to be called as `report(step, total)`."""


@dataclass(frozen=True)
class Job:
    """A call `function(report, *arguments, **options)`; the function is a top-level one."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    name: str
    value: Any = None
    error: str | None = None
    """One line; None for a job that returned."""
    trace: str | None = None
    """The traceback, if the job raised; None if its process died."""

    @property
    def ok(self) -> bool:
        """Whether the job returned."""
        return self.error is None


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    index: int
    name: str
    step: int
    total: int | None


OnProgress = Callable[[Progress], None]


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    on_done: Callable[[int, Outcome], None] | None = None,
) -> list[Outcome]:
    """Run every job and return their outcomes in order; a job that fails or dies stops no other.

    By default there is one worker a core with one thread each; `workers=0` runs the jobs in this
    process, one after the other. As always with processes, a script that calls this does so
    under `if __name__ == "__main__":`.

    >>> run_jobs([Job("four", _example, (2,)), Job("no", _example, ("x",))], workers=0)[0].value
    4
    """
    if workers is not None and workers < 0:
        raise NclabError(f"Expected 0 or more workers, got {workers}.")
    if threads < 1:
        raise NclabError(f"Expected 1 or more threads, got {threads}.")
    tell = _Telling(jobs, on_progress, on_done)
    if workers == 0:
        return _run_here(jobs, threads, tell)
    count = min(workers or cores(), len(jobs))
    return _Crew(jobs, threads, tell).run(count)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _example(report: Report, value: int) -> int:
    report(1, 1)
    return value * value


@dataclass(frozen=True)
class _Telling:
    jobs: Sequence[Job]
    on_progress: OnProgress | None
    on_done: Callable[[int, Outcome], None] | None

    def progress(self, index: int, step: int, total: int | None) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(index, self.jobs[index].name, step, total))

    def done(self, index: int, outcome: Outcome) -> Outcome:
        if self.on_done is not None:
            self.on_done(index, outcome)
        return outcome


def _run_here(jobs: Sequence[Job], threads: int, tell: _Telling) -> list[Outcome]:
    import torch

    before = torch.get_num_threads()
    use_threads(threads)
    try:
        return [tell.done(index, _call(job, index, tell)) for index, job in enumerate(jobs)]
    finally:
        use_threads(before)


def _call(job: Job, index: int, tell: _Telling) -> Outcome:
    def report(step: int, total: int | None = None) -> None:
        tell.progress(index, step, total)

    try:
        return Outcome(job.name, job.function(report, *job.arguments, **job.options))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its outcome
        return _failed(job, error)


def _returned(job: Job, answer: bytes) -> Outcome:
    try:
        return Outcome(job.name, pickle.loads(answer))
    except Exception as error:  # noqa: BLE001 - what cannot be unpickled raises anything
        return _failed(job, error)


def _failed(job: Job, error: Exception) -> Outcome:
    line, trace = failure(error)
    return Outcome(job.name, error=line, trace=trace)


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    index: int | None = None


class _Crew:
    """The parent's side: hands out jobs, hears answers, replaces the dead."""

    def __init__(self, jobs: Sequence[Job], threads: int, tell: _Telling) -> None:
        self._jobs, self._threads, self._tell = jobs, threads, tell
        self._waiting = deque(range(len(jobs)))
        self._outcomes: dict[int, Outcome] = {}
        self._workers: list[_Worker] = []
        self._stillborn = 0
        self._lost: Counter[int] = Counter()

    def run(self, count: int) -> list[Outcome]:
        try:
            while len(self._outcomes) < len(self._jobs):
                while len(self._workers) < min(count, self._unfinished()):
                    self._workers.append(_start(self._threads))
                self._listen()
        finally:
            _stop(self._workers)
        return [self._outcomes[index] for index in range(len(self._jobs))]

    def _unfinished(self) -> int:
        return len(self._jobs) - len(self._outcomes)

    def _listen(self) -> None:
        """Wait until some worker says something or dies."""
        by_end: dict[Any, _Worker] = {}
        for worker in self._workers:
            by_end[worker.pipe] = by_end[worker.process.sentinel] = worker
        spoke = {id(by_end[end]): by_end[end] for end in connection.wait(list(by_end))}
        for worker in spoke.values():
            try:
                while worker.pipe.poll():
                    self._hear(worker, *worker.pipe.recv())
                gone = not worker.process.is_alive() and not worker.pipe.poll()
            except (EOFError, OSError):
                gone = True
            if gone:
                self._bury(worker)

    def _hear(self, worker: _Worker, word: str, content: Any) -> None:
        index = worker.index
        if word == "ready":
            worker.ready = True
        elif index is None:
            raise AssertionError(f"{word} without a job")
        elif word == "progress":
            self._tell.progress(index, *content)
            return
        elif word == "done":
            self._settle(index, _returned(self._jobs[index], content))
        else:
            line, trace = content
            self._settle(index, Outcome(self._jobs[index].name, error=line, trace=trace))
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        worker.index = None
        while self._waiting and worker.index is None:
            index = self._waiting.popleft()
            job = self._jobs[index]
            try:
                order = pickle.dumps((job.function, job.arguments, job.options))
            except Exception as error:  # noqa: BLE001 - what cannot be pickled raises anything
                self._settle(index, _failed(job, error))
                continue
            try:
                worker.pipe.send_bytes(order)
                worker.index = index
            except OSError:  # the worker is dead; it is buried with no job of its own
                self._lost[index] += 1
                if self._lost[index] < TRIES:
                    self._waiting.appendleft(index)
                else:
                    line = f"{TRIES} processes died while they received {job.name}."
                    self._settle(index, Outcome(job.name, error=line))
                return

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        self._workers.remove(worker)
        worker.pipe.close()
        code = worker.process.exitcode or 0
        how = f"was killed by {_signal(-code)}" if code < 0 else f"exited with code {code}"
        if worker.index is not None:
            name = self._jobs[worker.index].name
            self._settle(worker.index, Outcome(name, error=f"The process of {name} {how}."))
        elif not worker.ready:
            self._stillborn += 1
            if self._stillborn > 2:
                raise NclabError(
                    f"Expected worker processes to start, but each {how}. A script starts jobs "
                    'under `if __name__ == "__main__":`; or pass workers=0.'
                )

    def _settle(self, index: int, outcome: Outcome) -> None:
        self._outcomes[index] = self._tell.done(index, outcome)


def _start(threads: int) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, threads))
    with thread_environment(threads), _without_interrupts():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _stop(workers: list[_Worker]) -> None:
    """End every worker: idle ones by closing their pipe, the others by force."""
    for worker in workers:
        worker.pipe.close()
        if worker.index is not None or not worker.ready:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
    workers.clear()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A child is born deaf to Ctrl-C, else it would tell of it before it can ignore it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
