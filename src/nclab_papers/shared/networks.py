"""Small networks of the studies, and the measurements of their last layer.

The networks are so small that two cores train 10,000 of them in an hour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics import (
    nc0_weight_mean,
    nc1_trace_ratio,
    nc2_equiangularity_means,
    nc2_equiangularity_means_uncentred,
    nc3_frobenius,
)
from nclab.metrics.nc1_variability import within_trace
from nclab.statistics import ClassMoments
from nclab.statistics.logits import cross_entropy
from nclab.training.data.artificial import Teacher
from nclab.training.data.fashion_mnist import FashionMNIST
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import MLP, Shape
from nclab.training.sweep import Row, SweepConfig, TrainedNetwork

FieldData = Literal["teacher", "fashion"]
COMPONENTS = 64
"""Number of principal components of FashionMNIST that are used as inputs."""


@dataclass(frozen=True)
class FieldNetworks:
    """Settings that all networks of a study share; a seed fixes data, weights and batches."""

    width: int = 64
    layers: int = 6
    samples: int = 2000
    """Number of training samples; for FashionMNIST rounded down to a multiple of the classes."""
    epochs: int = 80
    batch: int = 128
    workers: int | None = None
    """Number of processes; by default one per core, 0 trains in this process. The numbers do not
    depend on it."""
    source: bool = False
    """Whether these are the networks of the source, the paper whose claims are judged. If not, the
    verdict on claims about its networks stays "open"."""

    def config(
        self,
        data: FieldData,
        *,
        classes: int,
        seed: int,
        weight_decays: Sequence[float],
        held_out: bool = False,
        **recipe: Any,
    ) -> SweepConfig:
        """Return the sweep that trains one network for each weight decay, all with one seed.

        Args:
            held_out: also draw test samples, as many as training samples.
            recipe: further fields of the training recipe.
        """
        parts = 2 if held_out else 1
        samples = self.samples * parts
        source: Teacher | FashionMNIST = Teacher(classes=classes, samples=samples, seed=seed)
        if data == "fashion":
            source = fashion(samples - samples % (classes * parts), classes=classes, seed=seed)
        share = 0.5 if held_out else 0.0
        selection = SampleSelection(test_share=share, selection_seed=seed if held_out else 0)
        return self.of(source, selection, seed=seed, weight_decays=weight_decays, **recipe)

    def of(
        self,
        data: Teacher | FashionMNIST,
        selection: SampleSelection,
        *,
        seed: int,
        weight_decays: Sequence[float],
        **recipe: Any,
    ) -> SweepConfig:
        """Return a sweep like that of `config`, but on `data` and the samples in `selection`."""
        thirds = (1 / 3, 2 / 3)  # the learning rate falls to a tenth after each third
        return SweepConfig(
            data=data,
            selection=selection,
            shape=Shape(width=self.width, layers=self.layers),
            norms=("affine",),
            weight_decays=tuple(weight_decays),
            seeds=(seed,),
            recipe=Recipe(
                epochs=self.epochs, batch=self.batch, milestones=thirds, decay=0.1, **recipe
            ),
            moments=1,
        )

    @property
    def size(self) -> str:
        """Size of the networks in a few words."""
        return (
            f"{self.layers} layers of width {self.width}, {self.samples} samples, "
            f"{self.epochs} epochs"
        )


def fashion(samples: int, *, classes: int, seed: int) -> FashionMNIST:
    """Return the first classes of FashionMNIST, projected onto principal components."""
    return FashionMNIST(samples=samples, components=COMPONENTS, classes=classes, seed=seed)


DIGITS = 6
"""Number of significant digits of a recorded metric."""


class LastLayer:
    """Features, logits, classifier and class moments of the last layer, from one forward pass."""

    def __init__(self, ended: TrainedNetwork) -> None:
        self.features, self.logits = read(ended.model, ended.train.inputs)
        self.labels = ended.train.labels
        self.weight = ended.model.classifier.weight.detach().double()
        if not (self.features.isfinite().all() and self.logits.isfinite().all()):
            raise DataError("Expected finite features and logits, got nan or infinity.")
        self.moments = ClassMoments(len(self.weight), self.features.shape[1])
        self.moments.update(self.features, self.labels)

    @property
    def accuracy(self) -> float:
        """Accuracy on the training samples."""
        return float((self.logits.argmax(1) == self.labels).double().mean())

    @property
    def decays(self) -> tuple[float, float]:
        """Effective weight decays of classifier and features, (1, |W|^2/|H|^2), up to a factor.

        Training puts no weight decay on features, but the layer-peeled model does. At its optimum
        both penalties are equal, so the measured norms determine the weight decay of the features.
        """
        features = float(self.features.double().square().sum())
        return 1.0, float(self.weight.square().sum()) / features if features else math.inf


def read(model: MLP, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of the classifier, and the logits in float64."""
    with torch.no_grad():
        features = model.features(inputs)[-1]
        return features, model.classifier(features).double()


def collapse(network: TrainedNetwork | LastLayer) -> Row:
    """Return accuracy, loss, NC0, and NC1, NC2, NC3 with centred and with raw class means.

    NC0 is the norm of the sum of the classifier rows, relative to its maximum. "Raw" means that the
    global mean is not subtracted. Raw NC1 is the within-class variance divided by the mean squared
    norm of the class means. Raw NC3 is the distance between the classifier and the class means, as
    matrices scaled to norm 1. Undefined metrics are None.
    """
    last = network if isinstance(network, LastLayer) else LastLayer(network)
    moments, W = last.moments, last.weight
    means, squares = moments.means, float(moments.means.square().sum()) / moments.num_classes
    numbers = {
        "accuracy": last.accuracy,
        "loss": float(cross_entropy(last.logits, last.labels).mean()),
        "nc0": nc0_weight_mean(W),
        "nc1": nc1_trace_ratio(moments),
        "nc2": nc2_equiangularity_means(moments),
        "nc3": math.sqrt(nc3_frobenius(moments, W)),
        "raw_nc1": within_trace(moments) / squares if squares else math.nan,
        "raw_nc2": nc2_equiangularity_means_uncentred(moments),
        "raw_nc3": float((W / W.norm() - means / means.norm()).norm()),
    }
    return {name: rounded(value) for name, value in numbers.items()}


def rounded(value: float | None) -> float | None:
    """Round a number to `DIGITS` significant digits; None for nan, infinity and None.

    >>> rounded(0.123456789), rounded(float("nan"))
    (0.123457, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")
