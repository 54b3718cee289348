"""Metrics of the last layer that studies keep of a network, centred and raw."""

import math

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
from nclab.training.models.mlp import MLP
from nclab.training.sweep import Row, TrainedNetwork

DIGITS = 6
"""Number of significant digits of a kept metric."""


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
        """Weight decays (1, |W|^2/|H|^2) of classifier and features at an optimum, up to a factor.

        Training puts no weight decay on features. At an optimum of the layer-peeled model both
        penalties are equal, which determines the effective weight decay of the features.
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

    Raw NC1 is the within-class variance over the mean squared norm of the class means; raw NC3 the
    distance of the classifier from the class means, both of unit norm. Undefined metrics are None.
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
