"""Trains a sweep: what is missing on disk, in groups, one process for each."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nclab import errors
from nclab.engine import LOCAL, Engine, Job, JobResult, Progress
from nclab.errors import NclabError
from nclab.progress import Bar, bar
from nclab.training.sweep.axes import Axes
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.group import Group, run_sinks, train_group
from nclab.training.sweep.memory import check_memory, group_size
from nclab.training.sweep.plan import FleetPlan, SweepPlan, plan_sweep
from nclab.training.sweep.rows import Row, rows_of

TRIES = 3
"""So often a group is begun whose process or machine is lost; it goes on where it stopped."""


def train_sweep(
    sweep: SweepConfig | Axes | Sequence[SweepConfig],
    out: Path,
    *,
    workers: int | None = None,
    device: str = "cpu",
    engine: Engine = LOCAL,
    sinks: Sequence[str] = (),
) -> list[Row]:
    """Train every member of a sweep and give a row for each, in the order of `config.members`.

    Every member has a folder `out/<name>`. Ended runs are reused and stopped ones go on; the
    numbers do not depend on either, nor on `workers`: one process a core by default, 0 for this
    process alone, nor on the `engine`: `nclab.engine.ray.Cluster` trains on many machines, which
    must share the folder. `sinks` are names, as for a `Monitor`, told of every measurement. Rows of
    several fleets have their place on every axis.

    >>> import tempfile
    >>> from nclab.training.data.teacher import Teacher
    >>> from nclab.training.models.mlp import Shape
    >>> from nclab.training.fleet import Recipe
    >>> config = SweepConfig(
    ...     data=Teacher(samples=200, width=20), shape=Shape(layers=3, width=16), norms=("affine",),
    ...     weight_decays=(1e-3,), recipe=Recipe(epochs=3, batch=50),
    ... )
    >>> [row] = train_sweep(config, Path(tempfile.mkdtemp()), workers=0)
    >>> row["norm"], row["weight_decay"], row["seed"], row["converged"]
    ('affine', 0.001, 0, False)
    """
    planned = plan_sweep(sweep, out)
    return train_plan(planned, workers=workers, device=device, engine=engine, sinks=sinks)


def train_plan(
    plan: SweepPlan,
    *,
    workers: int | None = None,
    device: str = "cpu",
    engine: Engine = LOCAL,
    sinks: Sequence[str] = (),
) -> list[Row]:
    """The same for a plan that was made before."""
    run_sinks(sinks, plan.out)  # refuses what there is not before anything is trained
    slots = check_place(plan, workers=workers, device=device, engine=engine)
    groups = [group for fleet in plan.fleets for group in _groups(fleet, plan, slots, device)]
    groups = [replace(group, sinks=tuple(sinks)) for group in groups]
    if groups:
        alone = engine.here and len(groups) == 1
        _run(groups, engine, 0 if alone or _is_cuda(device) else workers)
    own = plan.settings
    return [
        {**row, **own[row["run"]]}
        for fleet in plan.fleets
        for row in rows_of(
            plan.out, [run.name for run in fleet.runs], threshold=fleet.config.converged
        )
    ]


def check_place(plan: SweepPlan, *, workers: int | None, device: str, engine: Engine) -> int:
    """How many groups are trained at once; refuses what is too large or not there."""
    if workers is not None:
        slots = max(1, workers)
    else:  # what is there already needs no cluster
        slots = engine.slots() if any(fleet.missing for fleet in plan.fleets) else 1
    if _is_cuda(device):
        if not engine.here:
            raise NclabError(f"Expected device 'cpu' on a cluster, got {device!r}.")
        return 1  # one process feeds the device
    for fleet in plan.fleets if engine.here else ():
        shape = fleet.config.shape_for(fleet.samples)
        check_memory(shape, min(len(fleet.missing), slots * group_size(shape)))
    return slots


def _groups(fleet: FleetPlan, plan: SweepPlan, slots: int, device: str) -> list[Group]:
    """Enough of them, together with those of other fleets, for all cores."""
    size = group_size(fleet.config.shape_for(fleet.samples))
    begun = sum(1 for one in plan.fleets if one.missing)
    hands = deal(fleet.missing, max(-(-slots // max(1, begun)), -(-len(fleet.missing) // size)))
    # Absolute, as a cluster's processes have working folders of their own.
    where = (plan.out.absolute(), device, fleet.test)
    return [Group(fleet.config, hand, fleet.samples, *where) for hand in hands]


def _is_cuda(device: str) -> bool:
    """Whether to train on a graphics card; refuses what is not there."""
    if device == "cpu":
        return False
    import torch

    if device.split(":")[0] != "cuda" or not torch.cuda.is_available():
        raise NclabError(f"Expected device 'cpu', or 'cuda' where there is one, got {device!r}.")
    return True


def deal(plans: Sequence[RunPlan], hands: int) -> list[tuple[RunPlan, ...]]:
    """Groups of about equal cost, as members cost about the same and neighbours most of all.

    >>> config = SweepConfig(weight_decays=(1e-3, 1e-2), norms=("affine", "none"))
    >>> [len(hand) for hand in deal(config.plan(config.data.draw()), 3)]
    [2, 1, 1]
    """
    dealt = [tuple(plans[start::hands]) for start in range(hands)]
    return [hand for hand in dealt if hand]


def _run(groups: Sequence[Group], engine: Engine, workers: int | None) -> None:
    jobs = [Job(f"group {n} of {len(groups)}", _job, (g,)) for n, g in enumerate(groups, start=1)]
    run_groups(jobs, groups, engine, workers)


def run_groups(
    jobs: Sequence[Job], groups: Sequence[Group], engine: Engine, workers: int | None
) -> None:
    """A job for each group, with a bar of model-steps; raises what any of them raised."""
    total = sum(group.total for group in groups)
    with bar(f"training {sum(len(g.plans) for g in groups)} models", total=total) as moving:
        pace = _Pace(moving)
        outcomes = engine.run_jobs(
            jobs, folder=groups[0].out, workers=workers, tries=TRIES, on_progress=pace.hear
        )
    for outcome in outcomes:
        _raise(outcome)


def _job(report: Any, group: Group) -> None:
    """The whole group in a worker process; tells how many model-steps are done."""
    done = 0

    def tell(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, group.total)

    train_group(group, tell)


class _Pace:
    """Moves the bar: model-steps of all workers, and how many there are in a second."""

    def __init__(self, moving: Bar) -> None:
        self._bar = moving
        self._first: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._started: float | None = None

    def hear(self, progress: Progress) -> None:
        """One worker's word; its first is what was on disk already."""
        self._first.setdefault(progress.index, progress.step)
        self._done[progress.index] = progress.step
        done = sum(self._done.values())
        if self._started is None:
            self._started = time.monotonic()
        elapsed = max(time.monotonic() - self._started, 1e-3)
        speed = (done - sum(self._first.values())) / elapsed
        self._bar.update(done, f"{speed:.0f} models·steps/s")


def _raise(outcome: JobResult) -> None:
    """One clear line for what a user can mend, the whole story for a defect."""
    if outcome.error is None:
        return
    kind, _, line = outcome.error.partition(": ")
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, NclabError):
        # An optional package's error makes its own message, which the line already is.
        raise (NclabError if known is errors.MissingExtra else known)(line)
    if kind.endswith("MemoryError") or "allocate memory" in line:
        raise NclabError(
            f"Expected enough memory for {outcome.name}, got too little. Take a smaller width, "
            "fewer models or fewer workers."
        )
    if outcome.trace is None:
        raise NclabError(f"{outcome.error} What it wrote is kept: the same command goes on.")
    raise RuntimeError(f"{outcome.name} failed.\n{outcome.trace}")
