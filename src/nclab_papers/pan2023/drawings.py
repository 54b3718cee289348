"""Figures 1.1, 2.1 and 3.2 of pan2023: a network, the layer-peeled model of it, and cones.

Claim: none; the thesis explains with them what the others are about.
Source: pan2023, Fig. 1.1

The network is one of those that are trained here, the points are drawn as they are for training.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from nclab.claims.tables import Table
from nclab.engine import LOCAL, Engine
from nclab.figures.palette import BLACK
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.training.data.artificial import Cones, ConicHull
from nclab.training.models.mlp import MLP, Shape

KEPT, PEELED = 0, 5
"""Colours of what the layer-peeled model keeps, and of the rest of a network."""
BOX = 0.32
"""Half the width of the box around a layer; layers are at distance 1.5."""
APART = 1.5
Place = tuple[float, float]


@dataclass(frozen=True)
class Config:
    """What is drawn."""

    inputs: int = 3
    classes: int = 4
    layers: int = 4
    width: int = 5
    """Of the hidden layers of the network."""
    samples: int = 240
    angles: tuple[float, ...] = (35.0, 120.0, 200.0, 290.0)
    """Of the boundaries of the cones, in degrees; none of the cones is a half plane."""


PRESETS = {"quick": Config(), "paper": Config()}


def cones(angles: Sequence[float]) -> Cones:
    """The normals of the cones between neighbouring rays.

    >>> [[round(x, 6) + 0.0 for x in normal] for normal in cones((0.0, 90.0, 180.0, 270.0))[0]]
    [[0.0, 1.0], [1.0, 0.0]]
    """
    turns = [math.radians(angle) for angle in angles]
    ends = zip(turns, [*turns[1:], turns[0]], strict=True)
    return tuple(
        ((-math.sin(first), math.cos(first)), (math.sin(last), -math.cos(last)))
        for first, last in ends
    )


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The sizes of the network's layers, and points in cones; the first seed draws them."""
    sizes = {name: getattr(config, name) for name in ("inputs", "classes", "layers", "width")}
    shape = Shape(**sizes)
    model, _ = MLP.seeded(shape, seed=seeds[0])
    linear = [one for one in model.modules() if isinstance(one, torch.nn.Linear)]
    data = ConicHull(
        inputs=2,
        classes=len(config.angles),
        samples=config.samples,
        cones=cones(config.angles),
        seed=seeds[0],
    ).draw()
    return {
        "config": asdict(config),
        "seeds": list(seeds),
        "widths": [linear[0].in_features, *(one.out_features for one in linear)],
        "points": [[round(float(x), 4) for x in row] for row in data.inputs],
        "labels": data.labels.tolist(),
    }


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """What is drawn, in numbers."""
    labels = numbers["labels"]
    counts = (str(labels.count(label)) for label in sorted(set(labels)))
    rows = [
        ("units of the layers", ", ".join(map(str, numbers["widths"]))),
        ("points in the cones", ", ".join(counts)),
        ("angles of the boundaries", ", ".join(f"{a:g}°" for a in numbers["config"]["angles"])),
    ]
    return [Table("What Figures 1.1, 2.1 and 3.2 show here", ("drawn", "numbers"), rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The network, the layer-peeled model and the cones."""
    widths = numbers["widths"]
    size = (4.6, 2.7)
    return [
        Picture(
            "pan2023_fig11",
            "A vanilla neural network classifier",
            (_network(widths),),
            1,
            "Figure 1.1 of the thesis, drawn anew. A node is an entry of the vector of a layer, an "
            "edge a weight of a linear map; the penultimate layer, whose features collapse, has "
            "the grey box.",
            size,
        ),
        Picture(
            "pan2023_fig21",
            "The layer-peeled model",
            (_peeled(widths),),
            1,
            "Figure 2.1 of the thesis, drawn anew. What is in the grey box is peeled off: the "
            "features h are free, and only they and the last linear map W are looked at.",
            size,
        ),
        Picture(
            "pan2023_fig32",
            "Conic hull data in two dimensions",
            (_cones(numbers),),
            1,
            "Figure 3.2 of the thesis, from data drawn here: four classes, each the points of a "
            "cone with its vertex at the origin. Solid lines are the boundaries, dashed ones the "
            "axes.",
            (3.6, 3.4),
        ),
    ]


def _network(widths: Sequence[int]) -> Panel:
    layers = [_layer(place, width) for place, width in enumerate(widths)]
    series = (
        _box(layers[-2:-1], "features h"),
        _edges(layers, "weights", PEELED),
        _nodes(layers, "entries", KEPT),
    )
    return _drawn(layers, series)


def _peeled(widths: Sequence[int]) -> Panel:
    layers = [_layer(place, width) for place, width in enumerate(widths)]
    series = (
        _box(layers[:-2], "peeled off", up_to=layers[-2][0][0]),
        _edges(layers[:-1], "", PEELED),
        _nodes(layers[:-2], "", PEELED),
        _edges(layers[-2:], "W", BLACK),
        _nodes(layers[-2:], "h and logits", KEPT),
    )
    return _drawn(layers, series)


def _drawn(layers: Sequence[Sequence[Place]], series: tuple[Series, ...]) -> Panel:
    hidden = [f"hidden\n{place}" for place in range(1, len(layers) - 1)]
    last = f"hidden {len(hidden)}\nfeatures h"
    names = ("input", *hidden[:-1], last, "output\nW h")
    ticks = tuple(layer[0][0] for layer in layers)
    return Panel("", "", "", series, x_ticks=ticks, x_names=names, bare=True)


def _layer(place: int, width: int) -> list[Place]:
    """Where the nodes of a layer are: in a column around the middle."""
    return [(APART * place, (width - 1) / 2 - node) for node in range(width)]


def _nodes(layers: Sequence[Sequence[Place]], label: str, colour: int) -> Series:
    x, y = zip(*(node for layer in layers for node in layer), strict=True)
    return Series(label, x, y, colour=colour, style="none", marker="filled")


def _edges(layers: Sequence[Sequence[Place]], label: str, colour: int) -> Series:
    """All lines between neighbouring layers as one, with gaps."""

    def points() -> Iterator[tuple[float | None, float | None]]:
        for before, after in pairwise(layers):
            for one in before:
                for other in after:
                    yield from (one, other, (None, None))

    x, y = zip(*points(), strict=True)
    return Series(label, x, y, colour=colour)


def _box(layers: Sequence[Sequence[Place]], label: str, *, up_to: float | None = None) -> Series:
    """A grey box around layers, and around the maps up to the next one if that is given."""
    x = [node[0] for layer in layers for node in layer]
    y = [node[1] for layer in layers for node in layer]
    ends = [min(x) - BOX, max(x) + BOX if up_to is None else up_to - BOX]
    low, high = [min(y) - 2 * BOX] * 2, [max(y) + 2 * BOX] * 2
    return Series(label, ends, [None, None], low, high, colour=BLACK)


def _cones(numbers: Mapping[str, Any]) -> Panel:
    points, labels = numbers["points"], numbers["labels"]
    radius = max(math.hypot(*point) for point in points)
    series = []
    for label in sorted(set(labels)):
        x, y = zip(*(p for p, own in zip(points, labels, strict=True) if own == label), strict=True)
        name = f"class {label + 1}"
        series.append(Series(name, x, y, colour=label, style="none", marker="filled"))
    for place, angle in enumerate(numbers["config"]["angles"]):
        turn = math.radians(angle)
        x, y = (0.0, radius * math.cos(turn)), (0.0, radius * math.sin(turn))
        series.append(Series("" if place else "boundaries", x, y, colour=BLACK))
    axes = (Reference("", y=0.0), Reference("", x=0.0))
    return Panel("", "", "", tuple(series), references=axes, bare=True)
