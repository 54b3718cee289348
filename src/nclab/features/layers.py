"""Layers: points of a forward pass whose features are measured, and their names.

`"all"` means the input of every weight layer after the first. In a chain of blocks (linear,
activation, batch norm) this is the finished output of each block, whatever the order inside the
block; the last of these points is the input of the classifier. A point is named after the outermost
module that returned the tensor, or `<reader>.input` if no module did, as with a functional
activation. A module called several times has points `name`, `name#2`, `name#3`, ...
"""

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from nclab.errors import ModelError
from nclab.features.batches import Batch
from nclab.features.recorder import Call, Identity, Point, storages

INPUT = ".input"


class FoundLayer(NamedTuple):
    """A layer of a traced pass: its name, where it is read, and the identity of its tensor."""

    name: str
    point: Point
    identity: Identity | None


def named_points(model: nn.Module, names: Sequence[str]) -> list[tuple[str, Point]]:
    """Return the points of given names: a module for its output, `<module>.input` for its input."""
    modules = dict(model.named_modules())
    points = []
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"Expected layer names as text, got {name!r}.")
        repeated = re.search(r"#([2-9]|[1-9]\d+)$", name)
        module = name[: repeated.start()] if repeated else name
        call = int(repeated[1]) - 1 if repeated else 0
        if module in modules and module:
            points.append((name, Point(module, "output", call)))
        elif module.endswith(INPUT) and module.removesuffix(INPUT) in modules:
            points.append((name, Point(module.removesuffix(INPUT), "input", call)))
        else:
            near = difflib.get_close_matches(name, [key for key in modules if key], n=3, cutoff=0.3)
            hint = f"did you mean {', '.join(near)}?" if near else "see model.named_modules()."
            raise ModelError(f"Expected the name of a module, got {name!r}; {hint}")
    if not points:
        raise ModelError("Expected at least one layer name, got none. Pass layers='last'.")
    return points


def all_layers(
    calls: Sequence[Call], weight_layers: Sequence[str], batch: Batch
) -> list[FoundLayer]:
    """Return the inputs of the weight layers, each tensor once, without the network's input."""
    model_input = storages(batch.tensors())
    layers: list[FoundLayer] = []
    known: set[Identity] = set()
    for call in calls:
        identity, source = call.source_identity, call.source
        if call.name not in weight_layers or identity is None or source is None:
            continue
        if identity in known or identity.storage in model_input or not source.is_floating_point():
            continue
        known.add(identity)
        layers.append(input_layer(call, calls))
    return layers


def input_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """Return the layer that a call reads, named after the outermost module that returned it."""
    makers = [
        maker
        for maker in _makers(call.source_identity, calls)
        if maker.left < call.entered and maker.target_identity is not None
    ]
    number = f"#{call.index + 1}" if call.index else ""
    name = f"{call.name}{INPUT}{number}".removeprefix(".")
    if makers:
        name = max(makers, key=lambda maker: maker.left).name
    return FoundLayer(name, Point(call.name, "input", call.index), call.source_identity)


def output_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """Return the layer that a call returned, named after the outermost module that returned it."""
    makers = _makers(call.target_identity, calls)
    maker = max(makers, key=lambda maker: maker.left) if makers else call
    number = f"#{maker.index + 1}" if maker.index else ""
    point = Point(maker.name, "output", maker.index)
    return FoundLayer(f"{maker.name}{number}", point, call.target_identity)


def _makers(identity: Identity | None, calls: Sequence[Call]) -> list[Call]:
    """Return the calls that returned this tensor, without modules that are called repeatedly."""
    times = Counter(call.name for call in calls)
    return [
        call
        for call in calls
        if call.name and call.target_identity == identity and times[call.name] == 1
    ]
