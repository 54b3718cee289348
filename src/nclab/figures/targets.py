"""Pictures of targets: the geometry of one optimum, and maps of where optima change."""

import math
from collections.abc import Mapping
from typing import Any

from nclab.figures.picture import HeatMap, Panel, Picture, Series

Row = Mapping[str, Any]


def target_picture(row: Row, *, name: str = "target") -> Picture:
    """Cosines of classifier and means, and norms over the samples of a class.

    >>> row = {"num_classes": 2, "counts": [1, 1], "geometry": "simplex ETF",
    ...        "classifier_cosines": [[1, -1], [-1, 1]], "mean_cosines": [[1, -1], [-1, 1]],
    ...        "classifier_norms": [1, 1], "mean_norms": [1, 1]}
    >>> [panel.title for panel in target_picture(row).panels]
    ['cosines of the classifier', 'cosines of the means', 'norms']
    """
    panels: list[Panel | HeatMap] = []
    classes = tuple(str(c) for c in range(row["num_classes"]))
    for what, title in (("classifier", "the classifier"), ("mean", "the means")):
        if matrix := row[f"{what}_cosines"]:
            title = f"cosines of {title}"
            names = classes if len(classes) <= 20 else ()
            span = (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
    norms = tuple(
        Series(label, row["counts"], row[key], colour=place, style="none", marker="filled")
        for place, (label, key) in enumerate(
            (("classifier rows", "classifier_norms"), ("class means", "mean_norms"))
        )
    )
    uneven = len(set(row["counts"])) > 1
    panels.append(
        Panel("norms", "samples of the class", "", norms, x_scale="log" if uneven else "linear")
    )
    title = f"Target: {row['geometry']}"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))


def map_picture(numbers: Row) -> Picture:
    """A map of where optima change, from the numbers of `phase_map`."""
    kind = numbers["map"]
    return {"imbalance": _imbalance, "bias": _bias, "depth": _depth}[kind](numbers)


def _networks(
    numbers: Row, x: str, y: str, shift: float = 0.0, first: int = 2
) -> tuple[Series, ...]:
    """The points on a map, a series for every state."""
    points = numbers.get("points", ())
    states = dict.fromkeys(point["state"] for point in points)
    return tuple(
        Series(
            state,
            [point[x] for point in points if point["state"] == state],
            [point[y] + shift for point in points if point["state"] == state],
            colour=first + place,
            style="none",
            marker=("filled", "hollow", "cross")[place % 3],
        )
        for place, state in enumerate(states)
    )


def _imbalance(numbers: Row) -> Picture:
    large, small = numbers["classes"]
    x = [math.log10(one) for one in numbers["weight_decays"]]
    y = [math.log10(one) for one in numbers["ratios"]]
    values = [[2.0 if one is None else one for one in row] for row in numbers["cosines"]]
    values = [[1.0 if one > 1 else one for one in row] for row in values]
    heat = HeatMap(
        "cosine of two minority rows",
        "log10 weight decay",
        "log10 imbalance",
        values,
        value_range=(-1 / (large + small - 1), 1.0),
        x=x,
        y=y,
        centre=0.0,
    )
    lines = Panel(
        "where it changes",
        "imbalance",
        "weight decay",
        (
            Series("minority merges above", numbers["ratios"], numbers["merge_at"], colour=0),
            Series("everything is zero above", numbers["ratios"], numbers["zero_at"], colour=1),
            *_networks(numbers, "imbalance", "weight_decay"),
        ),
        x_scale="log",
        y_scale="log",
    )
    caption = (
        f"Cross-entropy, {large} classes of R samples and {small} of one; λ on mean squared "
        "features and on weights. At cosine 1 the minority has merged."
    )
    title = "When classes merge"
    return Picture("target_imbalance", title, (heat, lines), 2, caption, (3.8, 3.0))


def _bias(numbers: Row) -> Picture:
    C = numbers["num_classes"]
    x = [math.log10(one) for one in numbers["penalties"]]
    heat = HeatMap(
        "cosine between classes",
        "log10 penalty of the bias",
        "weight decay / critical",
        numbers["cosines"],
        value_range=(-1 / (C - 1), 0.0),
        x=x,
        y=numbers["shares"],
    )
    border = Panel(
        "where it changes",
        "weight decay / critical",
        "penalty of the bias",
        (
            Series("simplex ETF until", numbers["shares"], numbers["simplex_until"]),
            *_networks(numbers, "weight_decay_share", "bias_penalty", first=1),
        ),
        y_scale="log",
    )
    caption = f"Mean squared error, {C} balanced classes: from −1/(C−1) to 0."
    title = "When the simplex ETF gives way to an orthogonal frame"
    return Picture("target_bias", title, (heat, border), 2, caption, (3.8, 3.0))


def _depth(numbers: Row) -> Picture:
    names = numbers["names"]
    heat = HeatMap(
        ", ".join(f"{place} {name}" for place, name in enumerate(names)),
        "classes",
        "factors",
        numbers["winners"],
        tuple(str(one) for one in numbers["classes"]),
        tuple(str(one) for one in numbers["factors"]),
        (0.0, len(names) - 1.0),
    )
    caption = (
        f"Deep linear heads, cross-entropy, one sample a class, weight decay "
        f"{numbers['weight_decay']:g} on every factor: the lowest of the known geometries. "
        "A search may find lower ones."
    )
    title = "When the simplex ETF gives way to lower rank"
    panels: tuple[Panel | HeatMap, ...] = (heat,)
    if points := _networks(numbers, "classes", "depth", shift=1.0, first=0):
        panels += (Panel("networks", "classes", "factors", points),)
    return Picture("target_depth", title, panels, 1, caption, (6.4, 3.0))
