"""How long a sweep will take and how much it will write, from a short look at every network."""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.progress import track
from nclab.records.run import KEPT
from nclab.text import number
from nclab.training.data.samples import Samples
from nclab.training.fleet import fleet_for
from nclab.training.sweep.measure import Measured, measure_member
from nclab.training.sweep.plan import FleetPlan, SweepPlan
from nclab.training.sweep.train import check_place

STEPS = 8
"""So many steps are timed."""
EPOCH_SECONDS, CHECKPOINT_SECONDS, RUN_SECONDS = 3e-4, 0.01, 0.03
"""What an epoch's record, a checkpoint, and opening, ending and reading a run add."""
EPOCH_BYTES, RUN_BYTES = 160, 3 * 4096
"""A line of the journal; manifest, state and lock in blocks of a disk."""
SHOWN = 12
"""Values of an axis that a plan lists."""


@dataclass(frozen=True)
class Forecast:
    """What a sweep will train, for how long, and what it will leave on disk."""

    networks: int
    missing: int
    """Networks that have not ended in the folder; the others are reused."""
    fleets: int
    """Combinations of data, shape and recipe."""
    axes: dict[str, list[Any]]
    """Every setting that differs with its values."""
    seconds: float
    """Of the missing networks on all cores, if nothing else runs on them."""
    cores: int
    bytes: int
    """What the missing networks will write."""
    free: int
    """Bytes that the disk has left."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**vars(self), "hours": self.seconds / 3600}

    def __str__(self) -> str:
        lines = [f"{name}: {_listed(values)}" for name, values in self.axes.items()]
        there = self.networks - self.missing
        reused = f", {there} of them there already" if there else ""
        lines.append(
            f"{_count(self.networks, 'network')} in {_count(self.fleets, 'fleet')}{reused}"
        )
        if self.missing:
            lines[-1] += (
                f"; about {duration(self.seconds)} on {_count(self.cores, 'core')}, "
                f"{size(self.bytes)} on disk"
            )
        if self.bytes > self.free:
            lines.append(f"The disk has only {size(self.free)} left.")
        return "\n".join(lines)


def forecast(
    plan: SweepPlan, *, workers: int | None = None, device: str = "cpu", engine: Engine = LOCAL
) -> Forecast:
    """A look at every kind of network that is missing: some steps and one measurement are timed.

    By processor time, so that it says what idle cores would take; nothing is written.
    """
    slots = check_place(plan, workers=workers, device=device, engine=engine)
    looks: dict[Any, _Look] = {}
    seconds = written = 0.0
    for fleet in track([one for one in plan.fleets if one.missing], "timing networks"):
        config, recipe = fleet.config, fleet.config.recipe
        shape = config.shape_for(fleet.samples)
        kind = (shape, recipe.optimizer, recipe.loss, recipe.batch, config.layers, config.norms)
        if kind not in looks:
            looks[kind] = _look(fleet, device)
        look, moments = looks[kind], len(config.measured_epochs)
        rows = len(fleet.samples) + (len(fleet.test) if fleet.test else 0)
        steps = recipe.epochs * recipe.steps(len(fleet.samples))
        saved = -(-recipe.epochs // config.checkpoint_epochs(fleet.samples))
        each = RUN_SECONDS + recipe.epochs * EPOCH_SECONDS + saved * CHECKPOINT_SECONDS
        each += steps * look.step
        each += moments * (rows * look.measured_row + look.recorded * (2 if fleet.test else 1))
        seconds += len(fleet.missing) * each
        kept = min(KEPT, saved)
        parts = look.record_bytes + (look.layer_bytes if fleet.test else 0)
        one = RUN_BYTES + _blocks(recipe.epochs * EPOCH_BYTES + moments * parts)
        written += len(fleet.missing) * (one + kept * _blocks(look.state_bytes))
    missing = len(plan.missing)
    cores = max(1, min(slots, missing))
    return Forecast(
        networks=len(plan.runs),
        missing=missing,
        fleets=len(plan.fleets),
        axes=plan.axes,
        seconds=seconds / cores,
        cores=cores,
        bytes=round(written),
        free=shutil.disk_usage(_existing(plan.out)).free,
    )


class _Look(NamedTuple):
    """One network, looked at for a moment."""

    step: float
    """Seconds of a step."""
    measured_row: float
    """Seconds of a measurement for each sample."""
    recorded: float
    """Seconds until a measurement is a record."""
    state_bytes: int
    layer_bytes: int
    record_bytes: int


def _look(fleet: FleetPlan, device: str) -> _Look:
    config, samples = fleet.config, fleet.samples
    shape = config.shape_for(samples)
    rows = min(len(samples), max(STEPS * config.recipe.batch, shape.classes))
    rows = len(samples) if config.recipe.steps(rows) * config.recipe.batch != rows else rows
    labels = torch.arange(rows) % shape.classes  # whatever they are, if only all are there
    # Hardly any rate, so that nothing diverges while it is timed.
    recipe = dataclasses.replace(config.recipe, rate=1e-9)
    member = fleet.missing[0].member
    with one_thread():
        probe = fleet_for(shape, [member], recipe, samples.inputs[:rows], labels, device=device)
        step = _seconds(probe.train_epoch, device) / recipe.steps(rows)
        model = probe.model(0, statistics=config.statistics)
        seen = Samples(probe.inputs, probe.labels)
        found: list[Measured] = []
        row = _seconds(
            lambda: found.append(measure_member(model, seen, layers=config.layers)), device
        )
        fresh = iter(found)  # a collapse keeps what it has once worked out
        recorded = _seconds(lambda: [one.to_dict() for one in next(fresh).layers], device)
    state = sum(one.numel() * one.element_size() for one in probe.tensors(0).values())
    layers = len(json.dumps([one.to_dict() for one in found[-1].layers]))
    record = layers + len(json.dumps(found[-1].geometry))
    return _Look(step, row / rows, recorded, state, layers, record)


def _seconds(work: Callable[[], object], device: str) -> float:
    """The better of two after a first that may compile."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = []
    for _ in range(3):
        begun = clock()
        work()
        found.append(clock() - begun)
    return min(found[1:])


def _blocks(count: float) -> int:
    return -(-int(count) // 4096) * 4096


def _existing(folder: Path) -> Path:
    """The folder, or the one in which it will be made."""
    place = folder.absolute()
    return next(one for one in (place, *place.parents) if one.exists())


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(values: list[Any]) -> str:
    some = [number(one) if type(one) is float else str(one) for one in values[:SHOWN]]
    more = f", … {len(values)} values" if len(values) > SHOWN else ""
    return ", ".join(some) + more


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.25), duration(600), duration(9000), duration(1e6)
    ('0.25 seconds', '10 minutes', '2.5 hours', '278 hours')
    """
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{_digits(seconds / length)} {unit}"
    return f"{_digits(seconds)} seconds"


def size(count: float) -> str:
    """Bytes in the unit that suits them.

    >>> size(1200), size(760_000), size(3.45e9)
    ('1.2 kB', '760 kB', '3.5 GB')
    """
    for unit, power in (("GB", 1e9), ("MB", 1e6)):
        if count >= power:
            return f"{_digits(count / power)} {unit}"
    return f"{_digits(count / 1e3)} kB"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
