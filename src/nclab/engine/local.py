"""Independent jobs on the cores of this machine, one process each; none can harm another."""

import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from nclab.engine.jobs import (
    Job,
    OnDone,
    OnProgress,
    Outcome,
    Report,
    Telling,
    check_counts,
    ended,
    raised,
)
from nclab.engine.worker import thread_environment, use_threads, work
from nclab.errors import NclabError

PATIENCE_SECONDS = 2.0
"""How long a worker that was asked to stop may take."""
TRIES = 3
"""So many workers may die while they are handed one job."""


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    on_done: OnDone | None = None,
) -> list[Outcome]:
    """Run every job and return their outcomes in order; a job that fails or dies stops no other.

    By default there is one worker a core with one thread each; `workers=0` runs the jobs in this
    process, one after the other. As always with processes, a script that calls this does so
    under `if __name__ == "__main__":`.

    >>> run_jobs([Job("four", _example, (2,)), Job("no", _example, ("x",))], workers=0)[0].value
    4
    """
    check_counts(workers=workers, threads=threads, least=0)
    tell = Telling(jobs, on_progress, on_done)
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


class Local:
    """The cores of this machine as an engine."""

    here = True

    def slots(self) -> int:
        """One job a core."""
        return cores()

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
        """As `run_jobs`; on one machine every folder is the same for all."""
        return run_jobs(
            jobs, workers=workers, threads=threads, on_progress=on_progress, on_done=on_done
        )


LOCAL = Local()


def _run_here(jobs: Sequence[Job], threads: int, tell: Telling) -> list[Outcome]:
    import torch

    before = torch.get_num_threads()
    use_threads(threads)
    try:
        return [tell.done(index, _call(job, index, tell)) for index, job in enumerate(jobs)]
    finally:
        use_threads(before)


def _call(job: Job, index: int, tell: Telling) -> Outcome:
    def report(step: int, total: int | None = None) -> None:
        tell.progress(index, step, total)

    try:
        return Outcome(job.name, job.function(report, *job.arguments, **job.options))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its outcome
        return raised(job, error)


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    index: int | None = None


class _Crew:
    """The parent's side: hands out jobs, hears answers, replaces the dead."""

    def __init__(self, jobs: Sequence[Job], threads: int, tell: Telling) -> None:
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
        else:
            self._settle(index, ended(self._jobs[index], word, content))
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        worker.index = None
        while self._waiting and worker.index is None:
            index = self._waiting.popleft()
            job = self._jobs[index]
            try:
                order = pickle.dumps((job.function, job.arguments, job.options))
            except Exception as error:  # noqa: BLE001 - what cannot be pickled raises anything
                self._settle(index, raised(job, error))
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
