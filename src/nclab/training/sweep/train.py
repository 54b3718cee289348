"""Training of the missing runs of a sweep, in groups that fit the cache, one process each."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nclab import errors
from nclab.engine import LOCAL, Engine, Job, JobResult
from nclab.errors import NclabError
from nclab.training.models.mlp import Shape
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.group import Group, train_group
from nclab.training.sweep.plan import Axes, FleetPlan, SweepPlan, plan_sweep
from nclab.training.sweep.rows import Row, rows_of

TRIES = 3
"""Number of times that a group is started if its process or machine is lost."""
MOST_MEMBERS = 64
"""Largest number of runs whose files are open in one process."""
GROUP_BYTES = 2**24
"""Memory for the states of one group, about a core's share of a large cache."""
BYTES_PER_WEIGHT = 16
"""Memory for one weight: the weight, its momentum and a backup of both, in float32."""


def train_sweep(
    sweep: SweepConfig | Axes | Sequence[SweepConfig],
    out: Path,
    *,
    workers: int | None = None,
    device: str = "cpu",
    engine: Engine = LOCAL,
) -> list[Row]:
    """Train every member of a sweep; return a row for each, in the order of `config.members`.

    Every member has a folder `out/<name>`. Ended runs are reused, and stopped runs continue. No
    number depends on interruptions, `workers` or `engine`. If the sweep has several fleets, a row
    also contains the settings that differ between fleets.

    Args:
        workers: number of processes, by default one per core; 0 trains in this process.
        engine: where to train; `nclab.engine.ray.Cluster` uses many machines with a shared folder.

    >>> import tempfile
    >>> from nclab.training.data import Teacher
    >>> from nclab.training.models import Shape
    >>> from nclab.training.fleet import Recipe
    >>> config = SweepConfig(
    ...     data=Teacher(samples=200, width=20), shape=Shape(layers=3, width=16), norms=("affine",),
    ...     weight_decays=(1e-3,), recipe=Recipe(epochs=3, batch=50),
    ... )
    >>> [row] = train_sweep(config, Path(tempfile.mkdtemp()), workers=0)
    >>> row["norm"], row["weight_decay"], row["seed"], row["converged"]
    ('affine', 0.001, 0, False)
    """
    plan = plan_sweep(sweep, out)
    return train_plan(plan, workers=workers, device=device, engine=engine)


def train_plan(
    plan: SweepPlan,
    *,
    workers: int | None = None,
    device: str = "cpu",
    engine: Engine = LOCAL,
) -> list[Row]:
    """Train the missing runs of a plan; return a row for every run, as `train_sweep` does."""
    slots = training_slots(plan, workers, device, engine)
    groups = [group for fleet in plan.fleets for group in _groups(fleet, plan, slots, device)]
    if groups:
        single = engine.here and len(groups) == 1
        run_groups(train_group, groups, engine, 0 if single or _is_cuda(device) else workers)
    settings = plan.settings
    return [
        {**row, **settings[row["run"]]}
        for fleet in plan.fleets
        for row in rows_of(
            plan.out, [run.name for run in fleet.runs], threshold=fleet.config.converged
        )
    ]


def training_slots(plan: SweepPlan, workers: int | None, device: str, engine: Engine) -> int:
    """Return how many groups train at once; raise if there is no such device or cluster."""
    if _is_cuda(device):
        if not engine.here:
            raise NclabError(f"Expected device 'cpu' on a cluster, got {device!r}.")
        return 1  # one process feeds the device
    if workers is not None:
        return max(1, workers)
    return engine.slots() if plan.missing else 1  # a finished sweep needs no cluster


def _groups(fleet: FleetPlan, plan: SweepPlan, slots: int, device: str) -> list[Group]:
    """Return the groups of one fleet.

    There are enough groups that all fleets together use all slots, and each group fits the cache.
    """
    size = group_size(fleet.config.shape_for(fleet.samples))
    incomplete = sum(1 for planned in plan.fleets if planned.missing)
    count = max(-(-slots // max(1, incomplete)), -(-len(fleet.missing) // size))
    out = plan.out.absolute()  # processes of a cluster have other working folders
    dealt = deal(fleet.missing, count)
    return [Group(fleet.config, runs, fleet.samples, out, device, fleet.test) for runs in dealt]


def group_size(shape: Shape) -> int:
    """Return how many members train together, so that their states fit a large cache.

    >>> group_size(Shape(width=5000)), group_size(Shape(width=8))
    (1, 64)
    """
    weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise(shape.widths))
    return max(1, min(MOST_MEMBERS, GROUP_BYTES // (BYTES_PER_WEIGHT * weights)))


def _is_cuda(device: str) -> bool:
    """Whether the device is a graphics card; raise if the device does not exist."""
    if device == "cpu":
        return False
    if device.split(":")[0] != "cuda" or not torch.cuda.is_available():
        raise NclabError(f"Expected device 'cpu', or 'cuda' if there is one, got {device!r}.")
    return True


def deal(plans: Sequence[RunPlan], groups: int) -> list[tuple[RunPlan, ...]]:
    """Deal plans out to groups one by one, like cards, so that every group takes about as long.

    Neighbouring plans have similar settings and take similar times.

    >>> config = SweepConfig(weight_decays=(1e-3, 1e-2), norms=("affine", "none"))
    >>> [len(group) for group in deal(config.plan(config.data.draw()), 3)]
    [2, 1, 1]
    """
    dealt = [tuple(plans[start::groups]) for start in range(groups)]
    return [group for group in dealt if group]


def run_groups(
    train: Callable[..., Any],
    groups: Sequence[Group],
    engine: Engine,
    workers: int | None,
    *arguments: Any,
) -> None:
    """Run a job `train(report, group, *arguments)` for each group; raise if a job fails."""
    jobs = [
        Job(f"group {n} of {len(groups)}", train, (group, *arguments))
        for n, group in enumerate(groups, start=1)
    ]
    title = f"training {sum(len(group.plans) for group in groups)} models"
    total = sum(group.total for group in groups)
    folder = groups[0].out
    results = engine.run_with_bar(
        jobs, title, total=total, folder=folder, workers=workers, tries=TRIES
    )
    for result in results:
        _raise_failure(result)


def _raise_failure(result: JobResult) -> None:
    """Raise if the job failed; errors that the user cannot correct are raised with a traceback."""
    if result.error is None:
        return
    kind, _, line = result.error.partition(": ")
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, NclabError):
        # MissingExtra builds its message from other arguments; the line is that message.
        raise (NclabError if known is errors.MissingExtra else known)(line)
    if kind.endswith("MemoryError") or "allocate memory" in line:
        raise NclabError(
            f"Expected enough memory for {result.name}, got too little. Use a smaller width, "
            "fewer models or fewer workers."
        )
    if result.trace is None:
        raise NclabError(f"{result.error} Finished epochs are kept. Run the same command again.")
    raise RuntimeError(f"{result.name} failed.\n{result.trace}")
