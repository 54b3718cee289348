"""Training beyond interpolation, measured at the first interpolation and at the end.

A network interpolates if it classifies all of its training data correctly.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.compute import one_thread
from nclab.errors import NclabError
from nclab.measurement import measure
from nclab.metrics import nc4_agreement, nc4_ncc_accuracy
from nclab.records import Checkpoint, open_run, read_run
from nclab.records.schema import EPOCH
from nclab.statistics import SecondPass
from nclab.training.data import fashion_mnist
from nclab.training.data.artificial import Teacher
from nclab.training.data.samples import Samples
from nclab.training.fleet import Fleet, Member, Recipe
from nclab.training.models.mlp import MLP, Shape
from nclab.training.models.vgg import VGG13
from nclab_papers.ji2022.vgg_training import FORMER_OPTIONS, Trainer, new_trainer
from nclab_papers.ji2022.vgg_training import Config as VGGConfig
from nclab_papers.pan2023.networks import Networks

KIND = "terminal"
MOMENT = "moment"
"""Kind of the journal records that hold the results at one moment of training; also the field of
such a record that names the moment."""
BEFORE, AFTER = "before", "after"
"""Names of the moments: the first interpolation, and the end of training."""
Network = Literal["vgg", "mlp"]
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Probabilities of the recorded quantiles of the test margins."""
TRAINED = (
    "accuracy",
    "loss",
    "nc1_within_variation",
    "nc1_trace_ratio",
    "nc2_norm_variation_means",
    "nc2_equiangularity_means",
    "nc3_self_duality",
    "normalised_margin",
)
"""Metrics of the training data that are recorded at both moments."""
CHUNK = 250
"""Number of samples in one forward pass."""
CHECKPOINT_EVERY = 25
"""Number of epochs between checkpoints."""


Model = Callable[[Tensor], Tensor]
"""Differentiable function from inputs to logits."""
PATH_LENGTH = 2.5
"""Length of all steps of the adversary together, divided by the radius of the allowed changes."""


@dataclass(frozen=True)
class Config:
    """Settings of both networks, their training, and the perturbations of their test data."""

    vgg: VGGConfig
    """Settings of VGG-13 on FashionMNIST, as in Figure 3 of ji2022."""
    mlp: Networks
    """Settings of the network of pan2023."""
    layers: int = 6
    weight_decay: float = 1e-3
    """Weight decay of the network of pan2023: the middle one of the seven in the thesis."""
    tested: int = 10_000
    """Number of test samples: images for VGG-13, new samples of the teacher for the network of
    pan2023."""
    perturbed: int = 2000
    """Number of test samples that are perturbed."""
    radii: tuple[float, ...] = (0.02, 0.05)
    """Radii of attacks: largest change of a coordinate, in standard deviations of the inputs."""
    steps: int = 5
    """Number of steps of the adversary."""
    noises: tuple[float, ...] = (0.1, 0.3)
    """Standard deviations of the added noise, divided by the standard deviation of the inputs."""

    def described(self, network: Network) -> dict[str, Any]:
        """Return the settings that the results of a network depend on."""
        irrelevant = ("mlp", "layers", "weight_decay") if network == "vgg" else ("vgg",)
        fields = {k: value for k, value in asdict(self).items() if k not in irrelevant}
        if network == "vgg":
            fields["vgg"] |= FORMER_OPTIONS
        if network == "mlp":
            mlp = fields["mlp"]
            fields["mlp"] = {k: mlp[k] for k in mlp if k not in ("workers", "moments")}
        return {"network": network, **fields}

    def run_name(self, network: Network, seed: int) -> str:
        """Return the name of a run's folder, with a checksum of `described`."""
        text = json.dumps(self.described(network), sort_keys=True)
        return f"{network}-{hashlib.sha256(text.encode()).hexdigest()[:8]}-seed{seed}"

    def epochs(self, network: Network) -> int:
        """Return the number of training epochs."""
        return self.vgg.epochs if network == "vgg" else self.mlp.epochs


class Box(NamedTuple):
    """Range of valid inputs: two numbers, or two tensors with the shape of an input."""

    low: Tensor | float = -torch.inf
    high: Tensor | float = torch.inf

    def clamp(self, inputs: Tensor) -> Tensor:
        """Return the inputs, with every coordinate moved to the nearest valid value."""
        return torch.maximum(
            torch.minimum(inputs, torch.as_tensor(self.high)), torch.as_tensor(self.low)
        )


EVERYTHING = Box()


class Data(NamedTuple):
    """Training samples, test samples, and the range of valid inputs."""

    train: Samples
    test: Samples
    box: Box


