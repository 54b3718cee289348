"""Engine of the cores of this machine; worker processes that crash are replaced."""

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import parent_process
from typing import Any

from nclab.engine.jobs import THREAD_VARIABLES, Engine, JobList, JobResult, Message, run_job
from nclab.errors import NclabError

STOP_SECONDS = 2.0
"""Time in which a terminated worker must end before it is killed."""
START_FAILURES = 3
"""The engine gives up after this number of workers that died before their first job."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Local(Engine):
    """Engine of the cores of this machine."""

    here = True

    def slots(self) -> int:
        """Return the number of cores."""
        return cores()

    def run_all(self, work: JobList) -> None:
        """Run jobs in worker processes, or with `workers=0` one after the other in this process."""
        if work.workers == 0:
            _run_inline(work)
        else:
            _Processes(work).run(min(work.workers or cores(), len(work.jobs)))


LOCAL = Local()
"""Default engine."""
run_jobs = LOCAL.run_jobs


def _run_inline(work: JobList) -> None:
    from nclab.compute import one_thread  # late, because worker processes may not need torch

    with one_thread():
        while work.waiting:
            index = work.waiting.popleft()
            job = work.jobs[index]
            try:
                value = job.function(partial(work.progress, index), *job.arguments, **job.options)
                result = JobResult(job.name, value)
            except Exception as error:  # noqa: BLE001 - any error of a job is its result
                result = JobResult.raised(job, error)
            work.end(index, result)


@dataclass(eq=False)
class _Worker:
    """A worker process as its parent sees it."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    index: int | None = None
    """Index of the job that the worker runs; None if the worker has no job."""
    gone: bool = False

    def messages(self) -> Iterator[Message]:
        """Yield the messages that have arrived; set `gone` if process or pipe has ended."""
        try:
            while self.pipe.poll():
                yield self.pipe.recv()
            self.gone = not self.process.is_alive() and not self.pipe.poll()
        except (EOFError, OSError):
            self.gone = True


class _Processes:
    """Worker processes that receive jobs, send messages and are replaced when they die."""

    def __init__(self, work: JobList) -> None:
        self._work = work
        self._workers: list[_Worker] = []
        self._start_failures = 0

    def run(self, count: int) -> None:
        try:
            while self._work.unfinished:
                while len(self._workers) < min(count, self._work.unfinished):
                    self._workers.append(_start())
                self._receive()
                for worker in self._workers:
                    if worker.ready and worker.index is None and not worker.gone:
                        self._send_job(worker)
        finally:
            _stop(self._workers)

    def _receive(self) -> None:
        """Wait for messages or the death of a worker; handle messages, remove dead workers."""
        ends: dict[Any, _Worker] = {worker.pipe: worker for worker in self._workers}
        ends |= {worker.process.sentinel: worker for worker in self._workers}
        for worker in dict.fromkeys(ends[end] for end in connection.wait(list(ends))):
            for kind, content in worker.messages():
                self._handle(worker, kind, content)
            if worker.gone:
                self._remove(worker)

    def _handle(self, worker: _Worker, kind: str, content: Any) -> None:
        """Handle a message: the worker is ready, or its job has progressed or ended."""
        index = worker.index
        if kind == "ready":
            worker.ready = True
        elif index is None:
            raise AssertionError(f"{kind} without a job")
        elif kind == "progress":
            self._work.progress(index, *content)
        else:
            worker.index = None
            self._work.end(index, JobResult.from_message(self._work.jobs[index], kind, content))

    def _send_job(self, worker: _Worker) -> None:
        """Send the next waiting job that can be pickled."""
        while self._work.waiting and worker.index is None:
            index = self._work.waiting.popleft()
            job = self._work.jobs[index]
            try:
                order = pickle.dumps((job.function, job.arguments, job.options))
            except Exception as error:  # noqa: BLE001 - pickling may raise anything
                self._work.end(index, JobResult.raised(job, error))
                continue
            worker.index = index
            with suppress(OSError):  # `_receive` removes a dead worker, whose job is lost
                worker.pipe.send_bytes(order)

    def _remove(self, worker: _Worker) -> None:
        """Remove a dead worker; its job is lost."""
        worker.process.join()
        self._workers.remove(worker)
        worker.pipe.close()
        code = worker.process.exitcode or 0
        reason = f"exited with code {code}"
        if code < 0:
            reason = f"was killed by {signal.Signals(-code).name}"
        if worker.index is not None:
            name = self._work.jobs[worker.index].name
            line = f"The process of {name} {reason}."
            self._work.end(worker.index, JobResult(name, error=line))
        elif not worker.ready:
            self._start_failures += 1
            if self._start_failures == START_FAILURES:
                raise NclabError(
                    f"Expected worker processes to start, but each {reason}. In a script, call "
                    'nclab under `if __name__ == "__main__":`, or pass workers=0.'
                )


def run_worker(pipe: Connection) -> None:
    """Run jobs from the pipe until it closes or the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops us
    threading.Thread(target=_watch_parent, daemon=True).start()
    pipe.send(("ready", None))
    while True:
        try:
            order = pipe.recv_bytes()
        except EOFError:
            return
        run_job(order, pipe.send)


def _watch_parent() -> None:
    """Kill this process when its parent ends."""
    parent: Any = parent_process()
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _start() -> _Worker:
    """Start a worker process that computes with one thread."""
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    process = context.Process(target=run_worker, args=(worker_end,))
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # the new process inherits them
    try:
        process.start()
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)
    worker_end.close()
    return _Worker(process, parent_end)


def _stop(workers: list[_Worker]) -> None:
    """End idle workers by closing their pipe, the others by a signal."""
    for worker in workers:
        worker.pipe.close()
        if worker.index is not None or not worker.ready:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(STOP_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
    workers.clear()
