"""Training of the missing runs of a sweep, in groups that fit the cache, one process each."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nclab import errors
from nclab.engine import LOCAL, Engine, Job, JobResult, Progress
from nclab.errors import NclabError
from nclab.progress import bar
from nclab.training.models.mlp import Shape
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.group import Group, run_sinks, train_group
from nclab.training.sweep.plan import Axes, FleetPlan, SweepPlan, plan_sweep
from nclab.training.sweep.rows import Row, rows_of

TRIES = 3
"""Number of times that a group is started if its process or machine is lost."""
VECTORS = 4
"""Vectors per member: parameters, momenta and a backup of both. Adam needs more."""
FLOAT_BYTES = 4
"""Bytes of a float32."""
MOST_MEMBERS = 64
"""Largest number of runs whose files are open in one process."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DEFAULT_CACHE = 2**21
"""Bytes of a core's share of a cache if the system does not report its caches."""


def train_sweep(
    sweep: SweepConfig | Axes | Sequence[SweepConfig],
    out: Path,
    *,
    workers: int | None = None,
    device: str = "cpu",
    engine: Engine = LOCAL,
    sinks: Sequence[str] = (),
) -> list[Row]:
    """Train every member of a sweep; return a row for each, in the order of `config.members`.

    Every member has a folder `out/<name>`. Ended runs are reused, and stopped runs continue. The
    numbers depend neither on this nor on `workers` and `engine`. Rows of several fleets also have
    their settings on every axis.

    Args:
        workers: number of processes, by default one per core; 0 trains in this process.
        engine: where to train; `nclab.engine.ray.Cluster` uses many machines with a shared folder.
        sinks: names of sinks, as for a `Monitor`, that receive every measurement.

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
    """Train the missing runs of a plan; return a row for every run, as `train_sweep` does."""
    run_sinks(sinks, plan.out)  # raises for unknown sinks before training
    slots = check_resources(plan, workers=workers, device=device, engine=engine)
    groups = [
        group for fleet in plan.fleets for group in _groups(fleet, plan, slots, device, sinks)
    ]
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


def check_resources(plan: SweepPlan, *, workers: int | None, device: str, engine: Engine) -> int:
    """Return how many groups train at once; raise if memory or device are not sufficient."""
    if workers is not None:
        slots = max(1, workers)
    else:  # a finished sweep needs no cluster
        slots = engine.slots() if any(fleet.missing for fleet in plan.fleets) else 1
    if _is_cuda(device):
        if not engine.here:
            raise NclabError(f"Expected device 'cpu' on a cluster, got {device!r}.")
        return 1  # one process feeds the device
    for fleet in plan.fleets if engine.here else ():
        shape = fleet.config.shape_for(fleet.samples)
        _check_memory(shape, min(len(fleet.missing), slots * group_size(shape)))
    return slots


def _groups(
    fleet: FleetPlan, plan: SweepPlan, slots: int, device: str, sinks: Sequence[str]
) -> list[Group]:
    """Return so many groups that all fleets together use all slots."""
    size = group_size(fleet.config.shape_for(fleet.samples))
    incomplete = sum(1 for other in plan.fleets if other.missing)
    count = max(-(-slots // max(1, incomplete)), -(-len(fleet.missing) // size))
    # The path is absolute because processes of a cluster have other working folders.
    common = (plan.out.absolute(), device, fleet.test, tuple(sinks))
    return [
        Group(fleet.config, plans, fleet.samples, *common) for plans in deal(fleet.missing, count)
    ]


def _is_cuda(device: str) -> bool:
    """Whether the device is a graphics card; raise if the device does not exist."""
    if device == "cpu":
        return False
    import torch

    if device.split(":")[0] != "cuda" or not torch.cuda.is_available():
        raise NclabError(f"Expected device 'cpu', or 'cuda' if there is one, got {device!r}.")
    return True


def deal(plans: Sequence[RunPlan], groups: int) -> list[tuple[RunPlan, ...]]:
    """Distribute plans in turn over groups, because neighbouring members cost about the same.

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
    """Run a job `train(report, group, *arguments)` for each group; raise what a job raised."""
    jobs = [
        Job(f"group {n} of {len(groups)}", train, (group, *arguments))
        for n, group in enumerate(groups, start=1)
    ]
    done = [0] * len(groups)
    total = sum(group.total for group in groups)
    with bar(f"training {sum(len(g.plans) for g in groups)} models", total=total) as progress_bar:

        def update(progress: Progress) -> None:
            done[progress.index] = progress.step
            progress_bar.update(sum(done))

        results = engine.run_jobs(
            jobs, folder=groups[0].out, workers=workers, tries=TRIES, on_progress=update
        )
    for result in results:
        _raise_failure(result)


def _raise_failure(result: JobResult) -> None:
    """Raise a one-line error for what a user can correct, with the traceback for a bug."""
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


def state_bytes(shape: Shape, members: int) -> int:
    """Return a lower bound of the memory of members, by arithmetic as sizes may be absurd.

    >>> state_bytes(Shape(inputs=2, classes=3, layers=3, width=10), members=2)
    5536
    """
    bias, features = int(shape.bias), shape.features or shape.width
    deep = shape.layers > 2
    between = max(0, shape.layers - 3) * (shape.width + bias) * shape.width
    between += (shape.width + bias) * features if deep else 0
    first = shape.width if deep else features
    ends = (shape.inputs + bias) * first + (features + bias) * shape.classes
    return VECTORS * FLOAT_BYTES * members * (between + ends)


def _check_memory(shape: Shape, members: int) -> None:
    """Raise if the models cannot fit into memory, if the system reports its size."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return
    needed = state_bytes(shape, members)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise NclabError(
            f"Expected models that fit into the memory of {available / 1e9:.3g} GB, got {members} "
            f"of width {shape.width} and {shape.layers} layers, which need {needed / 1e9:.3g} GB "
            "or more. Use a smaller width, fewer layers or fewer models."
        )


def group_size(shape: Shape) -> int:
    """Return how many members train together so that their states fit a core's share of the cache.

    >>> 1 <= group_size(Shape(width=5000)) <= group_size(Shape(width=8)) <= MOST_MEMBERS
    True
    """
    return max(1, min(MOST_MEMBERS, cache_share() // state_bytes(shape, 1)))


def cache_share(caches: Path = CACHES) -> int:
    """Return the bytes of the largest cache divided by the number of cores that share it."""
    shares = [DEFAULT_CACHE]
    for cache in caches.glob("index*"):
        try:
            size, cores = ((cache / name).read_text() for name in ("size", "shared_cpu_map"))
            sharing = bin(int(cores.replace(",", ""), 16)).count("1")
            shares.append(int(size.strip().removesuffix("K")) * 1024 // max(1, sharing))
        except (OSError, ValueError):  # another format, or no such file
            continue
    return max(shares)
