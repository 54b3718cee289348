"""Measurement of one network of a sweep: during training, or again from its files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

import torch

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.geometry import geometry
from nclab.measurement.layer_stream import LayerStream
from nclab.measurement.options import Head, MeasureOptions
from nclab.records.manifest import Manifest, list_checkpoints, read_checkpoint
from nclab.records.schema import current
from nclab.training.data.samples import Samples
from nclab.training.data.selection import SampleSelection, Split
from nclab.training.data.sources import SOURCES, draw_samples, plugin_sources
from nclab.training.fleet import Fleet, Member, Recipe
from nclab.training.models.mlp import MLP, Shape
from nclab.training.sweep.config import Layers

SLICE = 8192
"""Number of rows in one forward pass."""
NOT_THE_LAST = "the classifier does not read this layer"
NOT_FIELDS = ("kind", "label", "digest", "test_digest", "selection")
"""Entries of a stored data configuration that are not fields of the class of the data set."""


class MemberMeasurement(NamedTuple):
    """Measured layers of a member after some epoch."""

    layers: list[Collapse]
    geometry: dict[str, Any]
    """Coordinates of the last layer's features, class means and classifier, for the 3-D picture."""


def measure_member(
    model: MLP, samples: Samples, *, layers: Layers, reference: Sequence[Collapse] = ()
) -> MemberMeasurement:
    """Measure the last hidden layer, or all layers, over all samples in one forward pass.

    The features of at most two layers are in memory at the same time.

    Args:
        reference: measured layers of the training samples; test samples are compared with the
            class means in them.
    """
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


def remeasure(folder: Path, manifest: Manifest) -> tuple[float, list[dict[str, Any]]]:
    """Measure the last checkpoint of a run; return its epoch and layers as in its records.

    Raise `DataError` if the data cannot be drawn again, or if they differ from those of the run.
    """
    config = manifest.config
    split = _draw_again(config["data"])
    files = list_checkpoints(folder)
    if not files:
        raise DataError("the run has no checkpoint")
    checkpoint = read_checkpoint(files[max(files)])
    epoch, why = int(checkpoint.extra["epoch"]), str(checkpoint.extra.get("why", ""))
    shape = _from_json(Shape, config["shape"])
    recipe = _from_json(Recipe, current(config["recipe"]))
    member = Member(**config["member"])
    with one_thread():
        fleet = Fleet(shape, [member], recipe, *split.train, backend="torch")
        fleet.load(0, checkpoint.tensors, epoch, why)
        model = fleet.model(0, statistics=config["measure"]["statistics"])
        samples = Samples(fleet.inputs, fleet.labels)
        measured = measure_member(model, samples, layers=config["measure"]["layers"])
    return epoch - bool(why), [collapse.to_dict() for collapse in measured.layers]


def _draw_again(data: dict[str, Any]) -> Split:
    """Draw the samples of a stored configuration; raise if their digest differs."""
    kind = (SOURCES | plugin_sources()).get(data["kind"])
    if kind is None:
        raise DataError(f"no data set called {data['kind']!r} is installed")
    if data["kind"] == "file":
        raise DataError("its data came from a file, whose path is not recorded")
    fields = {name: value for name, value in data.items() if name not in NOT_FIELDS}
    selection = _from_json(SampleSelection, data.get("selection", {}))
    split = selection.split(draw_samples(_from_json(kind, fields)))
    if split.train.digest() != data["digest"]:
        raise DataError("its data differ when drawn on this machine")
    return split


def _from_json(kind: Any, values: dict[str, Any]) -> Any:
    """Return a dataclass from JSON values, in which tuples are lists."""
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(set(values) - known):
        raise DataError(f"{kind.__name__} has no field {unknown[0]} in this version of nclab")
    return kind(
        **{
            name: tuple(value) if get_origin(hints[name]) is tuple else value
            for name, value in values.items()
        }
    )
