"""Measures a member at a moment of its training."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.measurement.collapse import Collapse
from nclab.measurement.geometry import geometry
from nclab.measurement.held_out import look_against
from nclab.measurement.layer_stream import Head, LayerStream
from nclab.measurement.model import measure
from nclab.measurement.report import Report
from nclab.training.data.samples import Samples
from nclab.training.models.mlp import MLP
from nclab.training.sweep.config import Layers

SLICE = 8192
"""Rows that are propagated together."""
NOT_THE_LAST = "the classifier does not read this layer"


class Measured(NamedTuple):
    """A member at one moment."""

    layers: list[Collapse]
    geometry: dict[str, Any]
    """Where the features of the last layer lie, for a picture."""


def measure_member(
    model: nn.Module, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> Measured:
    """The last hidden layer, or every one, over all samples; one forward pass.

    Layer by layer, so that the features of two layers at most are in memory. Held-out samples are
    compared with the class means of a `reference`, the same layers over the training samples.
    """
    if not isinstance(model, MLP):
        return measure_module(model, samples, layers=layers, reference=reference)
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
    return Measured(measured, picture)


def measure_module(
    model: nn.Module, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> Measured:
    """The same of a plugin's network, its layers and classifier found as `nclab.measure` does."""
    pairs = zip(samples.inputs.split(SLICE), samples.labels.split(SLICE), strict=True)
    loader = list(pairs)
    train = Report(tuple(reference), "", 0, {}, ()) if reference else None
    report = measure(model, loader, layers=layers, reference=train, group="own")
    classifier = model.get_submodule(report.classifier)
    read: list[Tensor] = []
    hook = classifier.register_forward_pre_hook(lambda _, given: read.append(given[0].detach()))
    try:
        with torch.no_grad():
            for inputs, _ in loader:
                model(inputs)
    finally:
        hook.remove()
    features = torch.cat(read).flatten(1)
    seen = geometry(features, samples.labels, getattr(classifier, "weight", None))
    return Measured(list(report.layers), {"layer": report.last.layer, **seen})


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
    stream = LayerStream(num_classes=classes, head=head, ignore_index=None, layer=layer)
    stream.against = look_against(means[layer]) if layer in means else None
    stream.update(features, labels)
    stream.look_again(features, labels)
    stream.finish_second_pass()
    return stream.collapse({} if head else {"weight": NOT_THE_LAST})
