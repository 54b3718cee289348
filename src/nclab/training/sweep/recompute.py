"""A network of a sweep measured again: its data drawn anew, its weights from the checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.records.checkpoints import list_checkpoints, read_checkpoint
from nclab.records.manifest import Manifest
from nclab.training.data.plugged import draw_samples, plugged_data
from nclab.training.data.samples import Samples
from nclab.training.data.selection import SampleSelection, Split
from nclab.training.fleet import Fleet, Member, ModuleFleet, Recipe
from nclab.training.fleet.module_fleet import needs_autograd
from nclab.training.models.mlp import Shape
from nclab.training.sweep.config import KINDS
from nclab.training.sweep.measure import measure_member

NOT_SETTINGS = ("kind", "label", "digest", "test_digest", "selection")
"""What the data of a configuration hold beside the fields of their source."""


def measured_again(folder: Path, manifest: Manifest) -> tuple[float, list[dict[str, Any]]]:
    """The epoch of the last checkpoint and its layers, as a measurement record has them.

    What cannot be drawn again, as a user's file, or was drawn otherwise, is a `DataError`.
    """
    config = manifest.config
    split = drawn_again(config["data"])
    files = list_checkpoints(folder)
    if not files:
        raise DataError("it has no checkpoint")
    checkpoint = read_checkpoint(files[max(files)])
    epoch, why = int(checkpoint.extra["epoch"]), str(checkpoint.extra.get("why", ""))
    shape = _built(Shape, config["shape"])
    recipe = _built(Recipe, config["recipe"])
    member = Member(**config["member"])
    fleet: Fleet | ModuleFleet
    with one_thread():
        if needs_autograd(shape, recipe):
            fleet = ModuleFleet(shape, [member], recipe, *split.train)
        else:
            fleet = Fleet(shape, [member], recipe, *split.train, backend="torch")
        fleet.load(0, checkpoint.tensors, epoch, why)
        model = fleet.model(0, statistics=config["measure"]["statistics"])
        samples = Samples(fleet.inputs, fleet.labels)
        found = measure_member(model, samples, layers=config["measure"]["layers"])
    return epoch - bool(why), [collapse.to_dict() for collapse in found.layers]


def drawn_again(data: dict[str, Any]) -> Split:
    """The samples of a configuration, which must have the digest that it tells."""
    kinds = {name: kind for kind, name in KINDS.items()} | plugged_data()
    kind = kinds.get(data["kind"])
    if kind is None:
        raise DataError(f"there are no data called {data['kind']!r} here")
    if data["kind"] == "file":
        raise DataError("its data were a file, whose place is not recorded")
    fields = {name: value for name, value in data.items() if name not in NOT_SETTINGS}
    selection = _built(SampleSelection, data.get("selection", {}))
    split = selection.split(draw_samples(_built(kind, fields)))
    if split.train.digest() != data["digest"]:
        raise DataError("its data come out otherwise on this machine")
    return split


def _built(kind: Any, values: dict[str, Any]) -> Any:
    """A dataclass from plain JSON, whose lists are tuples."""
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(set(values) - known):
        raise DataError(f"this version of nclab knows no {unknown[0]} of {kind.__name__}")
    return kind(
        **{
            name: tuple(value) if get_origin(hints[name]) is tuple else value
            for name, value in values.items()
        }
    )
