"""Forecast of a sweep's time, from timing every kind of network briefly."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.progress import track
from nclab.text import counted, number
from nclab.training.data.samples import Samples
from nclab.training.fleet import Fleet
from nclab.training.sweep.measure import MemberMeasurement, measure_member
from nclab.training.sweep.plan import FleetPlan, SweepPlan
from nclab.training.sweep.train import check_resources

STEPS = 8
"""Number of steps that are timed."""
EPOCH_SECONDS, CHECKPOINT_SECONDS, RUN_SECONDS = 3e-4, 0.01, 0.03
"""Seconds for an epoch's record, for a checkpoint, and for opening, ending and reading a run."""
MOST_VALUES = 12
"""Largest number of values of an axis that a forecast lists."""
TIMES = (("hours", 3600, 5400), ("minutes", 60, 90), ("seconds", 1, 0))
"""Units of time with their seconds and the least time for which they are used."""


@dataclass(frozen=True)
class Forecast:
    """Number of networks that a sweep will train, and the time that this takes."""

    networks: int
    missing: int
    """Networks that have not ended in the folder; the others are reused."""
    fleets: int
    """Combinations of data, shape and recipe."""
    axes: dict[str, list[Any]]
    """Values of every setting that differs."""
    seconds: float
    """Time for the missing networks if all cores are idle."""
    cores: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**vars(self), "hours": self.seconds / 3600}

    def __str__(self) -> str:
        lines = [f"{name}: {_listed(values)}" for name, values in self.axes.items()]
        finished = self.networks - self.missing
        summary = f"{counted(self.networks, 'network')} in {counted(self.fleets, 'fleet')}"
        summary += f", {finished} already trained" if finished else ""
        if self.missing:
            summary += f"; about {_duration(self.seconds)} on {counted(self.cores, 'core')}"
        return "\n".join([*lines, summary])


def forecast(
    plan: SweepPlan, *, workers: int | None = None, device: str = "cpu", engine: Engine = LOCAL
) -> Forecast:
    """Time some steps and one measurement of every kind of missing network; write nothing.

    On a CPU the forecast uses processor time, so it assumes idle cores.
    """
    slots = check_resources(plan, workers=workers, device=device, engine=engine)
    timings: dict[Any, _Timing] = {}
    seconds = 0.0
    for fleet in track([fleet for fleet in plan.fleets if fleet.missing], "timing networks"):
        config, recipe = fleet.config, fleet.config.recipe
        shape = config.shape_for(fleet.samples)
        kind = (shape, recipe.optimizer, recipe.loss, recipe.batch, config.layers, config.norms)
        if kind not in timings:
            timings[kind] = _time_network(fleet, device)
        timing, moments = timings[kind], len(config.measured_epochs)
        rows = len(fleet.samples) + (len(fleet.test) if fleet.test else 0)
        checkpoints = -(-recipe.epochs // config.checkpoint_epochs(fleet.samples))
        seconds += len(fleet.missing) * (
            RUN_SECONDS
            + recipe.epochs * EPOCH_SECONDS
            + checkpoints * CHECKPOINT_SECONDS
            + recipe.epochs * recipe.steps(len(fleet.samples)) * timing.step
            + moments * rows * timing.measured_row
            + moments * (2 if fleet.test else 1) * timing.record
        )
    missing = len(plan.missing)
    cores = max(1, min(slots, missing))
    return Forecast(
        networks=len(plan.runs),
        missing=missing,
        fleets=len(plan.fleets),
        axes=plan.axes,
        seconds=seconds / cores,
        cores=cores,
    )


class _Timing(NamedTuple):
    """Times of one kind of network, in seconds."""

    step: float
    measured_row: float
    """Time of a measurement, divided by the number of samples."""
    record: float
    """Time to convert a measurement to a record."""


def _time_network(fleet: FleetPlan, device: str) -> _Timing:
    """Train and measure one network of a fleet on a few samples with random labels."""
    config, samples = fleet.config, fleet.samples
    shape = config.shape_for(samples)
    rows = min(len(samples), max(STEPS * config.recipe.batch, shape.classes))
    rows = len(samples) if config.recipe.steps(rows) * config.recipe.batch != rows else rows
    labels = torch.arange(rows) % shape.classes  # every class occurs
    # With a tiny rate no network diverges while it is timed.
    recipe = dataclasses.replace(config.recipe, rate=1e-9)
    member = fleet.missing[0].member
    with one_thread():
        probe = Fleet(shape, [member], recipe, samples.inputs[:rows], labels, device=device)
        step = _seconds(probe.train_epoch, device) / recipe.steps(rows)
        model = probe.model(0, statistics=config.statistics)
        inputs = Samples(probe.inputs, probe.labels)
        measured: list[MemberMeasurement] = []
        measuring = _seconds(
            lambda: measured.append(measure_member(model, inputs, layers=config.layers)), device
        )
        fresh = iter(measured)  # a Collapse caches what it has computed
        record = _seconds(lambda: [layer.to_dict() for layer in next(fresh).layers], device)
    return _Timing(step, measuring / rows, record)


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return the shorter of two times, after a first call that may compile."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for _ in range(3):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times[1:])


def _listed(values: list[Any]) -> str:
    texts = [number(value) if type(value) is float else str(value) for value in values]
    more = f", … {len(values)} values" if len(values) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def _duration(seconds: float) -> str:
    """Return a time in its largest suitable unit.

    >>> [_duration(seconds) for seconds in (0.25, 600, 9000, 1e6)]
    ['0.25 seconds', '10 minutes', '2.5 hours', '278 hours']
    """
    unit, size = next((unit, size) for unit, size, least in TIMES if seconds >= least)
    digits = ".0f" if seconds >= 10 * size else ".2g"
    return f"{seconds / size:{digits}} {unit}"
