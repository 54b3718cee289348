"""Measurement of one member of a fleet during training."""

from collections.abc import Iterator, Mapping, Sequence
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
    measured = []
    picture: dict[str, Any] = {}
    last = len(model.hidden) - 1
    for index, features in enumerate(_features(model, samples.inputs)):
        name = f"hidden.{index}"
        if index == last:
            classifier = model.classifier
            head = Head.checked(classifier.weight, classifier.bias, model.shape.classes)
            measured.append(_measure(features, samples.labels, head, name, model, means))
            picture = {"layer": name, **geometry(features, samples.labels, classifier.weight)}
        elif layers == "all":
            measured.append(_measure(features, samples.labels, None, name, model, means))
    return MemberMeasurement(measured, picture)


def _measure_module(
    model: nn.Module, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> MemberMeasurement:
    """Measure the network of a plugin; find layers and classifier as `nclab.measure` does."""
    pairs = zip(samples.inputs.split(SLICE), samples.labels.split(SLICE), strict=True)
    loader = list(pairs)
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


def _features(model: MLP, inputs: Tensor) -> Iterator[Tensor]:
    hidden = inputs
    with torch.no_grad():
        for block in model.hidden:
            hidden = torch.cat([block(part) for part in hidden.split(SLICE)])
            yield hidden


def _measure(
    features: Tensor,
    labels: Tensor,
    head: Head | None,
    layer: str,
    model: MLP,
    means: Mapping[str | None, Collapse],
) -> Collapse:
    classes = model.shape.classes
    options = MeasureOptions(num_classes=classes, ignore_index=None, reference=means.get(layer))
    stream = LayerStream(options, head=head, layer=layer)
    stream.update(features, labels)
    stream.update_second(features, labels)
    stream.finish_second_pass()
    return stream.collapse({} if head else {"weight": NOT_THE_LAST})