class FleetTrainer:
    """Trainer of one network that uses `Fleet`, with the interface of the VGG-13 trainer."""

    def __init__(self, shape: Shape, member: Member, recipe: Recipe, samples: Samples) -> None:
        self.recipe = recipe
        self.fleet = Fleet(shape, [member], recipe, *samples)

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self.fleet.epoch

    @property
    def model(self) -> nn.Module:
        """Copy of the network in evaluation mode."""
        return self.fleet.model(0)

    def train_epoch(self) -> dict[str, float]:
        """Train one epoch; return loss, accuracy and learning rate of its batches."""
        rate = self.recipe.rate_at(self.epoch)
        [stats] = self.fleet.train_epoch()
        if not stats.alive:
            raise NclabError(
                f"Expected finite weights and losses, but training diverged: {stats.why}. "
                "Try another seed."
            )
        return {"loss": stats.loss, "accuracy": stats.accuracy, "rate": rate}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint."""
        return self.fleet.tensors(0)

    def load(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.fleet.load(0, checkpoint.tensors, int(checkpoint.extra["epoch"]))


def prepare_vgg(config: Config, seed: int) -> tuple[Trainer, Data]:
    """Return a trainer of VGG-13, and its data: training and test images of FashionMNIST."""
    trainer = new_trainer(config.vgg, seed=seed)
    everything = fashion_mnist.load(part="test")
    chosen = fashion_mnist.balanced_subset(everything.labels, size=config.tested, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    chosen = chosen[torch.randperm(len(chosen), generator=generator)]
    pixels = everything.pixels[chosen]
    black, white = torch.zeros_like(pixels[:1]), torch.full_like(pixels[:1], 255)
    return trainer, Data(
        Samples(trainer.inputs, trainer.labels),
        Samples(fashion_mnist.to_inputs(pixels), everything.labels[chosen]),
        # The padding is black in both bounds, so it cannot be perturbed.
        Box(fashion_mnist.to_inputs(black)[0], fashion_mnist.to_inputs(white)[0]),
    )


def prepare_mlp(config: Config, seed: int) -> tuple[FleetTrainer, Data]:
    """Return a trainer of the network of pan2023, and its data: samples labelled by a teacher."""
    sizes = config.mlp
    shape = Shape(
        inputs=sizes.inputs, classes=sizes.classes, layers=config.layers, width=sizes.width
    )
    # Both sets are drawn together, so that they have the same teacher and scale of logits.
    together = sizes.samples + config.tested
    drawn = Teacher(inputs=sizes.inputs, classes=sizes.classes, samples=together, seed=seed).draw()
    parts = [sizes.samples, config.tested]
    pairs = zip(drawn.inputs.split(parts), drawn.labels.split(parts), strict=True)
    train, test = (Samples(inputs, labels) for inputs, labels in pairs)
    recipe = Recipe(epochs=sizes.epochs, batch=sizes.batch)
    member = Member("affine", config.weight_decay, seed)
    return FleetTrainer(shape, member, recipe, train), Data(train, test, Box())


def train(
    report: Callable[..., None], folder: Path, config: Config, network: Network, seed: int
) -> None:
    """Train a network, or continue an unfinished run; a finished run stays unchanged."""
    described, epochs = config.described(network), config.epochs(network)
    with one_thread(), open_run(folder, kind=KIND, config=described, seed=seed) as run:
        if run.finished:
            return
        prepare = prepare_vgg if network == "vgg" else prepare_mlp
        training, data = prepare(config, seed)
        checkpoint = run.resume_latest()
        interpolated = checkpoint is not None and bool(checkpoint.extra["interpolated"])
        if checkpoint is not None:
            training.load(checkpoint)
        while training.epoch < epochs:
            stats = training.train_epoch()
            epoch, model = training.epoch, training.model.eval()
            position = {"step": epoch, "epoch": epoch}
            run.append({"kind": EPOCH, **position, **stats})
            if not interpolated and interpolates(model, data.train):
                interpolated = True
                moment = {MOMENT: BEFORE, **measure_moment(model, data, config, seed)}
                run.append({"kind": MOMENT, **position, **moment})
            if epoch == epochs:
                moment = {MOMENT: AFTER, **measure_moment(model, data, config, seed)}
                run.append({"kind": MOMENT, **position, **moment})
            if epoch % CHECKPOINT_EVERY == 0 or epoch == epochs:
                extra = {"epoch": epoch, "interpolated": interpolated}
                run.checkpoint(epoch, training.tensors(), extra)
            run.beat(step=epoch, total=epochs)
            report(epoch, epochs)
        run.finish(epochs=epochs)


def read_rows(folder: Path, network: Network) -> list[dict[str, Any]]:
    """Read the results at both moments from the journal of a run."""
    view = read_run(folder)
    return [
        {"network": network, "seed": view.manifest.seed}
        | {name: value for name, value in record.items() if name not in ("kind", "step")}
        for record in view.of_kind(MOMENT)
    ]


def interpolates(model: nn.Module, samples: Samples) -> bool:
    """Whether every sample is classified correctly; skip the rest after the first error."""
    with torch.no_grad():
        return all(
            bool((logit_gaps(model(inputs), labels) > 0).all())
            for inputs, labels in _chunks(samples)
        )


def measure_moment(model: nn.Module, data: Data, config: Config, seed: int) -> dict[str, Any]:
    """Measure collapse on the training data, and margins and robustness on the test data."""
    train, test, box = data
    collapse = measure(model, list(_chunks(train))).last
    row, classes = collapse.to_row(), collapse.num_classes
    # ji2022, Lemma 3.1 for the best split of the norms: the margin at collapse.
    largest = row["alpha"] * row["beta"] * classes / (classes - 1)
    nearest, gaps = SecondPass(collapse.moments), []
    with torch.no_grad():
        for inputs, labels in _chunks(test):
            assert isinstance(model, VGG13 | MLP)
            hidden = model.features(inputs)
            features = hidden if isinstance(hidden, Tensor) else hidden[-1]
            logits = model.classifier(features)
            gaps.append(logit_gaps(logits, labels))
            nearest.update(features, labels, logits.argmax(1))
    margins = torch.cat(gaps).double()
    perturbed = test.inputs[: config.perturbed], test.labels[: config.perturbed]
    return {
        **{name: row[name] for name in TRAINED},
        "margin": row["margin"] / largest,
        "test_accuracy": float((margins > 0).double().mean()),
        "test_margins": (margins / largest).quantile(torch.tensor(QUANTILES).double()).tolist(),
        "test_agreement": nc4_agreement(nearest),
        "test_centre_accuracy": nc4_ncc_accuracy(nearest),
        "attacked": [
            attacked_accuracy(model, *perturbed, radius=radius, steps=config.steps, box=box)
            for radius in config.radii
        ],
        "noisy": [
            noisy_accuracy(model, *perturbed, size=size, seed=seed, box=box)
            for size in config.noises
        ],
    }


def _chunks(samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(samples.inputs.split(CHUNK), samples.labels.split(CHUNK), strict=True)


def logit_gaps(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (n,) the logit of the label minus the largest other logit.

    >>> logit_gaps(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0])).tolist()
    [1.0]
    """
    correct = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return correct - others.amax(1)


