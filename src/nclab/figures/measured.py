"""Pictures of a measurement: one layer class by class, or all layers one after the other."""

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nclab.figures.palette import LIGHT
from nclab.figures.picture import (
    HeatMap,
    Marker,
    Panel,
    Picture,
    Reference,
    Scale,
    Series,
    Style,
)

Row = Mapping[str, Any]

OVER_LAYERS = (
    ("NC1, within classes", ("nc1_trace_pinv", "nc1_within_variation", "cdnv")),
    ("NC2 and NC3, angles", ("nc2_equiangularity_means", "nc3_self_duality")),
)
BY_FREQUENCY: tuple[tuple[str, tuple[tuple[str, str], ...], Scale], ...] = (
    (
        "right, by frequency",
        (("ncc_accuracy", "nearest class mean"), ("accuracy", "network")),
        "linear",
    ),
    (
        "spread and loss, by frequency",
        (("within", "variance within / tr Σ_B"), ("loss", "cross-entropy, nats")),
        "log",
    ),
)
DRAWN = 2000
"""Up to this many classes each one is drawn, also where groups of them are."""
MINI_CLASSES = 20
MINI_PIXELS = 120
STYLES: tuple[Style, ...] = ("solid", "dashed", "dotted")
"""Of the lines of the first data, the second, the third."""
FAR = 1e-3
"""A best loss this much smaller than every class's would only flatten them."""


