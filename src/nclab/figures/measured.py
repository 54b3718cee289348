"""Pictures of measurements: one layer, all layers, a training history, or an optimal geometry."""

from collections.abc import Mapping, Sequence
from typing import Any

from nclab.errors import NclabError
from nclab.figures.picture import (
    HeatMap,
    Marker,
    Panel,
    Picture,
    Reference,
    Scale,
    Series,
    Style,
    finite,
    positive,
)

Row = Mapping[str, Any]

LAYER_METRICS = (
    ("NC1, within classes", ("nc1_trace_pinv", "nc1_within_variation", "cdnv")),
    ("NC2 and NC3, angles", ("nc2_equiangularity_means", "nc3_self_duality")),
)
"""Title and metrics of the panels of `layers_picture`."""
FREQUENCY_PANELS: tuple[tuple[str, tuple[tuple[str, str], ...], Scale], ...] = (
    (
        "accuracy by class frequency",
        (("ncc_accuracy", "nearest class mean"), ("accuracy", "network")),
        "linear",
    ),
    (
        "spread and loss by class frequency",
        (("within", "variance within / tr Σ_B"), ("loss", "cross-entropy, nats")),
        "log",
    ),
)
"""For each panel of `frequency_panels`: the title, the values with their labels, the scale of y."""
HISTORY_METRICS = (
    ("nc1_trace_pinv", "nc1_trace_ratio"),
    ("nc2_equiangularity_means",),
    ("nc3_self_duality",),
    ("loss",),
)
"""Groups of metrics; `history_picture` draws the first measured metric of each group."""
STYLES: tuple[Style, ...] = ("solid", "dashed", "dotted")
"""Line styles of the splits; from the fourth split on, they repeat in other colours."""
MOST_CLASSES = 2000
"""With more classes than this, only groups of classes are drawn, if groups were measured."""
SMALLEST_LOSS_RATIO = 1e-3
"""The optimal loss is drawn if it exceeds this fraction of the smallest class loss."""


