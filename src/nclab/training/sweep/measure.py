"""Measurement of one member of a fleet during training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.measurement.collapse import Collapse
from nclab.measurement.geometry import geometry
from nclab.measurement.layer_stream import LayerStream
from nclab.measurement.model import measure
from nclab.measurement.options import Head, MeasureOptions
from nclab.measurement.report import Report
from nclab.training.data.samples import Samples
from nclab.training.models.mlp import MLP
from nclab.training.sweep.config import Layers

SLICE = 8192
"""Number of rows in one forward pass."""
NOT_THE_LAST = "the classifier does not read this layer"


class MemberMeasurement(NamedTuple):
    """Measured layers of a member after some epoch."""

    layers: list[Collapse]
    geometry: dict[str, Any]
    """Coordinates of the last layer's features, for a figure."""


def measure_member(
    model: nn.Module, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> MemberMeasurement:
    """Measure the last hidden layer, or all layers, over all samples in one forward pass.

    At most two layers' features are in memory. With a `reference`, the layers measured over the
    training samples, test samples are compared with the class means of training.
    """
    if not isinstance(model, MLP):
        return _measure_module(model, samples, layers=layers, reference=reference)
    means = {collapse.layer: collapse for collapse in reference}
    classifier, classes = model.classifier, model.shape.classes
    head = Head.checked(classifier.weight, classifier.bias, classes)
    measured = []
    name, features = "", samples.inputs
    for index, block in enumerate(model.hidden):
        with torch.no_grad():
            features = torch.cat([block(part) for part in features.split(SLICE)])
        last = index == len(model.hidden) - 1
        if last or layers == "all":
            name = f"hidden.{index}"
            options = MeasureOptions(
                num_classes=classes, ignore_index=None, reference=means.get(name)
            )
            stream = LayerStream(options, head=head if last else None, layer=name)
            stream.update(features, samples.labels)
            stream.update_second(features, samples.labels)
            stream.finish_second_pass()
            measured.append(stream.collapse({} if last else {"weight": NOT_THE_LAST}))
    picture = geometry(features, samples.labels, classifier.weight)
    return MemberMeasurement(measured, {"layer": name, **picture})


def _measure_module(
    model: nn.Module, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> MemberMeasurement:
    """Measure the network of a plugin; find layers and classifier as `nclab.measure` does."""
    loader = list(zip(samples.inputs.split(SLICE), samples.labels.split(SLICE), strict=True))
    train = Report(tuple(reference), "", 0, {}, ()) if reference else None
    report = measure(model, loader, layers=layers, reference=train, process_group="local")
    classifier = model.get_submodule(report.classifier)
    parts: list[Tensor] = []
    hook = classifier.register_forward_pre_hook(lambda _, args: parts.append(args[0].detach()))
    try:
        with torch.no_grad():
            for inputs, _ in loader:
                model(inputs)
    finally:
        hook.remove()
    features = torch.cat(parts).flatten(1)
    picture = geometry(features, samples.labels, getattr(classifier, "weight", None))
    return MemberMeasurement(list(report.layers), {"layer": report.last.layer, **picture})
