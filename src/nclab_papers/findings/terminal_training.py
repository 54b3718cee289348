"""One network trained on after interpolation: looked at when it begins, and at the end."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

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
from nclab_papers.findings.perturbation import Box, attacked_accuracy, logit_gaps, noisy_accuracy
from nclab_papers.ji2022.vgg_training import Config as Training
from nclab_papers.ji2022.vgg_training import new_trainer
from nclab_papers.pan2023.networks import Networks

KIND = "terminal"
MOMENT = "moment"
"""The kind of the record of a moment."""
BEFORE, AFTER = "before", "after"
Network = Literal["vgg", "mlp"]
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the test margins."""
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
"""What a moment has from the measurement of the training data."""
PART = 250
"""Samples in one forward pass."""
CHECKPOINT_EVERY = 25
"""Epochs."""


@dataclass(frozen=True)
class Config:
    """Both networks, their training and what is tried on their test data."""

    vgg: Training
    """VGG-13 on FashionMNIST, as for Figure 3 of ji2022."""
    mlp: Networks
    """The thesis's network."""
    layers: int = 6
    weight_decay: float = 1e-3
    """Of the thesis's network: the middle of its seven."""
    tested: int = 10_000
    """Test images, and fresh samples of the teacher."""
    perturbed: int = 2000
    """The first so many of them are moved."""
    radii: tuple[float, ...] = (0.02, 0.05)
    """How far an adversary moves a coordinate, in deviations of the inputs."""
    steps: int = 5
    """Of the adversary."""
    noises: tuple[float, ...] = (0.1, 0.3)
    """Deviations of the noise, in those of the inputs."""

    def described(self, network: Network) -> dict[str, Any]:
        """The fields that a network of this kind depends on."""
        found = asdict(self)
        drop = ("mlp", "layers", "weight_decay") if network == "vgg" else ("vgg",)
        kept = {name: value for name, value in found.items() if name not in drop}
        if network == "mlp":  # how many processes train changes nothing
            kept["mlp"] = {k: v for k, v in kept["mlp"].items() if k not in ("workers", "moments")}
        return {"network": network, **kept}

    def run_name(self, network: Network, seed: int) -> str:
        """A name that no other config and seed have."""
        text = json.dumps(self.described(network), sort_keys=True)
        return f"{network}-{hashlib.sha256(text.encode()).hexdigest()[:8]}-seed{seed}"

    def epochs(self, network: Network) -> int:
        """Of the training."""
        return self.vgg.epochs if network == "vgg" else self.mlp.epochs


class Data(NamedTuple):
    """What a network learns, what it is tested on, and what inputs can be."""

    train: Samples
    test: Samples
    box: Box


class Course(Protocol):
    """A network under training."""

    data: Data

    @property
    def epoch(self) -> int:
        """Epochs done."""

    def train_epoch(self) -> dict[str, float]:
        """One more; loss, accuracy and rate of its batches."""

    def model(self) -> nn.Module:
        """The network in evaluation mode."""

    def tensors(self) -> dict[str, Tensor]:
        """What it needs to go on, besides `extra`."""

    def extra(self) -> dict[str, Any]:
        """The numbers among it."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""


class VGGCourse:
    """VGG-13 on images of FashionMNIST, tested on others."""

    def __init__(self, config: Config, seed: int) -> None:
        self._solo = new_trainer(config.vgg, seed=seed)
        everything = fashion_mnist.load(part="test")
        chosen = _mixed_subset(everything.labels, config.tested, seed)
        pixels = everything.pixels[chosen]
        black, white = torch.zeros_like(pixels[:1]), torch.full_like(pixels[:1], 255)
        self.data = Data(
            Samples(self._solo.inputs, self._solo.labels),
            Samples(fashion_mnist.to_inputs(pixels), everything.labels[chosen]),
            # What is padded is black in both, and so cannot be moved.
            Box(fashion_mnist.to_inputs(black)[0], fashion_mnist.to_inputs(white)[0]),
        )

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self._solo.epoch

    def train_epoch(self) -> dict[str, float]:
        """One more; loss, accuracy and rate of its batches."""
        return self._solo.train_epoch()._asdict()

    def model(self) -> nn.Module:
        """The network in evaluation mode, until it is trained on."""
        return self._solo.model.eval()

    def tensors(self) -> dict[str, Tensor]:
        """What it needs to go on."""
        return self._solo.tensors()

    def extra(self) -> dict[str, Any]:
        """The numbers among it."""
        return self._solo.extra()

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""
        self._solo.load(checkpoint.tensors, checkpoint.extra)


class MLPCourse:
    """The thesis's network on samples of a teacher, tested on others of the same teacher."""

    def __init__(self, config: Config, seed: int) -> None:
        sizes = config.mlp
        shape = Shape(
            inputs=sizes.inputs, classes=sizes.classes, layers=config.layers, width=sizes.width
        )
        # Drawn together, so that one teacher with one scale of its logits labels both.
        drawn = Teacher(
            inputs=sizes.inputs,
            classes=sizes.classes,
            samples=sizes.samples + config.tested,
            seed=seed,
        ).draw()
        train, test = (
            Samples(inputs, labels)
            for inputs, labels in zip(
                drawn.inputs.split([sizes.samples, config.tested]),
                drawn.labels.split([sizes.samples, config.tested]),
                strict=True,
            )
        )
        self.data = Data(train, test, Box())
        self._recipe = Recipe(epochs=sizes.epochs, batch=sizes.batch)
        member = Member("affine", config.weight_decay, seed)
        self._fleet = Fleet(shape, [member], self._recipe, *train)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self._fleet.epoch

    def train_epoch(self) -> dict[str, float]:
        """One more; loss, accuracy and rate of its batches."""
        rate = self._recipe.rate_at(self.epoch)
        [stats] = self._fleet.train_epoch()
        if not stats.alive:
            raise NclabError(f"Expected a training that stays finite: {stats.why}.")
        return {"loss": stats.loss, "accuracy": stats.accuracy, "rate": rate}

    def model(self) -> nn.Module:
        """A copy in evaluation mode, batch norm by its running averages."""
        return self._fleet.model(0)

    def tensors(self) -> dict[str, Tensor]:
        """What it needs to go on."""
        return self._fleet.tensors(0)

    def extra(self) -> dict[str, Any]:
        """The numbers among it."""
        return {"epoch": self.epoch}

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""
        self._fleet.load(0, checkpoint.tensors, int(checkpoint.extra["epoch"]))


