"""New measurement of a recorded network: data drawn again, weights from the last checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.records.checkpoints import list_checkpoints, read_checkpoint
from nclab.records.fleet_config import current
from nclab.records.manifest import Manifest
from nclab.training.data.samples import Samples
from nclab.training.data.selection import SampleSelection, Split
from nclab.training.data.sources import SOURCES, draw_samples, plugin_sources
from nclab.training.fleet import Fleet, Member, ModuleFleet, Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep.measure import measure_member

NOT_FIELDS = ("kind", "label", "digest", "test_digest", "selection")
"""Entries of a stored data configuration that are no fields of the data set."""


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
    fleet: Fleet | ModuleFleet
    with one_thread():
        if shape.from_plugin:
            fleet = ModuleFleet(shape, [member], recipe, *split.train)
        else:
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