def layer_picture(row: Row, *, name: str = "collapse", other: Row | None = None) -> Picture:
    """Return a picture of one layer: cosines between classes, and cosines and loss of each class.

    `other` is the same layer measured on other data; its classes are added to the panels.
    """
    rows = [row] if other is None else [row, other]
    panels: list[Panel | HeatMap] = []
    for part in rows:
        if matrix := part.get("inter_cosine"):
            centred = ", centred" if part.get("centred") else ""
            title = f"cosines between classes{centred}{_split(part)}"
            names, span = class_names(part), (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
    if len(row["classes"]) <= MOST_CLASSES or not any(part.get("strata") for part in rows):
        panels += _class_panels(rows)
    panels += frequency_panels(rows)
    title = f"Neural collapse of layer {row['layer']}" if row.get("layer") else "Neural collapse"
    title += _split(row) if other is None else ""
    columns = len(panels) if len(panels) < 4 else 2
    return Picture(name, title, tuple(panels), columns, "", (3.4, 2.8))


def _class_panels(rows: Sequence[Row]) -> list[Panel]:
    """Return a panel with the cosines of each class and, if measured, a panel with the losses."""

    def points(label: str, key: str, marker: Marker, colour: int, row: Row) -> Series:
        label = f"{label}{_split(row)}"
        return Series(label, row["classes"], row[key], colour=colour, style="none", marker=marker)

    cosines, losses = [], []
    for index, row in enumerate(rows):
        colour = 3 * index
        cosines.append(points("intra-class cosine", "intra_cosine", "filled", colour, row))
        if row.get("nc3_alignment"):
            label = "cos(classifier, mean)"
            cosines.append(points(label, "nc3_alignment", "hollow", colour + 1, row))
        if row.get("class_loss") and all(row["class_loss"]):
            losses.append(points("cross-entropy", "class_loss", "filled", colour + 2, row))
    first, last = rows[0], rows[-1]
    ticks: dict[str, Any] = {}
    if first.get("class_names"):
        names = dict(zip(first["classes"], first["class_names"], strict=True))
        names |= dict(zip(last["classes"], class_names(last), strict=True))
        classes = sorted(names)
        ticks = {"x_ticks": tuple(classes), "x_names": tuple(names[label] for label in classes)}
    ideal = (Reference("collapse", y=1.0),)
    panels = [Panel("every class", "class", "", tuple(cosines), references=ideal, **ticks)]
    if losses:
        best, measured = first.get("optimal_loss"), first.get("class_loss")
        near = best and measured and best > SMALLEST_LOSS_RATIO * min(measured)
        optimum = (Reference("best for these norms", y=best),) if near else ()
        panel = Panel("loss", "class", "nats", tuple(losses), references=optimum, **ticks)
        panels.append(panel._replace(y_scale="log"))
    return panels


def frequency_panels(rows: Sequence[Row]) -> list[Panel]:
    """Return panels of accuracy, spread and loss for classes grouped by number of samples."""
    grouped = [row for row in rows if row.get("strata")]
    panels = []
    for title, keys, scale in FREQUENCY_PANELS:
        lines = []
        for index, row in enumerate(grouped):
            x = [group["most"] for group in row["strata"]]
            for shade, (key, label) in enumerate(keys):
                values = [group.get(key) for group in row["strata"]]
                values = positive(values) if scale == "log" else values
                if any(value is not None for value in values):
                    label, colour = f"{label}{_split(row)}", len(keys) * index + shade
                    lines.append(Series(label, x, values, colour=colour, marker="filled"))
        if lines:
            x_label = "samples of the largest class"
            panels.append(Panel(title, x_label, "", tuple(lines), x_scale="log", y_scale=scale))
    return panels


def class_names(row: Row) -> tuple[str, ...]:
    """Return the names of the measured classes, or their numbers if they have no names."""
    return tuple(str(label) for label in row.get("class_names") or row["classes"])


def _split(row: Row) -> str:
    """Return the text that adds the split of a row to a label, such as ", test"."""
    return f", {row['split']}" if row.get("split") else ""


def layers_picture(rows: Sequence[Row], *, name: str = "layers") -> Picture:
    """Return a picture of all layers in the order of the forward pass, with a line for each split.

    Bands show the intervals of metrics that have intervals.
    """
    splits = list(dict.fromkeys(row.get("split") for row in rows))
    parts = [[row for row in rows if row.get("split") == split] for split in splits]
    simplex = -1 / (rows[-1]["num_classes"] - 1)
    ideals = (Reference("intra at collapse", y=1.0), Reference("inter at collapse", y=simplex))
    cosines = _layer_lines(parts, cosine_keys(rows), 0)
    panels = [Panel("cosines", "layer", "", cosines, references=ideals)]
    colour = 2
    for title, keys in LAYER_METRICS:
        measured = [key for key in keys if any((row.get(key) or 0) > 0 for row in rows)]
        if measured:
            lines = _layer_lines(parts, measured, colour, logarithmic=True)
            panels.append(Panel(title, "layer", "", lines, y_scale="log"))
        colour += len(measured)
    accuracies = ("nc4_ncc_accuracy", "reference_ncc_accuracy")
    measured = [key for key in accuracies if any(row.get(key) is not None for row in rows)]
    if measured:
        lines = _layer_lines(parts, measured, 6)
        panels.append(Panel("NC4, accuracy of the nearest class mean", "layer", "", lines))
    panels += frequency_panels([part[-1] for part in parts])
    names = ", ".join(f"{n} = {row.get('layer')}" for n, row in enumerate(parts[0], start=1))
    columns = len(panels) if len(panels) < 5 else 3
    title = "Neural collapse, layer by layer"
    return Picture(name, title, tuple(panels), columns, f"Layers: {names}.", (3.1, 2.6))


def _layer_lines(
    parts: Sequence[Sequence[Row]],
    keys: Sequence[str],
    first_colour: int,
    *,
    logarithmic: bool = False,
) -> tuple[Series, ...]:
    """Return a line for each split and metric, with a band where the metric has intervals."""
    lines = []
    for number, part in enumerate(parts):
        more, style = divmod(number, len(STYLES))  # further splits get further colours
        for colour, key in enumerate(keys, start=first_colour + more * len(keys)):
            values = [row.get(key) for row in part]
            values = positive(values) if logarithmic else values
            if all(value is None for value in values):
                continue
            x, label = list(range(1, len(part) + 1)), f"{key}{_split(part[0])}"
            line = Series(label, x, values, colour=colour, style=STYLES[style], marker="filled")
            intervals = [(row.get("intervals") or {}).get(key) for row in part]
            if any(intervals):
                ends = [ends or (y, y) for ends, y in zip(intervals, values, strict=True)]
                low = [end[0] for end in ends]
                if logarithmic:  # zero has no logarithm
                    pairs = zip(low, values, strict=True)
                    low = [end if (end or 0) > 0 else y for end, y in pairs]
                line = line._replace(low=low, high=[end[1] for end in ends])
            lines.append(line)
    return tuple(lines)


def cosine_keys(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the names of the intra-class and inter-class cosine to draw.

    For non-negative features, as after ReLU, the centred cosines are drawn if measured.
    """
    keys = ("min_intra", "max_inter")
    measured = all(row.get(f"centred_{key}") is not None for row in rows for key in keys)
    if measured and any(row.get("non_negative") for row in rows):
        return "centred_min_intra", "centred_max_inter"
    return keys


def history_picture(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ()) -> Picture:
    """Return a picture with a panel for each metric over epochs.

    The axis of a metric is logarithmic if all its values are positive.
    """
    measured = {key for row in rows for key, value in row.items() if type(value) is float}
    defaults = [next((key for key in keys if key in measured), "") for keys in HISTORY_METRICS]
    chosen = list(metrics) or [key for key in defaults if key]
    unknown = [key for key in chosen if key not in measured]
    if not chosen or unknown:
        got = f"got {unknown[0]!r}" if unknown else "got a history without any"
        advice = f"Choose from {', '.join(sorted(measured))}." if measured else "Measure first."
        raise NclabError(f"Expected a metric that was measured, {got}. {advice}")
    panels = []
    for metric in chosen:
        curves = _history_curves(rows, metric)
        values = [value for curve in curves for value in curve.y if value is not None]
        scale: Scale = "log" if values and min(values) > 0 else "linear"
        panels.append(Panel(metric, "epoch", "", tuple(curves), y_scale=scale))
    return Picture("history", "", tuple(panels), min(4, len(panels)), "", (3.1, 2.6))


def _history_curves(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Series]:
    """Return one curve of a metric over epochs for each layer and split."""
    layers = list(dict.fromkeys(row.get("layer") for row in rows))
    splits = list(dict.fromkeys(row.get("split") for row in rows))
    curves = []
    for colour, layer in enumerate(layers):
        for number, split in enumerate(splits):
            measured = [
                row
                for row in rows
                if (row.get("layer"), row.get("split")) == (layer, split)
                and row.get(metric) is not None
            ]
            if not measured:
                continue
            words = [str(layer or ""), split if len(splits) > 1 else ""]
            label = ", ".join(filter(None, words)) if len(layers) * len(splits) > 1 else ""
            x, y = [row["epoch"] for row in measured], finite(row[metric] for row in measured)
            marker: Marker = "filled" if len(measured) < 30 else "none"
            more, style = divmod(number, len(STYLES))  # further splits get further colours
            shade = colour + more * len(layers)
            curves.append(Series(label, x, y, colour=shade, style=STYLES[style], marker=marker))
    return curves


def target_picture(row: Row, *, name: str = "target") -> Picture:
    """Return a picture of an optimal geometry: cosines and norms of class means and classifier."""
    panels: list[Panel | HeatMap] = []
    norms = []
    classes = tuple(str(c) for c in range(row["num_classes"]))
    names = classes if len(classes) <= 20 else ()
    parts = (("classifier", "classifier rows"), ("mean", "class means"))
    for colour, (part, label) in enumerate(parts):
        if matrix := row[f"{part}_cosines"]:
            title, span = f"cosines of {label}", (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
        lengths = row[f"{part}_norms"]
        dots = Series(label, row["counts"], lengths, colour=colour, style="none", marker="filled")
        norms.append(dots)
    scale: Scale = "log" if len(set(row["counts"])) > 1 else "linear"
    panels.append(Panel("norms", "samples of the class", "", tuple(norms), x_scale=scale))
    title = f"Target: {row['geometry']}"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))
