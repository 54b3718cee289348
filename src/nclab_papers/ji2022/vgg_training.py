"""Training of VGG-13 on FashionMNIST, recorded in a run that can be stopped and resumed.

A resumed training gives the same numbers, bit by bit.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.claims.evidence import RecordedNetworks
from nclab.claims.paper import run_jobs
from nclab.engine import LOCAL, Engine, Job
from nclab.errors import NclabError, NclabWarning
from nclab.measurement.geometry import geometry
from nclab.monitor import Logarithmic, Monitor, RecordSink
from nclab.records import Checkpoint, Run, open_run, read_run
from nclab.records.schema import GEOMETRY, MEASUREMENT, last_layer
from nclab.training.data import fashion_mnist
from nclab.training.models.vgg import VGG13, VGGShape, vgg13
from nclab.ulpm.trajectory import QUANTITIES

KIND = "fig3"
"""Kind of the runs, and name of the folder that contains them."""
MEASURED = ("accuracy", "loss", *QUANTITIES)
"""Metrics of a measurement that `read_rows` returns."""
KEPT = RecordedNetworks(KIND, MEASURED, all_measurements=True)
CHUNK = 250
"""Number of images in one forward pass of a measurement."""
PICTURES_PER_DECADE = 4
"""Number of recorded pictures of the features while the epoch grows by a factor of ten."""
MODEL, MOMENTUM, GENERATOR = "model.", "momentum.", "generator"
"""Names of tensors in a checkpoint; the first two are prefixes."""
FORMER_OPTIONS = {"clip": None, "power": 0.0, "most": 1.0, "precision": "float32"}
"""Options that no longer exist, with their defaults. They remain in the manifests and names of
runs, so that runs of older versions are found."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Config:
    """Data, network and training of one run; training has no weight decay."""

    images: int = 1000
    """Number of training images, equally many per class; 60,000 are all. The seed chooses them."""
    width: float = 0.125
    """Factor by which the channels of every layer are multiplied."""
    batch_norm: bool = True
    """Whether batch norm stands between every convolution and its ReLU."""
    dense: int = 0
    """Number of outputs of both hidden fully connected layers at width 1 (4096 as published).
    0 means no such layers."""
    epochs: int = 200
    """Number of training epochs."""
    batch: int = 50
    """Batch size."""
    rate: float = 0.003
    """Learning rate."""
    momentum: float = 0.9
    """Momentum of SGD, without dampening."""
    per_decade: int = 20
    """Number of measurements while the epoch grows by a factor of ten."""
    checkpoint_every: int = 20
    """Epochs between checkpoints."""
    device: Literal["cpu", "auto"] = "cpu"
    """Device; "auto" takes a GPU if there is one."""

    @property
    def torch_device(self) -> str:
        """Return the device of the run, "cuda" or "cpu"."""
        return "cuda" if self.device == "auto" and torch.cuda.is_available() else "cpu"

    def is_due(self, epoch: int, *, per_decade: int) -> bool:
        """Whether an epoch is the first, the last, or one of a series with equal ratios.

        >>> [epoch for epoch in range(31) if Config(epochs=30).is_due(epoch, per_decade=3)]
        [0, 1, 2, 5, 10, 22, 30]
        """
        return epoch in (0, self.epochs) or Logarithmic(per_decade).due(epoch)

    def described(self) -> dict[str, Any]:
        """Return the settings for a run's manifest, which also determine its name.

        `dense` is included only if it is not 0, because older runs do not have it.
        """
        fields = FORMER_OPTIONS | asdict(self)
        return fields if self.dense else {k: v for k, v in fields.items() if k != "dense"}

    def run_name(self, seed: int) -> str:
        """Return a name that differs for every configuration and seed."""
        text = json.dumps(self.described(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"vgg13-plain-{digest}-seed{seed}"


class Trainer:
    """Network in training; its state is the weights, the momentum and the random generator.

    Images are stored with their channels last, which makes convolutions faster on a CPU.
    """

    def __init__(
        self, model: nn.Module, config: Config, inputs: Tensor, labels: Tensor, *, seed: int
    ) -> None:
        device = config.torch_device
        layout = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
        self.model = model.to(device)
        if inputs.ndim == 4:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = config
        self.inputs = inputs.to(device).contiguous(memory_format=layout)
        self.labels = labels.to(device)
        self.epoch = 0
        self._generator = torch.Generator().manual_seed(seed)
        self._optimiser = torch.optim.SGD(
            self.model.parameters(), lr=config.rate, momentum=config.momentum
        )

    @property
    def steps(self) -> int:
        """Return the number of steps so far."""
        return self.epoch * math.ceil(len(self.labels) / self.config.batch)

    def train_epoch(self) -> dict[str, float]:
        """Train on all samples once, in a new random order.

        Return the learning rate, and the mean loss and accuracy over all batches; each batch is
        evaluated before its step.
        """
        self.model.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.labels.device)
        hits = torch.zeros((), dtype=torch.int64, device=self.labels.device)
        order = torch.randperm(len(self.labels), generator=self._generator)
        for rows in order.to(self.labels.device).split(self.config.batch):
            logits = self.model(self.inputs[rows])
            loss = nn.functional.cross_entropy(logits.float(), self.labels[rows])
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
            loss_sum += loss.detach() * len(rows)
            hits += (logits.detach().argmax(1) == self.labels[rows]).sum()
        self.epoch += 1
        loss_mean, accuracy = float(loss_sum) / len(self.labels), int(hits) / len(self.labels)
        if not math.isfinite(loss_mean):
            raise NclabError(
                f"Expected a finite loss, got {loss_mean} in epoch {self.epoch}. "
                "Use a smaller learning rate."
            )
        return {"loss": loss_mean, "accuracy": accuracy, "rate": self.config.rate}

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all tensors of the state for a checkpoint."""
        saved = {MODEL + name: value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            buffer = self._optimiser.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                saved[MOMENTUM + name] = buffer
        saved[GENERATOR] = self._generator.get_state()
        return {name: value.detach().cpu().clone().contiguous() for name, value in saved.items()}

    def load(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint with the result of `tensors` and the epoch."""
        tensors = checkpoint.tensors
        weights = {
            name.removeprefix(MODEL): value
            for name, value in tensors.items()
            if name.startswith(MODEL)
        }
        self.model.load_state_dict(weights)
        self._generator.set_state(tensors[GENERATOR])
        self.epoch = int(checkpoint.extra["epoch"])
        for name, parameter in self.model.named_parameters():
            if (buffer := tensors.get(MOMENTUM + name)) is not None:
                # The layout of the parameter decides the order of sums.
                momentum = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
                self._optimiser.state[parameter]["momentum_buffer"] = momentum


class PlannedRun(NamedTuple):
    """Run that may have to be started or continued."""

    name: str
    folder: Path
    config: Config
    seed: int


def is_finished(folder: Path) -> bool:
    """Whether a folder contains a finished run."""
    return folder.exists() and read_run(folder).state == "finished"


def plan_runs(config: Config, seeds: Sequence[int], out: Path, label: str = "") -> list[PlannedRun]:
    """Return a planned run for each seed.

    Args:
        out: folder below which the runs are.
        label: text before the seed in the names of the jobs, as shown while training.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    return [
        PlannedRun(f"{label}seed {seed}", out / KIND / config.run_name(seed), config, seed)
        for seed in seeds
    ]


def train_missing(runs: Sequence[PlannedRun], *, engine: Engine) -> None:
    """Train unfinished networks in the given order, one process each; raise if one fails."""
    missing = [run for run in runs if not is_finished(run.folder)]
    if not missing:
        return
    fashion_mnist.load()  # raises one clear error before any process starts
    if any(run.config.device == "auto" for run in missing) and not torch.cuda.is_available():
        warnings.warn(
            "No GPU found: at full width this takes weeks on a CPU. It can be stopped and started "
            "again; preset quick takes minutes.",
            NclabWarning,
            stacklevel=3,
        )
    # Absolute paths, because processes of a cluster have their own working folders.
    jobs = [Job(run.name, train, (run.folder.absolute(), run.config, run.seed)) for run in missing]
    workers = None
    if any(run.config.torch_device != "cpu" for run in missing):
        engine, workers = LOCAL, 1  # one process of the local machine feeds its GPU
    total = sum(run.config.epochs for run in missing)
    folder = missing[0].folder.absolute().parent
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
            training.trainer.load(checkpoint)
            training.monitor.load_state_dict(checkpoint.extra["monitor"])
        while training.trainer.epoch < config.epochs:
            training.train_epoch()
            report(training.trainer.epoch, config.epochs)
        run.finish(epochs=config.epochs)


def new_trainer(config: Config, *, seed: int) -> Trainer:
    """Return a trainer with the network and the balanced subset of images that the seed draws."""
    everything = fashion_mnist.load()
    chosen = fashion_mnist.balanced_subset(everything.labels, size=config.images, seed=seed)
    inputs, labels = fashion_mnist.to_inputs(everything.pixels[chosen]), everything.labels[chosen]
    shape = VGGShape(width=config.width, batch_norm=config.batch_norm, dense=config.dense)
    return Trainer(vgg13(shape, seed=seed), config, inputs, labels, seed=seed)


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
    """Return the rows of every seed, sorted by epoch."""
    seeds = sorted({row["seed"] for row in rows})
    return {
        seed: sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["epoch"])
        for seed in seeds
    }


class RecordedTraining:
    """Trainer with a monitor that measures its network and a run that records the results."""

    def __init__(self, run: Run, config: Config, trainer: Trainer) -> None:
        self.run, self.config, self.trainer = run, config, trainer
        self.monitor = Monitor(trainer.model, sinks=RecordSink(self))
        inputs, labels = trainer.inputs.split(CHUNK), trainer.labels.split(CHUNK)
        self.batches = list(zip(inputs, labels, strict=True))

    def append(self, record: dict[str, Any]) -> None:
        """Append a record of the monitor to the run; add the learning rate to measurements."""
        if record["kind"] == MEASUREMENT:
            record = record | {"train": record["train"] | {"rate": self.config.rate}}
        self.run.append(record)

    def train_epoch(self) -> None:
        """Train one epoch, then measure and write a checkpoint if they are due."""
        config, trainer = self.config, self.trainer
        trainer.train_epoch()
        if config.is_due(trainer.epoch, per_decade=config.per_decade):
            self.measure()
        if trainer.epoch % config.checkpoint_every == 0 or trainer.epoch == config.epochs:
            state = {**self.monitor.state_dict(), "history": []}  # the journal has the history
            extra = {"epoch": trainer.epoch, "monitor": state}
            self.run.checkpoint(trainer.steps, trainer.tensors(), extra)
        self.run.beat(step=trainer.epoch, total=config.epochs)

    def measure(self) -> None:
        """Measure the network on all training images, in evaluation mode."""
        trainer = self.trainer
        self.monitor.set_progress(epochs=trainer.epoch, steps=trainer.steps)
        report = self.monitor.measure(self.batches)
        if self.config.is_due(trainer.epoch, per_decade=PICTURES_PER_DECADE):
            network = trainer.model
            assert isinstance(network, VGG13)
            network.eval()
            with torch.no_grad():
                features = torch.cat([network.features(images) for images, _ in self.batches])
            picture = geometry(features, trainer.labels, network.classifier.weight)
            moment = {"step": trainer.steps, "epoch": trainer.epoch}
            self.run.append({"kind": GEOMETRY, **moment, "layer": report.last.layer, **picture})
