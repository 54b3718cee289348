"""What every engine speaks of: jobs, what became of them, and where they run."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from nclab.engine.worker import failure
from nclab.errors import NclabError

ReportStep = Callable[..., None]
"""What a job gets as its first argument, to be called as `report(step, total)`."""


@dataclass(frozen=True)
class Job:
    """A call `function(report, *arguments, **options)`; the function is a top-level one."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
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

    @property
    def lost(self) -> bool:
        """Whether its process or machine is gone, though not for want of memory."""
        gone = self.error is not None and self.trace is None
        return gone and "MemoryError" not in str(self.error).partition(":")[0]


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    index: int
    name: str
    step: int
    total: int | None


OnProgress = Callable[[Progress], None]
OnDone = Callable[[int, JobResult], None]


@dataclass(frozen=True)
class JobList:
    """Jobs to be run, how, and what became of them so far."""

    jobs: Sequence[Job]
    folder: Path | None
    workers: int | None
    threads: int
    on_progress: OnProgress | None
    on_done: OnDone | None
    results: dict[int, JobResult] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """How many jobs have not ended."""
        return len(self.jobs) - len(self.results)

    def progress(self, index: int, step: int, total: int | None = None) -> None:
        """A job's word on its step."""
        if self.on_progress is not None:
            self.on_progress(Progress(index, self.jobs[index].name, step, total))

    def end(self, index: int, result: JobResult) -> None:
        """A job's end."""
        self.results[index] = result
        if self.on_done is not None:
            self.on_done(index, result)


class Engine(ABC):
    """Where jobs run; their numbers do not depend on it."""

    here: ClassVar[bool]
    """Whether that is this machine, so that `workers=0` runs jobs in this very process."""

    @abstractmethod
    def slots(self) -> int:
        """How many jobs of one thread run at the same time."""

    @abstractmethod
    def run_all(self, work: JobList) -> None:
        """Run one or more jobs until each has ended."""

    def run_jobs(
        self,
        jobs: Sequence[Job],
        *,
        folder: Path | None = None,
        workers: int | None = None,
        threads: int = 1,
        tries: int = 1,
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
    ) -> list[JobResult]:
        """Run every job and return their results in order; one that fails or dies stops no other.

        Ctrl-C stops them all. As always with processes, a script that calls this does so under
        `if __name__ == "__main__":`.

        Args:
            folder: jobs that write to it fail on a machine where it is not the same one.
            workers: so many jobs run at the same time, by default one a core; 0 runs them in this
                process, one after the other.
            threads: of each job.
            tries: so often a job is begun whose process or machine is lost; one that raises is not
                begun again.

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
        if threads < 1:
            raise NclabError(f"Expected 1 or more threads, got {threads}.")
        found: dict[int, JobResult] = {}
        while len(found) < len(jobs):
            tries -= 1
            places = [index for index in range(len(jobs)) if index not in found]
            end = partial(_end, found, places, on_done, again=tries > 0)
            hear = None if on_progress is None else partial(_hear, on_progress, places)
            left = [jobs[index] for index in places]
            self.run_all(JobList(left, folder, workers, threads, hear, end))
        return [found[index] for index in range(len(jobs))]


def _end(
    found: dict[int, JobResult],
    places: Sequence[int],
    on_done: OnDone | None,
    place: int,
    result: JobResult,
    *,
    again: bool,
) -> None:
    """Take a result, unless its job was lost and is begun again."""
    if result.lost and again:
        return
    found[places[place]] = result
    if on_done is not None:
        on_done(places[place], result)


def _hear(on_progress: OnProgress, places: Sequence[int], progress: Progress) -> None:
    on_progress(replace(progress, index=places[progress.index]))


def ended(job: Job, word: str, content: Any) -> JobResult:
    """The result that a worker's last word tells: `done` and a pickled value, or `failed`."""
    if word == "failed":
        line, trace = content
        return JobResult(job.name, error=line, trace=trace)
    try:
        return JobResult(job.name, pickle.loads(content))
    except Exception as error:  # noqa: BLE001 - what cannot be unpickled raises anything
        return raised(job, error)


def raised(job: Job, error: BaseException) -> JobResult:
    """The result of a job that raised, or that cannot be handed over."""
    line, trace = failure(error)
    return JobResult(job.name, error=line, trace=trace)
