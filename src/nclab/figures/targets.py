"""Pictures of targets: the geometry of one optimum, and maps of where the optimum changes."""

import math
from collections.abc import Mapping
from typing import Any

from nclab.figures.picture import HeatMap, Marker, Panel, Picture, Series

Row = Mapping[str, Any]

_MARKERS: tuple[Marker, ...] = ("filled", "hollow", "cross")


def target_picture(row: Row, *, name: str = "target") -> Picture:
    """Return the cosines of an optimum's classifier and class means, and their norms.

    >>> row = {"num_classes": 2, "counts": [1, 1], "geometry": "simplex ETF",
    ...        "classifier_cosines": [[1, -1], [-1, 1]], "mean_cosines": [[1, -1], [-1, 1]],
    ...        "classifier_norms": [1, 1], "mean_norms": [1, 1]}
    >>> [panel.title for panel in target_picture(row).panels]
    ['cosines of classifier rows', 'cosines of class means', 'norms']
    """
    panels: list[Panel | HeatMap] = []
    norms = []
    classes = tuple(str(c) for c in range(row["num_classes"]))
    names = classes if len(classes) <= 20 else ()
    for colour, (part, label) in enumerate(
        (("classifier", "classifier rows"), ("mean", "class means"))
    ):
        if matrix := row[f"{part}_cosines"]:
            title, span = f"cosines of {label}", (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
        lengths = row[f"{part}_norms"]
        norms.append(Series(label, row["counts"], lengths, colour=colour, style="none"))
    points = tuple(series._replace(marker="filled") for series in norms)
    scale: Any = "log" if len(set(row["counts"])) > 1 else "linear"
    panels.append(Panel("norms", "samples of the class", "", points, x_scale=scale))
    title = f"Target: {row['geometry']}"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))


def map_picture(numbers: Row) -> Picture:
    """Return the picture of a map computed by `phase_map`."""
    kind = numbers["map"]
    return {"imbalance": _imbalance, "bias": _bias, "depth": _depth}[kind](numbers)


def _network_points(
    numbers: Row, x: str, y: str, shift: float = 0.0, first_colour: int = 2
) -> tuple[Series, ...]:
    """Return the trained networks on a map as points, one series for each state."""
    points = numbers.get("points", ())
    return tuple(
        Series(
            state,
            [point[x] for point in points if point["state"] == state],
            [point[y] + shift for point in points if point["state"] == state],
            colour=first_colour + index,
            style="none",
            marker=_MARKERS[index % 3],
        )
        for index, state in enumerate(dict.fromkeys(point["state"] for point in points))
    )


def _imbalance(numbers: Row) -> Picture:
    large, small = numbers["classes"]
    # Numbers above 1 are rounding errors; None means that all weights are zero.
    cosines = [
        [1.0 if cosine is None or cosine > 1 else cosine for cosine in row]
        for row in numbers["cosines"]
    ]
    heat = HeatMap(
        "cosine between two minority rows",
        "log10 weight decay",
        "log10 imbalance",
        cosines,
        value_range=(-1 / (large + small - 1), 1.0),
        x=[math.log10(decay) for decay in numbers["weight_decays"]],
        y=[math.log10(ratio) for ratio in numbers["ratios"]],
        centre=0.0,
    )
    lines = (
        Series("minority merges above", numbers["ratios"], numbers["merge_at"], colour=0),
        Series("all weights are zero above", numbers["ratios"], numbers["zero_at"], colour=1),
        *_network_points(numbers, "imbalance", "weight_decay"),
    )
    borders = Panel("borders", "imbalance", "weight decay", lines, x_scale="log", y_scale="log")
    caption = (
        f"Cross-entropy with {large} classes of R samples and {small} classes of one sample. The "
        "weight decay λ acts on weights and on mean squared features. The minority classes have "
        "merged where their cosine is 1."
    )
    title = "Minority collapse: where the small classes merge"
    return Picture("target_imbalance", title, (heat, borders), 2, caption, (3.8, 3.0))


def _bias(numbers: Row) -> Picture:
    C = numbers["num_classes"]
    heat = HeatMap(
        "cosine between classes",
        "log10 weight decay of the bias",
        "weight decay / critical weight decay",
        numbers["cosines"],
        value_range=(-1 / (C - 1), 0.0),
        x=[math.log10(penalty) for penalty in numbers["penalties"]],
        y=numbers["shares"],
    )
    border = Panel(
        "border",
        "weight decay / critical weight decay",
        "weight decay of the bias",
        (
            Series("simplex ETF below", numbers["shares"], numbers["simplex_until"]),
            *_network_points(numbers, "weight_decay_share", "bias_penalty", first_colour=1),
        ),
        y_scale="log",
    )
    caption = (
        f"Mean squared error with {C} balanced classes. The cosine rises from −1/(C−1), a simplex "
        "ETF, to 0, an orthogonal frame."
    )
    title = "Where the simplex ETF changes to an orthogonal frame"
    return Picture("target_bias", title, (heat, border), 2, caption, (3.8, 3.0))


def _depth(numbers: Row) -> Picture:
    names = numbers["names"]
    heat = HeatMap(
        ", ".join(f"{index} {name}" for index, name in enumerate(names)),
        "classes",
        "factors",
        numbers["winners"],
        tuple(map(str, numbers["classes"])),
        tuple(map(str, numbers["factors"])),
        (0.0, len(names) - 1.0),
    )
    caption = (
        "Deep linear heads with cross-entropy, one sample per class, and weight decay "
        f"{numbers['weight_decay']:g} on every factor. The colour shows which known geometry has "
        "the lowest loss. A search may find a lower one."
    )
    title = "Where a geometry of lower rank beats the simplex ETF"
    panels: tuple[Panel | HeatMap, ...] = (heat,)
    if points := _network_points(numbers, "classes", "depth", shift=1.0, first_colour=0):
        panels += (Panel("networks", "classes", "factors", points),)
    return Picture("target_depth", title, panels, 1, caption, (6.4, 3.0))
