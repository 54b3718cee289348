"""One VGG-13 trained on FashionMNIST: recorded, resumable, bit for bit the same."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from nclab.claims.evidence import RecordedNetworks
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
"""What a row of the figure's numbers has from a measurement."""
KEPT = RecordedNetworks(KIND, MEASURED, all_measurements=True)
PART = 250
"""Images in one forward pass of a measurement."""
PICTURES_PER_DECADE = 4
"""Pictures of the features in every tenfold of epochs."""


@dataclass(frozen=True)
class Config:
    """Data, network and training of one run; no weight decay anywhere."""

    images: int = 1000
    """Training images, equally many of each class, chosen by the seed; 60,000 are all."""
    width: float = 0.125
    """Multiplies the channels of every layer."""
    batch_norm: bool = True
    """Batch norm between every convolution and its ReLU."""
    dense: int = 0
    """Outputs of two fully connected layers, times the width; 4096 as published, 0 for none."""
    epochs: int = 200
    """Passes over the images."""
    batch: int = 50
    """Images a step."""
    rate: float = 0.003
    """Learning rate."""
    momentum: float = 0.9
    """Momentum of SGD."""
    clip: float | None = None
    """Largest norm of a gradient; None leaves it as it is."""
    power: float = 0.0
    """The rate grows with (last epoch's loss)^-power."""
    most: float = 1.0
    """The largest factor by which the rate grows."""
    per_decade: int = 20
    """Measurements in every tenfold of epochs."""
    checkpoint_every: int = 20
    """Epochs between checkpoints."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the forward passes in training; weights, gradients and measurements are float32."""
    device: Literal["cpu", "auto"] = "cpu"
    """auto: a GPU if there is one."""

    @property
    def variant(self) -> str:
        """plain: SGD at a constant rate; accelerated: clipped, at a rate that follows the loss."""
        return "plain" if self.clip is None and self.power == 0 else "accelerated"

    @property
    def place(self) -> str:
        """The device a run is made on."""
        return "cuda" if self.device == "auto" and torch.cuda.is_available() else "cpu"

    def recipe(self) -> TrainerRecipe:
        """How the network is trained."""
        return TrainerRecipe(
            batch=self.batch,
            rate=self.rate,
            momentum=self.momentum,
            clip=self.clip,
            power=self.power,
            most=self.most,
        )

    def measured_epochs(self) -> set[int]:
        """The start, then evenly in the logarithm of the epoch, and the end.

        >>> sorted(Config(epochs=30, per_decade=3).measured_epochs())
        [0, 1, 2, 5, 10, 22, 30]
        """
        return {0, self.epochs, *_spaced(self.per_decade, self.epochs)}

    def pictured_epochs(self) -> set[int]:
        """Where the features are drawn in three dimensions, too."""
        return {0, self.epochs, *_spaced(PICTURES_PER_DECADE, self.epochs)}

    def described(self) -> dict[str, Any]:
        """The fields, without those that runs of old did not have and that are as they were."""
        found = asdict(self)
        return found if self.dense else {k: v for k, v in found.items() if k != "dense"}

    def run_name(self, seed: int) -> str:
        """A name that no other config and seed have.

        >>> Config().run_name(0) != Config(epochs=7).run_name(0)
        True
        """
        text = json.dumps(self.described(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"vgg13-{self.variant}-{digest}-seed{seed}"


def train(report: Callable[..., None], folder: Path, config: Config, seed: int) -> None:
    """Make the run, go on with it where it stopped, or leave it as it is if it is finished.

    `report(epoch, epochs)` is told how far it is.
    """
    described = config.described()
    with open_run(folder, kind=KIND, config=described, seed=seed, device=config.place) as run:
        if run.finished:
            return
        training = RecordedTraining(run, config, new_solo(config, seed=seed))
        checkpoint = run.resume_latest()
        if checkpoint is None:
            training.measure()
        else:
            training.load(checkpoint)
        while training.solo.epoch < config.epochs:
            training.train_epoch()
            report(training.solo.epoch, config.epochs)
        run.finish(epochs=config.epochs)


def new_solo(config: Config, *, seed: int) -> Trainer:
    """Network and images as the seed makes them."""
    inputs, labels = images(config, seed=seed)
    shape = VGGShape(width=config.width, batch_norm=config.batch_norm, dense=config.dense)
    return Trainer(
        vgg13(shape, seed=seed),
        config.recipe(),
        inputs,
        labels,
        seed=seed,
        device=config.place,
        mixed=config.precision == "bfloat16",
    )


def images(config: Config, *, seed: int) -> tuple[Tensor, Tensor]:
    """The balanced subset, padded to 32 × 32 and normalised, and its labels."""
    everything = fashion_mnist.load()
    chosen = fashion_mnist.balanced_subset(everything.labels, size=config.images, seed=seed)
    return fashion_mnist.to_inputs(everything.pixels[chosen]), everything.labels[chosen]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """One row for each measured epoch of a run, from its journal."""
    view = read_run(folder)
    found = []
    for record in view.of_kind(MEASUREMENT):
        last = last_layer(record)
        row: dict[str, Any] = {"seed": view.manifest.seed, "epoch": int(record["epoch"])}
        row["step"] = record["step"]
        row |= {name: last[name] for name in MEASURED}
        found.append(row | {"rate": record["train"]["rate"]})
    return found


class RecordedTraining:
    """A network under training, the monitor that measures it, and the run that keeps both."""

    def __init__(self, run: Run, config: Config, solo: Trainer) -> None:
        self.run, self.config, self.solo = run, config, solo
        self.rate = config.rate
        self.monitor = Monitor(solo.model, sinks=RecordSink(self))
        self.parts = list(zip(solo.inputs.split(PART), solo.labels.split(PART), strict=True))

    def append(self, record: dict[str, Any]) -> None:
        """What the monitor records, with the rate of the last epoch."""
        if record["kind"] == MEASUREMENT:
            record = record | {"train": record["train"] | {"rate": self.rate}}
        self.run.append(record)

    def train_epoch(self) -> None:
        """One epoch, measured and kept where that is due."""
        config, solo = self.config, self.solo
        self.rate = solo.train_epoch().rate
        if solo.epoch in config.measured_epochs():
            self.measure()
        if solo.epoch % config.checkpoint_every == 0 or solo.epoch == config.epochs:
            state = {**self.monitor.state_dict(), "history": []}  # the journal has it
            self.run.checkpoint(solo.steps, solo.tensors(), solo.extra() | {"monitor": state})
        self.run.beat(step=solo.epoch, total=config.epochs)

    def measure(self) -> None:
        """Measure over all training images, in evaluation mode."""
        self.monitor.steps, self.monitor.epochs = self.solo.steps, self.solo.epoch
        report = self.monitor.measure(self.parts)
        if self.solo.epoch in self.config.pictured_epochs():
            seen = geometry(*self._features())
            moment = {"step": self.solo.steps, "epoch": self.solo.epoch}
            self.run.append({"kind": GEOMETRY, **moment, "layer": report.last.layer, **seen})

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.solo.load(checkpoint.tensors, checkpoint.extra)
        self.monitor.load_state_dict(checkpoint.extra["monitor"])

    def _features(self) -> tuple[Tensor, Tensor, Tensor]:
        network = self.solo.model
        assert isinstance(network, VGG13)
        network.eval()
        with torch.no_grad():
            features = torch.cat([network.features(images) for images, _ in self.parts])
        return features, self.solo.labels, network.classifier.weight


def _spaced(per_decade: int, end: int) -> list[int]:
    schedule = Logarithmic(per_decade)
    return [epoch for epoch in range(1, end) if schedule.due(epoch)]
