"""Trains and measures a group of members in one process, from wherever their records stand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from nclab.compute import one_thread
from nclab.errors import DataError, NclabError
from nclab.measurement.collapse import Collapse
from nclab.measurement.report import Report
from nclab.monitor.event import Event
from nclab.monitor.sinks import SinkCalls, named_sink
from nclab.records import Run, open_run, read_run
from nclab.records.schema import (
    EPOCH,
    GEOMETRY,
    MEASUREMENT,
    TRAIN,
    MeasurementRecord,
    Train,
    split_of,
)
from nclab.training.data.samples import Samples
from nclab.training.fleet import EpochStats, fleet_for
from nclab.training.fleet.backend import choose_backend
from nclab.training.fleet.module_fleet import needs_autograd
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.measure import measure_member
from nclab.training.sweep.rows import TEST, summary

Tell = Callable[[int], None]
"""Is told the model-steps done since the last time."""


@dataclass(frozen=True)
class Group:
    """Members that one process trains in lock-step."""

    config: SweepConfig
    plans: tuple[RunPlan, ...]
    samples: Samples
    out: Path
    device: str = "cpu"
    test: Samples | None = None
    """Held out; measured with the class means of the samples."""
    sinks: tuple[str, ...] = ()
    """Names of sinks that are told every measurement; {run} and {folder} are those of a run."""

    @property
    def steps(self) -> int:
        """Steps of one member in one epoch."""
        return self.config.recipe.steps(len(self.samples))

    @property
    def total(self) -> int:
        """Model-steps of the whole group."""
        return self.steps * self.config.recipe.epochs * len(self.plans)


def train_group(group: Group, tell: Tell = lambda steps: None) -> None:
    """Train every member to its end; what is on disk already is not done again."""
    with one_thread(), ExitStack() as stack:
        runs = [stack.enter_context(_open(group, plan)) for plan in group.plans]
        for start, indices in meeting_points([run.steps() for run in runs]):
            _Training(group, [runs[index] for index in indices], tell).run(start)


def run_sinks(words: Sequence[str], folder: Path) -> SinkCalls:
    """The sinks of one run; names of runs and folders take the place of {run} and {folder}."""
    names = (one.replace("{run}", folder.name).replace("{folder}", str(folder)) for one in words)
    return SinkCalls(named_sink(name) for name in names)


def meeting_points(steps: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
    """Where to resume whom: the last step that all have, else by the last step of each.

    >>> list(meeting_points([[10, 20], [20, 30]]))
    [(20, [0, 1])]
    >>> list(meeting_points([[10, 20], [30, 40], [10, 20], []]))
    [(0, [3]), (20, [0, 2]), (40, [1])]
    """
    common = set.intersection(*(set(own) for own in steps))
    last = [max(common) if common else max(own, default=0) for own in steps]
    for start in sorted(set(last)):
        yield start, [index for index, own in enumerate(last) if own == start]


def _open(group: Group, plan: RunPlan) -> Run:
    return open_run(
        group.out / plan.name,
        kind="fleet",
        config=plan.config,
        seed=plan.member.seed,
        device=group.device,
        backend=_backend(group),
    )


def _backend(group: Group) -> str:
    recipe = group.config.recipe
    if needs_autograd(group.config.shape, recipe):
        return "autograd"
    return choose_backend("auto", torch.device(group.device), recipe)


class _Training:
    """Some members under way, at the same epoch."""

    def __init__(self, group: Group, runs: list[Run], tell: Tell) -> None:
        config = group.config
        plans = {plan.name: plan for plan in group.plans}
        self.group = group
        self.runs = runs
        self.tell = tell
        self.measured = set(config.measured_epochs)
        self.epochs = config.recipe.epochs
        self.every = config.checkpoint_epochs(group.samples)
        self.total = self.epochs * group.steps
        self.ended = [False] * len(runs)
        self.sinks = [run_sinks(group.sinks, run.folder) for run in runs]
        self.fleet = fleet_for(
            config.shape_for(group.samples),
            [plans[run.folder.name].member for run in runs],
            config.recipe,
            *group.samples,
            device=group.device,
        )

    def run(self, start: int) -> None:
        """From a checkpoint to the end."""
        checkpoints = [run.resume(start) for run in self.runs]
        for index, checkpoint in enumerate(checkpoints):
            if checkpoint is not None:
                epoch, why = start // self.group.steps, checkpoint.extra.get("why", "")
                self.fleet.load(index, checkpoint.tensors, epoch, why)
        for index, checkpoint in enumerate(checkpoints):  # was it killed just before its end?
            self._end_if_over(index, checkpoint.extra.get("why") if checkpoint else None)
        self.tell(start * len(self.runs))
        while not all(self.ended):
            rate = self.group.config.recipe.rate_at(self.fleet.epoch)
            for index, stats in enumerate(self.fleet.train_epoch()):
                if not self.ended[index]:
                    self._record(index, stats, rate)
            self.tell(self.group.steps * len(self.runs))

    def _record(self, index: int, stats: EpochStats, rate: float) -> None:
        """What one member's epoch leaves on disk; a diverged one keeps its last finite state."""
        run, epoch = self.runs[index], self.fleet.epoch
        step = epoch * self.group.steps
        train: Train = {}
        if stats.alive:
            train = {"loss": stats.loss, "accuracy": stats.accuracy, "rate": rate}
            run.append({"kind": EPOCH, "step": step, "epoch": epoch, **train})
        if epoch in self.measured or not stats.alive:
            self._measure(index, epoch if stats.alive else epoch - 1, train)
        over = epoch == self.epochs or not stats.alive
        if over or epoch % self.every == 0:
            why = {} if stats.alive else {"why": stats.why}
            run.checkpoint(step, self.fleet.tensors(index), {"epoch": epoch, **why})
        run.beat(step=step, total=self.total, epoch=epoch, epochs=self.epochs)
        self._end_if_over(index, stats.why or None)

    def _end_if_over(self, index: int, why: str | None) -> None:
        """The end is written from the journal alone, so that it may follow a kill."""
        if why is None and self.fleet.epoch < self.epochs:
            return
        run = self.runs[index]
        records = read_run(run.folder, kinds=(MEASUREMENT,)).records
        last = {split_of(record): record for record in records}
        found = summary(last.get(TRAIN), last.get(TEST))
        if self.group.config.recipe.loss != "cross_entropy":  # which `loss` is, whatever is trained
            found["trained_loss"] = last.get(TRAIN, {}).get("train", {}).get("loss")
        self.sinks[index].close(None if why is None else NclabError(why))
        if why is None:
            run.finish(**found)
        else:
            run.fail(**{**found, "why": why})
        self.ended[index] = True

    def _measure(self, index: int, epoch: int, train: Train) -> None:
        config, run = self.group.config, self.runs[index]
        step = epoch * self.group.steps
        record = MeasurementRecord(kind=MEASUREMENT, step=step, epoch=epoch, layers=[], train=train)
        model = self.fleet.model(index, statistics=config.statistics)
        samples = Samples(self.fleet.inputs, self.fleet.labels)
        try:
            measured = measure_member(model, samples, layers=config.layers)
            held_out = self._measure_test(model, measured.layers)
        except DataError as error:  # features that overflow have no geometry
            run.append({**record, "why": str(error)})
            return
        record["layers"] = [collapse.to_dict() for collapse in measured.layers]
        run.append(record)
        self._tell(index, step, epoch, measured.layers, TRAIN)
        if held_out:
            self._tell(index, step, epoch, held_out, TEST)
            layers = [collapse.to_dict() for collapse in held_out]
            run.append({**record, "split": TEST, "layers": layers, "train": {}})
        run.append({"kind": GEOMETRY, "step": step, "epoch": epoch, **measured.geometry})

    def _tell(self, index: int, step: int, epoch: int, layers: list[Collapse], split: str) -> None:
        """Hand a measurement to the sinks of a run, as a monitor would."""
        if self.group.sinks:
            report = Report(tuple(layers), "classifier", layers[-1].samples, {}, (), split)
            event = Event(step, epoch, "loader", report, split=split)
            self.sinks[index](replace(event, total_steps=self.total, total_epochs=self.epochs))

    def _measure_test(self, model: nn.Module, train: Sequence[Collapse]) -> list[Collapse]:
        """The same layers over the held-out samples; nothing where there are none."""
        test = self.group.test
        if test is None:
            return []
        samples = Samples(test.inputs.to(self.fleet.inputs), test.labels.to(self.fleet.labels))
        layers = self.group.config.layers
        return measure_member(model, samples, layers=layers, reference=train).layers