def layer_picture(row: Row, *, name: str = "collapse", beside: Row | None = None) -> Picture:
    """One layer: the cosines between classes, and every class beside its value at collapse.

    `beside` is the same layer on other data, whose classes are drawn as well.

    >>> row = {"num_classes": 2, "classes": [0, 1], "intra_cosine": [1.0, 0.9],
    ...        "inter_cosine": [[1.0, -1.0], [-1.0, 0.9]]}
    >>> [panel.title for panel in layer_picture(row).panels]
    ['cosines between classes', 'every class']
    """
    panels: list[Panel | HeatMap] = []
    rows = [row] if beside is None else [row, beside]
    for one in rows:
        if one.get("inter_cosine"):
            centred = ", centred" if one.get("centred") else ""
            title = f"cosines between classes{centred}{_of(one)}"
            names = names_of(one)
            matrix, span = one["inter_cosine"], (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
    cosines, losses = [], []
    for place, one in enumerate(rows):
        at, colour = one["classes"], 3 * place
        label = f"intra-class cosine{_of(one)}"
        cosines.append(_dots(label, at, one["intra_cosine"], colour, "filled"))
        if one.get("nc3_alignment"):
            label = f"cos(classifier, mean){_of(one)}"
            cosines.append(_dots(label, at, one["nc3_alignment"], colour + 1, "hollow"))
        if one.get("class_loss") and all(value for value in one["class_loss"]):
            label = f"cross-entropy{_of(one)}"
            losses.append(_dots(label, at, one["class_loss"], colour + 2, "filled"))
    ticks: dict[str, Any] = {}
    if row.get("class_names"):
        known = dict(zip(row["classes"], row["class_names"], strict=True))
        known |= dict(zip(rows[-1]["classes"], names_of(rows[-1]), strict=True))
        ticks = {
            "x_ticks": tuple(sorted(known)),
            "x_names": tuple(known[at] for at in sorted(known)),
        }
    collapse = (Reference("collapse", y=1.0),)
    many = len(row["classes"]) > DRAWN and any(one.get("strata") for one in rows)
    if not many:
        every = Panel("every class", "class", "", tuple(cosines), references=collapse, **ticks)
        panels.append(every)
    if losses and not many:
        best = row.get("optimal_loss")
        near = best and row.get("class_loss") and best > FAR * min(row["class_loss"])
        least = (Reference("best for these norms", y=best),) if near else ()
        drawn = tuple(losses)
        panels.append(
            Panel("loss", "class", "nats", drawn, y_scale="log", references=least, **ticks)
        )
    panels += strata_panels(rows)
    title = f"Neural collapse of layer {row['layer']}" if row.get("layer") else "Neural collapse"
    title += f", {row['split']}" if beside is None and row.get("split") else ""
    columns = len(panels) if len(panels) < 4 else 2
    return Picture(name, title, tuple(panels), columns, "", (3.4, 2.8))


def strata_panels(rows: Sequence[Row]) -> list[Panel]:
    """Groups of classes by frequency, where the rows have any: how often right, spread, loss.

    >>> group = {"least": 2, "most": 9, "ncc_accuracy": 0.5, "within": 1.0, "loss": 2.0}
    >>> [panel.title for panel in strata_panels([{"strata": [group]}])]
    ['right, by frequency', 'spread and loss, by frequency']
    """
    known = [row for row in rows if row.get("strata")]
    panels = []
    for title, keys, scale in BY_FREQUENCY:
        drawn = []
        for place, row in enumerate(known):
            at = [group["most"] for group in row["strata"]]
            for shade, (key, label) in enumerate(keys):
                values = [group.get(key) for group in row["strata"]]
                if scale == "log":
                    values = [value if (value or 0) > 0 else None for value in values]
                if any(value is not None for value in values):
                    colour = len(keys) * place + shade
                    line = Series(f"{label}{_of(row)}", at, values, colour=colour, marker="filled")
                    drawn.append(line)
        if drawn:
            panel = Panel(title, "samples of the largest class", "", tuple(drawn), x_scale="log")
            panels.append(panel._replace(y_scale=scale))
    return panels


def names_of(row: Row) -> tuple[str, ...]:
    """What the measured classes are called, their numbers where they have no names."""
    return tuple(str(label) for label in row.get("class_names") or row["classes"])


def _of(row: Row) -> str:
    return f", {row['split']}" if row.get("split") else ""


def layers_picture(rows: Sequence[Row], *, name: str = "layers") -> Picture:
    """All layers in the order in which the network computes them; of several data, a line each."""
    splits = list(dict.fromkeys(row.get("split") for row in rows))
    parts = [[row for row in rows if row.get("split") == split] for split in splits]
    simplex = -1 / (rows[-1]["num_classes"] - 1)
    ideals = (Reference("intra at collapse", y=1.0), Reference("inter at collapse", y=simplex))
    cosines = _lines(parts, cosine_keys(rows), 0)
    panels = [Panel("cosines", "layer", "", cosines, references=ideals)]
    colour = 2
    for title, keys in OVER_LAYERS:
        known = [key for key in keys if any((row.get(key) or 0) > 0 for row in rows)]
        if known:
            lines = _lines(parts, known, colour, positive=True)
            panels.append(Panel(title, "layer", "", lines, y_scale="log"))
        colour += len(known)
    right = ("nc4_ncc_accuracy", "reference_ncc_accuracy")
    known = [key for key in right if any(row.get(key) is not None for row in rows)]
    if known:
        panels.append(
            Panel("NC4, nearest class mean is right", "layer", "", _lines(parts, known, 6))
        )
    panels += strata_panels([part[-1] for part in parts])
    names = ", ".join(
        f"{place} = {row.get('layer')}" for place, row in enumerate(parts[0], start=1)
    )
    title = "Neural collapse, layer by layer"
    columns = len(panels) if len(panels) < 5 else 3
    return Picture(name, title, tuple(panels), columns, f"Layers: {names}.", (3.1, 2.6))


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
    names = names_of(row)
    cells = []
    for place, values in enumerate(matrix):
        for column, value in enumerate(values):
            if value is None:
                continue
            label = html.escape(f"{names[place]}, {names[column]}: {value:.3f}")
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


def _lines(
    parts: Sequence[Sequence[Row]], keys: Sequence[str], colour: int, *, positive: bool = False
) -> tuple[Series, ...]:
    """A line for each key and each data set; those of other data are dashed."""
    found = []
    for part, style in zip(parts, STYLES, strict=False):
        for place, key in enumerate(keys):
            values = [row.get(key) for row in part]
            kept = [value if not positive or (value or 0) > 0 else None for value in values]
            if any(value is not None for value in kept):
                at = list(range(1, len(part) + 1))
                label = f"{key}{_of(part[0])}"
                line = Series(label, at, kept, colour=colour + place, marker="filled")
                found.append(line._replace(style=style))
    return tuple(found)
