"""Jobs of an experiment on all cores of its engine: one bar for all, their values in order."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nclab.engine import Engine, Job, Progress, ReportStep
from nclab.errors import NclabError
from nclab.progress import bar


def work_through(
    jobs: Sequence[Job],
    title: str,
    *,
    engine: Engine,
    total: int | None = None,
    folder: Path | None = None,
    workers: int | None = None,
) -> list[Any]:
    """Run the jobs, begun in this order, and give what they return; raises for one that failed.

    Args:
        title: of the bar, which shows the steps that jobs report.
        total: steps of all jobs; one each by default.
        folder: where they write, the same on every machine.
        workers: as for `Engine.run_jobs`.

    >>> from nclab.engine import LOCAL
    >>> jobs = [Job(str(n), in_one_step, (divmod, 7, n)) for n in (2, 3)]
    >>> work_through(jobs, "dividing", engine=LOCAL, workers=0)
    [(3, 1), (2, 1)]
    """
    done = dict.fromkeys(range(len(jobs)), 0)
    with bar(title, total=total or len(jobs)) as moving:

        def tell(progress: Progress) -> None:
            done[progress.index] = progress.step
            moving.update(sum(done.values()), f"{len(jobs)} job(s)")

        outcomes = engine.run_jobs(jobs, folder=folder, workers=workers, on_progress=tell)
    for outcome in outcomes:
        if not outcome.ok:
            raise NclabError(f"{outcome.name} failed: {outcome.error}")
    return [outcome.value for outcome in outcomes]


def in_one_step(report: ReportStep, function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of an experiment as a job of a single step."""
    value = function(*arguments)
    report(1, 1)
    return value
