"""VGG-13 networks trained on FashionMNIST: recorded, and resumable to the same bits."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nclab.claims.evidence import RecordedNetworks
from nclab.claims.paper import run_jobs
from nclab.engine import LOCAL, Engine, Job
from nclab.measurement.geometry import geometry
from nclab.monitor import Monitor
from nclab.monitor.schedule import Logarithmic
from nclab.monitor.sinks import RecordSink
from nclab.records import Checkpoint, Run, open_run, read_run
from nclab.records.schema import GEOMETRY, MEASUREMENT, last_layer
from nclab.training.data import fashion_mnist
from nclab.training.models.vgg import VGG13, VGGShape, vgg13
from nclab_papers.ji2022.trainer import Trainer, TrainerRecipe

KIND = "fig3"
"""Kind of the runs, and name of their folder."""
MEASURED = (
    "accuracy",
    "loss",
    "nc2_norm_variation_means",
    "nc2_norm_variation_weights",
    "nc1_within_variation",
    "nc2_equiangularity_means",
    "nc2_equiangularity_weights",
    "nc3_self_duality",
)
"""Metrics that a row of the figure's numbers takes from a measurement."""
KEPT = RecordedNetworks(KIND, MEASURED, all_measurements=True)
CHUNK = 250
"""Images in one forward pass of a measurement."""
PICTURES_PER_DECADE = 4
"""Pictures of the features per factor of ten in epochs."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Config:
    """Data, network and training of one run; no weight decay anywhere."""

    images: int = 1000
    """Training images, equally many per class, chosen by the seed; 60,000 are all."""
    width: float = 0.125
    """Factor on the channels of every layer."""
    batch_norm: bool = True
    """Whether batch norm stands between every convolution and its ReLU."""
    dense: int = 0
    """Outputs of two fully connected layers, times the width; 4096 as published, 0 for none."""
    epochs: int = 200
    """Passes over the images."""
    batch: int = 50
    """Images per step."""
    rate: float = 0.003
    """Learning rate."""
    momentum: float = 0.9
    """Momentum of SGD."""
    clip: float | None = None
    """Largest norm of a gradient; None for no clipping."""
    power: float = 0.0
    """The learning rate grows with (last epoch's loss)^-power."""
    most: float = 1.0
    """Largest factor by which the learning rate grows."""
    per_decade: int = 20
    """Measurements per factor of ten in epochs."""
    checkpoint_every: int = 20
    """Epochs between checkpoints."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of forward passes in training; weights, gradients and measurements are float32."""
    device: Literal["cpu", "auto"] = "cpu"
    """Device; "auto" takes a GPU if there is one."""

    @property
    def variant(self) -> str:
        """Return "plain" for SGD at a constant rate, else "accelerated"."""
        return "plain" if self.clip is None and self.power == 0 else "accelerated"

    @property
    def torch_device(self) -> str:
        """Return the device of the run, "cuda" or "cpu"."""
        return "cuda" if self.device == "auto" and torch.cuda.is_available() else "cpu"

    def recipe(self) -> TrainerRecipe:
        """Return the options of the trainer."""
        return TrainerRecipe(
            batch=self.batch,
            rate=self.rate,
            momentum=self.momentum,
            clip=self.clip,
            power=self.power,
            most=self.most,
        )

    def measured_epochs(self) -> set[int]:
        """Return the measured epochs: 0, epochs evenly spaced in their logarithm, and the last.

        >>> sorted(Config(epochs=30, per_decade=3).measured_epochs())
        [0, 1, 2, 5, 10, 22, 30]
        """
        return {0, self.epochs, *_spaced(self.per_decade, self.epochs)}

    def pictured_epochs(self) -> set[int]:
        """Return the epochs at which the features are also recorded in three dimensions."""
        return {0, self.epochs, *_spaced(PICTURES_PER_DECADE, self.epochs)}

    def described(self) -> dict[str, Any]:
        """Return the fields; `dense` only if it is not 0, because old runs lack it."""
        fields = asdict(self)
        return fields if self.dense else {k: v for k, v in fields.items() if k != "dense"}

    def run_name(self, seed: int) -> str:
        """Return a name that differs for every configuration and seed.

        >>> Config().run_name(0) != Config(epochs=7).run_name(0)
        True
        """
        text = json.dumps(self.described(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"vgg13-{self.variant}-{digest}-seed{seed}"


class PlannedRun(NamedTuple):
    """A run to start or to continue."""

    name: str
    folder: Path
    config: Config
    seed: int


def is_finished(folder: Path) -> bool:
    """Return whether a folder holds a finished run."""
    return folder.exists() and read_run(folder).state == "finished"


def train_runs(runs: Sequence[PlannedRun], *, engine: Engine) -> None:
    """Train networks in the given order, one process each; raise for the first that failed."""
    # Absolute paths, because processes of a cluster have their own working folders.
    jobs = [Job(run.name, train, (run.folder.absolute(), run.config, run.seed)) for run in runs]
    workers = None
    if any(run.config.torch_device != "cpu" for run in runs):
        engine, workers = LOCAL, 1  # one process of the local machine feeds its GPU
    total = sum(run.config.epochs for run in runs)
    folder = runs[0].folder.absolute().parent
    run_jobs(jobs, "VGG-13", engine=engine, total=total, folder=folder, workers=workers)


def train(report: Callable[..., None], folder: Path, config: Config, seed: int) -> None:
    """Start a run, continue it from its last checkpoint, or do nothing if it is finished.

    `report(epoch, epochs)` is called after every epoch.
    """
    described = config.described()
    device = config.torch_device
    with open_run(folder, kind=KIND, config=described, seed=seed, device=device) as run:
        if run.finished:
            return
        training = RecordedTraining(run, config, new_trainer(config, seed=seed))
        checkpoint = run.resume_latest()
        if checkpoint is None:
            training.measure()
        else:
            training.load(checkpoint)
        while training.trainer.epoch < config.epochs:
            training.train_epoch()
            report(training.trainer.epoch, config.epochs)
        run.finish(epochs=config.epochs)


def new_trainer(config: Config, *, seed: int) -> Trainer:
    """Return a trainer with the network and the images that the seed draws."""
    inputs, labels = images(config, seed=seed)
    shape = VGGShape(width=config.width, batch_norm=config.batch_norm, dense=config.dense)
    return Trainer(
        vgg13(shape, seed=seed),
        config.recipe(),
        inputs,
        labels,
        seed=seed,
        device=config.torch_device,
        mixed=config.precision == "bfloat16",
    )


def images(config: Config, *, seed: int) -> tuple[Tensor, Tensor]:
    """Return a balanced subset of images, padded to 32 × 32 and normalised, and its labels."""
    everything = fashion_mnist.load()
    chosen = fashion_mnist.balanced_subset(everything.labels, size=config.images, seed=seed)
    return fashion_mnist.to_inputs(everything.pixels[chosen]), everything.labels[chosen]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Read one row for each measured epoch of a run."""
    view = read_run(folder)
    rows = []
    for record in view.of_kind(MEASUREMENT):
        last = last_layer(record)
        row: dict[str, Any] = {"seed": view.manifest.seed, "epoch": int(record["epoch"])}
        row["step"] = record["step"]
        row |= {name: last[name] for name in MEASURED}
        rows.append(row | {"rate": record["train"]["rate"]})
    return rows


def by_seed(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    """Return the rows of every seed, sorted by epoch.

    >>> by_seed([{"seed": 1, "epoch": 2}, {"seed": 1, "epoch": 1}])
    {1: [{'seed': 1, 'epoch': 1}, {'seed': 1, 'epoch': 2}]}
    """
    seeds = sorted({row["seed"] for row in rows})
    return {
        seed: sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["epoch"])
        for seed in seeds
    }


class RecordedTraining:
    """A trainer, the monitor that measures its network, and the run that records both."""

    def __init__(self, run: Run, config: Config, trainer: Trainer) -> None:
        self.run, self.config, self.trainer = run, config, trainer
        self.rate = config.rate
        self.monitor = Monitor(trainer.model, sinks=RecordSink(self))
        inputs, labels = trainer.inputs.split(CHUNK), trainer.labels.split(CHUNK)
        self.batches = list(zip(inputs, labels, strict=True))

    def append(self, record: dict[str, Any]) -> None:
        """Append a record of the monitor to the run, with the last epoch's learning rate."""
        if record["kind"] == MEASUREMENT:
            record = record | {"train": record["train"] | {"rate": self.rate}}
        self.run.append(record)

    def train_epoch(self) -> None:
        """Train one epoch, then measure and write a checkpoint if they are due."""
        config, trainer = self.config, self.trainer
        self.rate = trainer.train_epoch().rate
        if trainer.epoch in config.measured_epochs():
            self.measure()
        if trainer.epoch % config.checkpoint_every == 0 or trainer.epoch == config.epochs:
            state = {**self.monitor.state_dict(), "history": []}  # the journal has the history
            extra = trainer.extra() | {"monitor": state}
            self.run.checkpoint(trainer.steps, trainer.tensors(), extra)
        self.run.beat(step=trainer.epoch, total=config.epochs)

    def measure(self) -> None:
        """Measure over all training images, in evaluation mode."""
        trainer = self.trainer
        self.monitor.set_progress(epochs=trainer.epoch, steps=trainer.steps)
        report = self.monitor.measure(self.batches)
        if trainer.epoch in self.config.pictured_epochs():
            picture = geometry(*self._features())
            moment = {"step": trainer.steps, "epoch": trainer.epoch}
            self.run.append({"kind": GEOMETRY, **moment, "layer": report.last.layer, **picture})

    def load(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.trainer.load(checkpoint.tensors, checkpoint.extra)
        self.monitor.load_state_dict(checkpoint.extra["monitor"])

    def _features(self) -> tuple[Tensor, Tensor, Tensor]:
        network = self.trainer.model
        assert isinstance(network, VGG13)
        network.eval()
        with torch.no_grad():
            features = torch.cat([network.features(images) for images, _ in self.batches])
        return features, self.trainer.labels, network.classifier.weight


def _spaced(per_decade: int, end: int) -> list[int]:
    schedule = Logarithmic(per_decade)
    return [epoch for epoch in range(1, end) if schedule.due(epoch)]
