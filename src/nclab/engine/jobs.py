"""What every engine speaks of: jobs, what became of them, and where they run."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nclab.engine.worker import failure
from nclab.errors import NclabError

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
OnDone = Callable[[int, Outcome], None]


class Engine(Protocol):
    """Where jobs run; their numbers do not depend on it."""

    @property
    def here(self) -> bool:
        """Whether that is this machine, so that `workers=0` runs jobs in this very process."""

    def slots(self) -> int:
        """How many jobs of one thread run at the same time."""

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
        """Outcomes in order; jobs that write to `folder` fail where it is not the same one."""


@dataclass(frozen=True)
class Telling:
    """Tells the caller how far jobs are and what became of them."""

    jobs: Sequence[Job]
    on_progress: OnProgress | None
    on_done: OnDone | None

    def progress(self, index: int, step: int, total: int | None) -> None:
        """A job's word on its step."""
        if self.on_progress is not None:
            self.on_progress(Progress(index, self.jobs[index].name, step, total))

    def done(self, index: int, outcome: Outcome) -> Outcome:
        """A job's end."""
        if self.on_done is not None:
            self.on_done(index, outcome)
        return outcome


def ended(job: Job, word: str, content: Any) -> Outcome:
    """The outcome that a worker's last word tells: `done` and a pickled value, or `failed`."""
    if word == "failed":
        line, trace = content
        return Outcome(job.name, error=line, trace=trace)
    try:
        return Outcome(job.name, pickle.loads(content))
    except Exception as error:  # noqa: BLE001 - what cannot be unpickled raises anything
        return raised(job, error)


def raised(job: Job, error: BaseException) -> Outcome:
    """The outcome of a job that raised, or that cannot be handed over."""
    line, trace = failure(error)
    return Outcome(job.name, error=line, trace=trace)


def check_counts(*, workers: int | None, threads: int, least: int) -> None:
    """Refuse numbers of workers and threads that make no sense."""
    if workers is not None and workers < least:
        raise NclabError(f"Expected {least} or more workers, got {workers}.")
    if threads < 1:
        raise NclabError(f"Expected 1 or more threads, got {threads}.")