def attacked_accuracy(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    radius: float,
    steps: int = 5,
    box: Box = EVERYTHING,
) -> float:
    """Return the share of samples that stay correct under projected gradient descent.

    Every coordinate changes by at most `radius`. The steps reduce `logit_gaps`, not cross-entropy,
    whose gradient vanishes if the logits are large. The result is an upper bound on the accuracy
    against the best adversary, which may find more errors.
    """
    correct = 0
    for chunk, targets in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
        correct += _survivors(model, chunk, targets, radius, steps, box)
    return correct / len(labels)


def _survivors(
    model: Model, inputs: Tensor, labels: Tensor, radius: float, steps: int, box: Box
) -> int:
    """Count the samples that are correct at the start and after every step of the adversary."""
    moved = inputs
    for step in range(steps + 1):
        moved = moved.detach().requires_grad_(step < steps)
        gaps = logit_gaps(model(moved), labels)
        correct = gaps.detach() > 0
        if step == steps or not correct.any():
            return int(correct.sum())
        (slope,) = torch.autograd.grad(gaps.sum(), moved)
        moved = moved.detach() - PATH_LENGTH * radius / steps * slope.sign()
        moved = box.clamp(moved.clamp(inputs - radius, inputs + radius))
        moved, inputs, labels = moved[correct], inputs[correct], labels[correct]
    raise AssertionError("the loop returns at its last step")


def noisy_accuracy(
    model: Model, inputs: Tensor, labels: Tensor, *, size: float, seed: int, box: Box = EVERYTHING
) -> float:
    """Return the share of samples that are correct with normal noise on every coordinate.

    Args:
        size: standard deviation of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    correct = 0
    with torch.no_grad():
        for chunk, targets in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            noise = torch.randn(chunk.shape, generator=generator)
            logits = model(box.clamp(chunk + size * noise))
            correct += int((logit_gaps(logits, targets) > 0).sum())
    return correct / len(labels)