COURSES: Mapping[Network, Callable[[Config, int], Course]] = {"vgg": VGGCourse, "mlp": MLPCourse}


def train(
    report: Callable[..., None], folder: Path, config: Config, network: Network, seed: int
) -> None:
    """Make the run, go on with it where it stopped, or leave it as it is if it is finished."""
    described, epochs = config.described(network), config.epochs(network)
    with one_thread(), open_run(folder, kind=KIND, config=described, seed=seed) as run:
        if run.finished:
            return
        course = COURSES[network](config, seed)
        checkpoint = run.resume_latest()
        interpolated = checkpoint is not None and bool(checkpoint.extra["interpolated"])
        if checkpoint is not None:
            course.load(checkpoint)
        while course.epoch < epochs:
            stats = course.train_epoch()
            epoch, model = course.epoch, course.model()
            place = {"step": epoch, "epoch": epoch}
            run.append({"kind": EPOCH, **place, **stats})
            if not interpolated and interpolates(model, course.data.train):
                interpolated = True
                run.append({"kind": MOMENT, **place, MOMENT: BEFORE, **look(course, config, seed)})
            if epoch == epochs:
                run.append({"kind": MOMENT, **place, MOMENT: AFTER, **look(course, config, seed)})
            if epoch % CHECKPOINT_EVERY == 0 or epoch == epochs:
                extra = {**course.extra(), "interpolated": interpolated}
                run.checkpoint(epoch, course.tensors(), extra)
            run.beat(step=epoch, total=epochs)
            report(epoch, epochs)
        run.finish(epochs=epochs)


def read_rows(folder: Path, network: Network) -> list[dict[str, Any]]:
    """The moments of a run, from its journal."""
    view = read_run(folder)
    return [
        {"network": network, "seed": view.manifest.seed}
        | {name: value for name, value in record.items() if name not in ("kind", "step")}
        for record in view.of_kind(MOMENT)
    ]


def interpolates(model: nn.Module, samples: Samples) -> bool:
    """Whether every sample is classified correctly; stops at the first that is not."""
    with torch.no_grad():
        return all(
            bool((logit_gaps(model(inputs), labels) > 0).all())
            for inputs, labels in _parts(samples)
        )


def look(course: Course, config: Config, seed: int) -> dict[str, Any]:
    """Collapse on the training data, and everything on the test data."""
    model, (train, test, box) = course.model(), course.data
    seen = measure(model, list(_parts(train))).last
    found, classes = seen.to_row(), seen.num_classes
    # ji2022, Lemma 3.1 for the best split of the norms: every margin at collapse.
    largest = found["alpha"] * found["beta"] * classes / (classes - 1)
    nearest, gaps = SecondPass(seen.moments), []
    with torch.no_grad():
        for inputs, labels in _parts(test):
            features, logits = _forward(model, inputs)
            gaps.append(logit_gaps(logits, labels))
            nearest.update(features, labels, logits.argmax(1))
    margins = torch.cat(gaps).double()
    moved = test.inputs[: config.perturbed], test.labels[: config.perturbed]
    return {
        **{name: found[name] for name in TRAINED},
        "margin": found["margin"] / largest,
        "test_accuracy": float((margins > 0).double().mean()),
        "test_margins": (margins / largest).quantile(torch.tensor(QUANTILES).double()).tolist(),
        "test_agreement": nc4_agreement(nearest),
        "test_centre_accuracy": nc4_ncc_accuracy(nearest),
        "attacked": [
            attacked_accuracy(model, *moved, radius=radius, steps=config.steps, box=box)
            for radius in config.radii
        ],
        "noisy": [
            noisy_accuracy(model, *moved, size=size, seed=seed, box=box) for size in config.noises
        ],
    }


def _forward(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """What the classifier reads, and what it says."""
    assert isinstance(model, VGG13 | MLP)
    found = model.features(inputs)
    features = found if isinstance(found, Tensor) else found[-1]
    return features, model.classifier(features)


def _parts(samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(samples.inputs.split(PART), samples.labels.split(PART), strict=True)


def _mixed_subset(labels: Tensor, size: int, seed: int) -> Tensor:
    """Equally many of each class, in a random order: the first so many are no class's own."""
    chosen = fashion_mnist.balanced_subset(labels, size=size, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    return chosen[torch.randperm(len(chosen), generator=generator)]
