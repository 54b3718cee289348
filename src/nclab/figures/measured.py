"""Pictures of a measurement: one layer class by class, or all layers one after the other."""

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nclab.figures.palette import LIGHT
from nclab.figures.picture import HeatMap, Marker, Panel, Picture, Reference, Series

Row = Mapping[str, Any]

OVER_LAYERS = (
    ("NC1, within classes", ("nc1_trace_pinv", "nc1_within_variation", "cdnv")),
    ("NC2 and NC3, angles", ("nc2_equiangularity_means", "nc3_self_duality")),
)
MINI_CLASSES = 20
MINI_PIXELS = 120
FAR = 1e-3
"""A best loss this much smaller than every class's would only flatten them."""


def layer_picture(row: Row, *, name: str = "collapse") -> Picture:
    """One layer: the cosines between classes, and every class beside its value at collapse.

    >>> row = {"num_classes": 2, "classes": [0, 1], "intra_cosine": [1.0, 0.9],
    ...        "inter_cosine": [[1.0, -1.0], [-1.0, 0.9]]}
    >>> [panel.title for panel in layer_picture(row).panels]
    ['cosines between classes', 'every class']
    """
    panels: list[Panel | HeatMap] = []
    if row.get("inter_cosine"):
        title, matrix, span = "cosines between classes", row["inter_cosine"], (-1.0, 1.0)
        title += ", centred" if row.get("centred") else ""
        names = tuple(str(label) for label in row["classes"])
        panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
    places = row["classes"]
    cosines = [_dots("intra-class cosine", places, row["intra_cosine"], 0, "filled")]
    if row.get("nc3_alignment"):
        cosines.append(_dots("cos(classifier, mean)", places, row["nc3_alignment"], 1, "hollow"))
    collapse = (Reference("collapse", y=1.0),)
    panels.append(Panel("every class", "class", "", tuple(cosines), references=collapse))
    if row.get("class_loss") and all(value for value in row["class_loss"]):
        best = row.get("optimal_loss")
        near = best and best > FAR * min(row["class_loss"])
        least = (Reference("best for these norms", y=best),) if near else ()
        loss = (_dots("cross-entropy", places, row["class_loss"], 2, "filled"),)
        panels.append(Panel("loss", "class", "nats", loss, y_scale="log", references=least))
    title = f"Neural collapse of layer {row['layer']}" if row.get("layer") else "Neural collapse"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))


def layers_picture(rows: Sequence[Row], *, name: str = "layers") -> Picture:
    """All layers in the order in which the network computes them."""
    count = list(range(1, len(rows) + 1))
    simplex = -1 / (rows[-1]["num_classes"] - 1)
    cosines = tuple(_line(rows, key, place) for place, key in enumerate(cosine_keys(rows)))
    ideals = (Reference("intra at collapse", y=1.0), Reference("inter at collapse", y=simplex))
    panels = [Panel("cosines", "layer", "", cosines, references=ideals)]
    colour = 2
    for title, keys in OVER_LAYERS:
        known = [key for key in keys if any((row.get(key) or 0) > 0 for row in rows)]
        series = []
        for key in known:
            series.append(_line(rows, key, colour, positive=True))
            colour += 1
        if series:
            panels.append(Panel(title, "layer", "", tuple(series), y_scale="log"))
    if any(row.get("nc4_ncc_accuracy") is not None for row in rows):
        ncc = (_line(rows, "nc4_ncc_accuracy", 6),)
        panels.append(Panel("NC4, nearest class mean is right", "layer", "", ncc))
    names = ", ".join(
        f"{place} = {row.get('layer')}" for place, row in zip(count, rows, strict=True)
    )
    title = "Neural collapse, layer by layer"
    return Picture(name, title, tuple(panels), len(panels), f"Layers: {names}.", (3.1, 2.6))


def cosine_keys(rows: Sequence[Row]) -> tuple[str, str]:
    """The two cosines to show: centred where features without negative entries are among them."""
    keys = ("min_intra", "max_inter")
    known = all(row.get(f"centred_{key}") is not None for row in rows for key in keys)
    if known and any(row.get("non_negative") for row in rows):
        return "centred_min_intra", "centred_max_inter"
    return keys


def mini_map(row: Row) -> str:
    """The cosines between classes as a small SVG, without a plotting library; empty for many."""
    matrix = row.get("inter_cosine")
    if not matrix or len(matrix) > MINI_CLASSES:
        return ""
    side = MINI_PIXELS / len(matrix)
    cells = []
    for place, values in enumerate(matrix):
        for column, value in enumerate(values):
            if value is None:
                continue
            label = html.escape(f"{row['classes'][place]}, {row['classes'][column]}: {value:.3f}")
            spot = f'x="{column * side:.1f}" y="{place * side:.1f}" fill="{_mix(value)}"'
            box = f'width="{side:.1f}" height="{side:.1f}"'
            cells.append(f"<rect {spot} {box}><title>{label}</title></rect>")
    size = f'width="{MINI_PIXELS}" height="{MINI_PIXELS}"'
    return f'<svg {size} role="img" aria-label="cosines between classes">{"".join(cells)}</svg>'


def _mix(value: float) -> str:
    """The colour of a cosine."""
    share = min(1.0, max(0.0, (value + 1) / 2))
    stops = LIGHT.diverging
    low, high = next(pair for pair in pairwise(stops) if share <= pair[1][0])
    part = (share - low[0]) / (high[0] - low[0])
    mixed = (
        round(int(low[1][at : at + 2], 16) * (1 - part) + int(high[1][at : at + 2], 16) * part)
        for at in (1, 3, 5)
    )
    return "#" + "".join(f"{one:02x}" for one in mixed)


def _dots(label: str, x: Any, y: Any, colour: int, marker: Marker) -> Series:
    return Series(label, x, y, colour=colour, style="none", marker=marker)


def _line(rows: Sequence[Row], key: str, colour: int, *, positive: bool = False) -> Series:
    values = [row.get(key) for row in rows]
    kept = [value if not positive or (value or 0) > 0 else None for value in values]
    return Series(key, list(range(1, len(rows) + 1)), kept, colour=colour, marker="filled")
