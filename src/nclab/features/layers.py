"""Which places of a forward pass are layers, and what they are called.

`"all"` means: what every weight layer after the first reads. In a chain of blocks (linear,
activation, batch norm) that is the finished output of each block, whatever the order inside it;
the last such place is the input of the classifier. A place is named after the outermost module
that returned it, or `<reader>.input` where no module did (a functional activation in between).
A module called several times has places `name`, `name#2`, `name#3`, ...
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
    """A layer met in a forward pass: its name, where to read it, and which tensor that was."""

    name: str
    point: Point
    identity: Identity | None


def named_points(model: nn.Module, names: Sequence[str]) -> list[tuple[str, Point]]:
    """Points for names a user gave: a module for its output, `<module>.input` for its input."""
    modules = dict(model.named_modules())
    points = []
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"Expected layer names as text, got {name!r}.")
        nth = re.search(r"#([2-9]|[1-9]\d+)$", name)
        place = name[: nth.start()] if nth else name
        call = int(nth[1]) - 1 if nth else 0
        if place in modules and place:
            points.append((name, Point(place, "output", call)))
        elif place.endswith(INPUT) and place.removesuffix(INPUT) in modules:
            points.append((name, Point(place.removesuffix(INPUT), "input", call)))
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
    """What each weight layer reads, each tensor once, without the network's own input."""
    own_input = storages(batch.tensors())
    layers: list[FoundLayer] = []
    seen: set[Identity] = set()
    for call in calls:
        identity, source = call.source_identity, call.source
        if call.name not in weight_layers or identity is None or source is None:
            continue
        if identity in seen or identity.storage in own_input or not source.is_floating_point():
            continue
        seen.add(identity)
        layers.append(input_layer(call, calls))
    return layers


def input_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """The place that a call reads from."""
    point = Point(call.name, "input", call.index)
    nth = f"#{call.index + 1}" if call.index else ""
    name = _producer(call, calls) or f"{call.name}{INPUT}{nth}".removeprefix(".")
    return FoundLayer(name, point, call.source_identity)


def output_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """The place of what a call returned, at the outermost module that returned the same."""
    times = Counter(one.name for one in calls)
    makers = [
        one
        for one in calls
        if one.name and one.target_identity == call.target_identity and times[one.name] == 1
    ]
    maker = max(makers, key=lambda one: one.left) if makers else call
    nth = f"#{maker.index + 1}" if maker.index else ""
    point = Point(maker.name, "output", maker.index)
    return FoundLayer(f"{maker.name}{nth}", point, call.target_identity)


def _producer(reader: Call, calls: Sequence[Call]) -> str | None:
    """The outermost module, called once, that returned just what `reader` reads."""
    times = Counter(call.name for call in calls)
    makers = [
        call
        for call in calls
        if call.name
        and call.target_identity is not None
        and call.target_identity == reader.source_identity
        and call.left < reader.entered
        and times[call.name] == 1
    ]
    return max(makers, key=lambda call: call.left).name if makers else None
