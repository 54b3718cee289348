"""Jobs, their results, and the interface of an engine that runs them."""

import pickle
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nclab.errors import NclabError
from nclab.progress import bar

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
REPORT_SECONDS = 0.1
"""Shortest time between two progress messages; the last step is always sent."""
Message = tuple[str, Any]
"""Kind of a message, `ready`, `progress`, `done` or `failed`, and its content."""
ReportStep = Callable[..., None]
"""First argument of a job's function, to be called as `report(step, total)`."""


@dataclass(frozen=True)
class Job:
    """A call `function(report, *arguments, **options)` of a top-level function."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """Value or error of a job."""

    name: str
    value: Any = None
    error: str | None = None
    """Error in one line; None if the job returned."""
    trace: str | None = None
    """Traceback if the job raised; None if its process died."""

    @property
    def ok(self) -> bool:
        """Whether the job returned."""
        return self.error is None

    @property
    def lost(self) -> bool:
        """Whether the job's process or machine died, so that another try may succeed.

        A job that ran out of memory is not lost, because it would run out of memory again.
        """
        died = self.error is not None and self.trace is None
        return died and "MemoryError" not in str(self.error).partition(":")[0]

    @classmethod
    def raised(cls, job: Job, error: BaseException) -> "JobResult":
        """Return the result of a job that raised or cannot be pickled."""
        line, trace = describe_error(error)
        return cls(job.name, error=line, trace=trace)

    @classmethod
    def from_message(cls, job: Job, kind: str, content: Any) -> "JobResult":
        """Return the result from a worker's last message: `done` with a pickle, or `failed`."""
        if kind == "failed":
            line, trace = content
            return cls(job.name, error=line, trace=trace)
        try:
            return cls(job.name, pickle.loads(content))
        except Exception as error:  # noqa: BLE001 - unpickling may raise anything
            return cls.raised(job, error)


@dataclass(frozen=True)
class Progress:
    """Progress of one job."""

    index: int
    name: str
    step: int
    total: int | None


OnProgress = Callable[[Progress], None]
OnDone = Callable[[int, JobResult], None]


@dataclass(frozen=True)
class JobList:
    """Jobs to run, their options, and their results so far."""

    jobs: Sequence[Job]
    folder: Path | None
    workers: int | None
    tries: int
    on_progress: OnProgress | None
    on_done: OnDone | None
    waiting: deque[int]
    """Indices of jobs that no worker has."""
    results: dict[int, JobResult] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)
    """Number of times that each job was lost because its process or machine died."""

    @property
    def unfinished(self) -> int:
        """Number of jobs that have not ended."""
        return len(self.jobs) - len(self.results)

    def progress(self, index: int, step: int, total: int | None = None) -> None:
        """Report the progress of a job."""
        if self.on_progress is not None:
            self.on_progress(Progress(index, self.jobs[index].name, step, total))

    def end(self, index: int, result: JobResult) -> None:
        """Store a result; a lost job waits again if it has tries left."""
        self.losses[index] += result.lost
        if result.lost and self.losses[index] < self.tries:
            self.waiting.append(index)
            return
        self.results[index] = result
        if self.on_done is not None:
            self.on_done(index, result)


class Engine(ABC):
    """Base class of engines, which run jobs; results do not depend on the engine."""

    here: ClassVar[bool]
    """Whether jobs run on this machine. Then `workers=0` runs them in the calling process."""

    @abstractmethod
    def slots(self) -> int:
        """Return the number of single-thread jobs that run at the same time."""

    @abstractmethod
    def run_all(self, work: JobList) -> None:
        """Run all waiting jobs until each has ended."""

    def run_jobs(
        self,
        jobs: Sequence[Job],
        *,
        folder: Path | None = None,
        workers: int | None = None,
        tries: int = 1,
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
    ) -> list[JobResult]:
        """Run every job with one thread; return the results in order.

        A failed job does not stop the others.

        Ctrl-C stops all jobs. A script must call this under `if __name__ == "__main__":`, because
        new processes import the script.

        Args:
            folder: folder to which jobs write; a machine that does not share it fails.
            workers: number of jobs at the same time, by default one per core; 0 runs the jobs in
                this process, one after the other.
            tries: number of times that a job is started if its process or machine is lost; a job
                that raises is started once.

        >>> from nclab.engine import LOCAL
        >>> def square(report, value):
        ...     return value * value
        >>> results = LOCAL.run_jobs([Job("four", square, (2,)), Job("no", square)], workers=0)
        >>> results[0].value, results[1].ok
        (4, False)
        """
        least = 0 if self.here else 1
        if workers is not None and workers < least:
            raise NclabError(f"Expected {least} or more workers, got {workers}.")
        waiting = deque(range(len(jobs)))
        work = JobList(jobs, folder, workers, tries, on_progress, on_done, waiting)
        if jobs:
            self.run_all(work)
        return [work.results[index] for index in range(len(jobs))]

    def run_with_bar(
        self, jobs: Sequence[Job], title: str, *, total: int | None = None, **options: Any
    ) -> list[JobResult]:
        """Run every job under one progress bar; return the results in order.

        Args:
            title: label of the bar, which counts the steps that jobs report.
            total: steps of all jobs; by default one per job.
            options: as for `run_jobs`.
        """
        steps = [0] * len(jobs)
        with bar(title, total=total or len(jobs)) as progress_bar:

            def advance(progress: Progress) -> None:
                steps[progress.index] = progress.step
                progress_bar.update(sum(steps))

            return self.run_jobs(jobs, on_progress=advance, **options)


def run_job(
    order: bytes,
    send: Callable[[Message], None],
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> None:
    """Run one pickled job; send its progress, then `done` or `failed`."""
    try:
        function, arguments, options = pickle.loads(order)
        torch = sys.modules.get("torch")
        if torch is not None:  # otherwise torch will read the environment
            torch.set_num_threads(1)
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
