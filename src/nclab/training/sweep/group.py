"""Training and measurement of a group of members in one process, continuing their records."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from nclab.compute import one_thread
from nclab.engine import ReportStep
from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
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
from nclab.training.fleet import EpochStats, Fleet
from nclab.training.fleet.fleet import choose_backend
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.measure import measure_member
from nclab.training.sweep.rows import TEST, summary


@dataclass(frozen=True)
class Group:
    """Members that one process trains epoch by epoch."""

    config: SweepConfig
    plans: tuple[RunPlan, ...]
    samples: Samples
    out: Path
    device: str = "cpu"
    test: Samples | None = None
    """Test samples, measured against the class means of the training samples."""

    @property
    def steps(self) -> int:
        """Number of steps of one member in one epoch."""
        return self.config.recipe.steps(len(self.samples))

    @property
    def total(self) -> int:
        """Number of steps of all members together in the whole training."""
        return self.steps * self.config.recipe.epochs * len(self.plans)


def train_group(report: ReportStep, group: Group) -> None:
    """Train every member to its end, from its last checkpoint; report the steps of all members."""
    done = 0

    def on_steps(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, group.total)

    with one_thread(), ExitStack() as stack:
        runs = [stack.enter_context(_open(group, plan)) for plan in group.plans]
        for start, indices in resume_points([run.steps() for run in runs]):
            _Training(group, [runs[index] for index in indices], on_steps).run(start)


def resume_points(steps: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield a step, and the indices of the members that resume from their checkpoint at this step.

    All members resume together at the last step at which every member has a checkpoint. If there is
    no such step, each member resumes at its own last checkpoint, or at step 0 without checkpoints.

    Args:
        steps: for every member, the steps of its checkpoints.

    >>> list(resume_points([[10, 20], [20, 30]]))
    [(20, [0, 1])]
    >>> list(resume_points([[10, 20], [30, 40], [10, 20], []]))
    [(0, [3]), (20, [0, 2]), (40, [1])]
    """
    common = set.intersection(*(set(checkpoints) for checkpoints in steps))
    last = [max(common) if common else max(checkpoints, default=0) for checkpoints in steps]
    for start in sorted(set(last)):
        yield start, [index for index, step in enumerate(last) if step == start]


def _open(group: Group, plan: RunPlan) -> Run:
    return open_run(
        group.out / plan.name,
        kind="fleet",
        config=plan.config,
        seed=plan.member.seed,
        device=group.device,
        backend=choose_backend("auto", torch.device(group.device)),
    )


class _Training:
    """Training of members that are at the same epoch."""

    def __init__(self, group: Group, runs: list[Run], on_steps: Callable[[int], None]) -> None:
        config = group.config
        plans = {plan.name: plan for plan in group.plans}
        self.group = group
        self.runs = runs
        self.on_steps = on_steps
        self.measured = set(config.measured_epochs)
        self.epochs = config.recipe.epochs
        self.checkpoint_every = config.checkpoint_epochs(group.samples)
        self.total = self.epochs * group.steps
        self.ended = [False] * len(runs)
        self.fleet = Fleet(
            config.shape_for(group.samples),
            [plans[run.folder.name].member for run in runs],
            config.recipe,
            *group.samples,
            device=group.device,
        )

    def run(self, start: int) -> None:
        """Train from the checkpoint at a step to the end."""
        checkpoints = [run.resume(start) for run in self.runs]
        for index, checkpoint in enumerate(checkpoints):
            if checkpoint is not None:
                epoch, why = start // self.group.steps, checkpoint.extra.get("why", "")
                self.fleet.load(index, checkpoint.tensors, epoch, why)
        for index, checkpoint in enumerate(checkpoints):  # a run killed just before its end
            self._end_if_over(index, checkpoint.extra.get("why") if checkpoint else None)
        self.on_steps(start * len(self.runs))
        while not all(self.ended):
            rate = self.group.config.recipe.rate_at(self.fleet.epoch)
            for index, stats in enumerate(self.fleet.train_epoch()):
                if not self.ended[index]:
                    self._record(index, stats, rate)
            self.on_steps(self.group.steps * len(self.runs))

    def _record(self, index: int, stats: EpochStats, rate: float) -> None:
        """Write the epoch of one member; a diverged member keeps its last finite state."""
        run, epoch = self.runs[index], self.fleet.epoch
        step = epoch * self.group.steps
        train: Train = {}
        if stats.alive:
            train = {"loss": stats.loss, "accuracy": stats.accuracy, "rate": rate}
            run.append({"kind": EPOCH, "step": step, "epoch": epoch, **train})
        if epoch in self.measured or not stats.alive:
            self._measure(index, epoch if stats.alive else epoch - 1, train)
        over = epoch == self.epochs or not stats.alive
        if over or epoch % self.checkpoint_every == 0:
            why = {} if stats.alive else {"why": stats.why}
            run.checkpoint(step, self.fleet.tensors(index), {"epoch": epoch, **why})
        run.beat(step=step, total=self.total, epoch=epoch, epochs=self.epochs)
        self._end_if_over(index, stats.why or None)

    def _end_if_over(self, index: int, why: str | None) -> None:
        """End a run that is complete or failed.

        The summary is computed from the journal alone. If the process is killed before the end of
        the run is written, the continued run therefore writes the same summary.
        """
        if why is None and self.fleet.epoch < self.epochs:
            return
        run = self.runs[index]
        records = read_run(run.folder, kinds=(MEASUREMENT,)).records
        last = {split_of(record): record for record in records}
        numbers = summary(last.get(TRAIN), last.get(TEST))
        if self.group.config.recipe.loss != "cross_entropy":  # `loss` is always cross-entropy
            numbers["trained_loss"] = last.get(TRAIN, {}).get("train", {}).get("loss")
        if why is None:
            run.finish(**numbers)
        else:
            run.fail(**{**numbers, "why": why})
        self.ended[index] = True

    def _measure(self, index: int, epoch: int, train: Train) -> None:
        """Measure a member over training and test samples, and write the records."""
        config, run = self.group.config, self.runs[index]
        step = epoch * self.group.steps
        record = MeasurementRecord(kind=MEASUREMENT, step=step, epoch=epoch, layers=[], train=train)
        model = self.fleet.model(index, statistics=config.statistics)
        samples = Samples(self.fleet.inputs, self.fleet.labels)
        try:
            measured = measure_member(model, samples, layers=config.layers)
            test_layers: list[Collapse] = []
            if (test := self.group.test) is not None:
                inputs, labels = test.inputs.to(samples.inputs), test.labels.to(samples.labels)
                test_layers = measure_member(
                    model,
                    Samples(inputs, labels),
                    layers=config.layers,
                    reference=measured.layers,
                ).layers
        except DataError as error:  # features that overflow have no geometry
            run.append({**record, "why": str(error)})
            return
        record["layers"] = [collapse.to_dict() for collapse in measured.layers]
        run.append(record)
        if test_layers:
            layers = [collapse.to_dict() for collapse in test_layers]
            run.append({**record, "split": TEST, "layers": layers, "train": {}})
        run.append({"kind": GEOMETRY, "step": step, "epoch": epoch, **measured.geometry})
