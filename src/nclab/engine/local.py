"""Independent jobs on the cores of this machine, one process each; none can harm another."""

import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from nclab.engine.jobs import Engine, Job, JobList, JobResult, ReportStep, ended, raised
from nclab.engine.worker import Word, thread_environment, use_threads, work
from nclab.errors import NclabError

DELAY_SECONDS = 2.0
"""How long a worker that was asked to stop may take."""
TRIES = 3
"""So many workers may die while they are handed one job."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Local(Engine):
    """The cores of this machine as an engine; every folder is the same for all its jobs."""

    here = True

    def slots(self) -> int:
        """One job a core."""
        return cores()

    def run_all(self, work: JobList) -> None:
        """In worker processes, or one after the other in this one."""
        if work.workers == 0:
            _run_here(work)
        else:
            _Processes(work).run(min(work.workers or cores(), len(work.jobs)))


LOCAL = Local()
"""The engine where none is named."""
run_jobs = LOCAL.run_jobs


def _run_here(work: JobList) -> None:
    import torch

    before = torch.get_num_threads()
    use_threads(work.threads)
    try:
        for index, job in enumerate(work.jobs):
            work.end(index, _call(job, partial(work.progress, index)))
    finally:
        use_threads(before)


def _call(job: Job, report: ReportStep) -> JobResult:
    try:
        return JobResult(job.name, job.function(report, *job.arguments, **job.options))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its result
        return raised(job, error)


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    index: int | None = None
    gone: bool = False

    def said(self) -> Iterator[Word]:
        """What it has said by now; notes when its process or pipe has ended."""
        try:
            while self.pipe.poll():
                yield self.pipe.recv()
            self.gone = not self.process.is_alive() and not self.pipe.poll()
        except (EOFError, OSError):
            self.gone = True


class _Processes:
    """The parent's side: hands out jobs, hears answers, replaces the dead."""

    def __init__(self, work: JobList) -> None:
        self._work = work
        self._waiting = deque(range(len(work.jobs)))
        self._workers: list[_Worker] = []
        self._stillborn = 0
        self._lost: Counter[int] = Counter()

    def run(self, count: int) -> None:
        try:
            while self._work.unfinished:
                while len(self._workers) < min(count, self._work.unfinished):
                    self._workers.append(_start(self._work.threads))
                self._listen()
        finally:
            _stop(self._workers)

    def _listen(self) -> None:
        """Wait until some worker says something or dies."""
        by_end: dict[Any, _Worker] = {}
        for worker in self._workers:
            by_end[worker.pipe] = by_end[worker.process.sentinel] = worker
        spoke = {id(by_end[end]): by_end[end] for end in connection.wait(list(by_end))}
        for worker in spoke.values():
            for word, content in worker.said():
                self._hear(worker, word, content)
            if worker.gone:
                self._bury(worker)

    def _hear(self, worker: _Worker, word: str, content: Any) -> None:
        index = worker.index
        if word == "ready":
            worker.ready = True
        elif index is None:
            raise AssertionError(f"{word} without a job")
        elif word == "progress":
            self._work.progress(index, *content)
            return
        else:
            self._work.end(index, ended(self._work.jobs[index], word, content))
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        worker.index = None
        while self._waiting and worker.index is None:
            index = self._waiting.popleft()
            job = self._work.jobs[index]
            try:
                order = pickle.dumps((job.function, job.arguments, job.options))
            except Exception as error:  # noqa: BLE001 - what cannot be pickled raises anything
                self._work.end(index, raised(job, error))
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
                    self._work.end(index, JobResult(job.name, error=line))
                return

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        self._workers.remove(worker)
        worker.pipe.close()
        code = worker.process.exitcode or 0
        how = f"was killed by {_signal(-code)}" if code < 0 else f"exited with code {code}"
        if worker.index is not None:
            name = self._work.jobs[worker.index].name
            self._work.end(worker.index, JobResult(name, error=f"The process of {name} {how}."))
        elif not worker.ready:
            self._stillborn += 1
            if self._stillborn > 2:
                raise NclabError(
                    f"Expected worker processes to start, but each {how}. A script starts jobs "
                    'under `if __name__ == "__main__":`; or pass workers=0.'
                )


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
        worker.process.join(DELAY_SECONDS)
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
