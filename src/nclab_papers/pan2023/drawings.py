"""Figures 1.1, 2.1 and 3.2 of pan2023: a network, its layer-peeled model, and conic hull data.

Claim: none; these figures explain the setting.
Source: pan2023, Fig. 1.1

The network has the architecture of the trained networks, and the points are sampled in the same way
as training data.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch

from nclab.claims.tables import Table
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import BLACK, Panel, Picture, Reference, Series
from nclab.training.data.artificial import Cones, ConicHull
from nclab.training.models.mlp import MLP, Shape

KEPT, PEELED = 0, 5
"""Palette indices of the colours of two parts of a network: the layer-peeled model, that is the
last layer with its features, and all other layers."""
BOX = 0.32
"""Half the width of the box around a layer."""
DISTANCE = 1.5
"""Distance between neighbouring layers."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Config:
    """Sizes of the drawn network and data."""

    inputs: int = 3
    classes: int = 4
    layers: int = 4
    width: int = 5
    """Width of the hidden layers."""
    samples: int = 240
    angles: tuple[float, ...] = (35.0, 120.0, 200.0, 290.0)
    """Angles of the boundaries of the cones in degrees; no cone is a half plane."""


PRESETS = {"quick": Config(), "paper": Config()}


def cones(angles: Sequence[float]) -> Cones:
    """Return for each cone between neighbouring rays the normals of its two sides.

    >>> [[round(x, 6) + 0.0 for x in normal] for normal in cones((0.0, 90.0, 180.0, 270.0))[0]]
    [[0.0, 1.0], [1.0, 0.0]]
    """
    radians = [math.radians(angle) for angle in angles]
    return tuple(
        ((-math.sin(first), math.cos(first)), (math.sin(last), -math.cos(last)))
        for first, last in pairwise([*radians, radians[0]])
    )


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Return the widths of the layers, and labelled points that the first seed draws in cones."""
    sizes = {name: getattr(config, name) for name in ("inputs", "classes", "layers", "width")}
    shape = Shape(**sizes)
    model, _ = MLP.seeded(shape, seed=seeds[0])
    linear = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
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
        "widths": [linear[0].in_features, *(layer.out_features for layer in linear)],
        "points": [[round(float(x), 4) for x in row] for row in data.inputs],
        "labels": data.labels.tolist(),
    }


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return a table of the number of points in every cone."""
    labels = numbers["labels"]
    rows = [(str(label + 1), str(labels.count(label))) for label in sorted(set(labels))]
    return [Table("Points of Figure 3.2", ("class", "points"), rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return drawings of the network, of the layer-peeled model and of the cones."""
    layers = [_layer(index, width) for index, width in enumerate(numbers["widths"])]
    network = (
        _box(layers[-2:-1], "features h"),
        _edges(layers, "weights", PEELED),
        _nodes(layers, "entries", KEPT),
    )
    peeled = (
        _box(layers[:-2], "peeled off", up_to=layers[-2][0][0]),
        _edges(layers[:-1], "", PEELED),
        _nodes(layers[:-2], "", PEELED),
        _edges(layers[-2:], "W", BLACK),
        _nodes(layers[-2:], "h and logits", KEPT),
    )
    return [
        Picture(
            "pan2023_fig11",
            "A vanilla neural network classifier",
            (_drawing(layers, network),),
            1,
            "Figure 1.1 of the thesis, redrawn. A node is an entry of the vector of a layer, and "
            "an edge is a weight of a linear map. The grey box marks the penultimate layer, whose "
            "features collapse.",
            (4.6, 2.7),
        ),
        Picture(
            "pan2023_fig21",
            "The layer-peeled model",
            (_drawing(layers, peeled),),
            1,
            "Figure 2.1 of the thesis, redrawn. The layers in the grey box are peeled off: the "
            "features h become free variables, and the model consists of h and the last linear "
            "map W.",
            (4.6, 2.7),
        ),
        Picture(
            "pan2023_fig32",
            "Conic hull data in two dimensions",
            (_cones(numbers),),
            1,
            "Figure 3.2 of the thesis, with data drawn here: four classes, each in a cone with its "
            "vertex at the origin. Solid lines: boundaries. Dashed lines: axes.",
            (3.6, 3.4),
        ),
    ]


def _drawing(layers: Sequence[Sequence[Point]], series: tuple[Series, ...]) -> Panel:
    """Return a panel with the names of the layers on its horizontal axis."""
    hidden = [f"hidden\n{index}" for index in range(1, len(layers) - 2)]
    names = ("input", *hidden, f"hidden {len(layers) - 2}\nfeatures h", "output\nW h")
    ticks = tuple(layer[0][0] for layer in layers)
    return Panel("", "", "", series, x_ticks=ticks, x_names=names, bare=True)


def _layer(index: int, width: int) -> list[Point]:
    """Return the nodes of a layer, a column centred at height 0."""
    return [(DISTANCE * index, (width - 1) / 2 - node) for node in range(width)]


def _nodes(layers: Sequence[Sequence[Point]], label: str, colour: int) -> Series:
    """Return the nodes of some layers as points."""
    x, y = zip(*(node for layer in layers for node in layer), strict=True)
    return Series(label, x, y, colour=colour, style="none", marker="filled")


def _edges(layers: Sequence[Sequence[Point]], label: str, colour: int) -> Series:
    """Return the edges between neighbouring layers as one line with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for before, after in pairwise(layers):
        for start, end in product(before, after):
            x += [start[0], end[0], None]
            y += [start[1], end[1], None]
    return Series(label, x, y, colour=colour)


def _box(layers: Sequence[Sequence[Point]], label: str, *, up_to: float | None = None) -> Series:
    """Return a grey box around layers; with `up_to`, the box ends just left of this x."""
    x = [node[0] for layer in layers for node in layer]
    y = [node[1] for layer in layers for node in layer]
    ends = [min(x) - BOX, max(x) + BOX if up_to is None else up_to - BOX]
    low, high = [min(y) - 2 * BOX] * 2, [max(y) + 2 * BOX] * 2
    return Series(label, ends, [None, None], low, high, colour=BLACK)


def _cones(numbers: Mapping[str, Any]) -> Panel:
    """Return the points by class, with the boundaries of the cones."""
    radius = max(math.hypot(*point) for point in numbers["points"])
    series = []
    for label in sorted(set(numbers["labels"])):
        members = [
            point
            for point, other in zip(numbers["points"], numbers["labels"], strict=True)
            if other == label
        ]
        series.append(_nodes([members], f"class {label + 1}", label))
    for index, angle in enumerate(map(math.radians, numbers["config"]["angles"])):
        x, y = (0.0, radius * math.cos(angle)), (0.0, radius * math.sin(angle))
        series.append(Series("" if index else "boundaries", x, y, colour=BLACK))
    axes = (Reference("", y=0.0), Reference("", x=0.0))
    return Panel("", "", "", tuple(series), references=axes, bare=True)
