"""What the page of one run draws: curves, class cosines and the 3-D picture, small enough."""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from nclab.report.follower import SIZES, Follower, last_layer
from nclab.report.guarantees import guarantees

EVERY_LAYER = (
    "min_intra",
    "mean_intra",
    "max_inter",
    "mean_inter",
    "centred_min_intra",
    "centred_max_inter",
    "nc1_trace_pinv",
    "nc1_trace_ratio",
    "cdnv",
    "nc1_within_variation",
    "nc2_norm_variation_means",
    "nc2_equiangularity_means",
    "nc3_self_duality",
    "nc4_ncc_accuracy",
    "alpha",
)
"""Metrics that a small page keeps for every layer; of the last layer it keeps all."""
FINE = 1000
"""Coordinates and cosines are whole thousandths."""
MOST_CLASSES = 40
DAMAGED = (TypeError, ValueError, OverflowError)
"""What a frame raises that holds no numbers."""


class Room(NamedTuple):
    """How much of a run a page holds."""

    points: int = 400
    """Of a curve."""
    frames: int = 60
    """Of the class cosines and of the 3-D picture."""
    spots: int = 200
    """Features in the 3-D picture."""
    everything: bool = True
    """Every metric of every layer."""


def room_for(runs: int) -> Room:
    """The room of each run in a report of many, which must stay small.

    >>> room_for(3).points, room_for(60).points
    (400, 120)
    """
    if runs <= 12:
        return Room()
    return Room(points=max(30, 7200 // runs), frames=24, spots=100, everything=False)


def run_data(run: Follower, *, slug: str, room: Room | None = None) -> dict[str, Any]:
    """Everything the page of a run draws, as plain JSON values."""
    space = room or Room()
    layers = run.layers()
    last = run.last_measurement()
    classes = last_layer(last).get("num_classes")
    return {
        "slug": slug,
        **summary(run),
        "layers": layers,
        "metrics": _metrics(run, classes),
        "tables": _tables(run, layers, space),
        "cosines": _cosines(run, space),
        "geometry": _geometry(run, space),
        "certificate": guarantees(last),
        "alarms": run.alarms[-50:],
    }


def summary(run: Follower) -> dict[str, Any]:
    """A run in one line of a table."""
    return {
        "name": run.name,
        "path": run.path,
        "kind": run.manifest.kind,
        "state": run.state,
        "progress": run.progress,
        "why": str((run.end or {}).get("why") or ""),
        "records": sum(columns.seen for columns in run.columns.values()),
    }


def _metrics(run: Follower, classes: Any) -> list[dict[str, Any]]:
    """Names in the order of the tables, with their meaning and their value at collapse."""
    from nclab.metrics.catalogue import BY_NAME

    names = list(dict.fromkeys(metric for _, metric in run.names()))
    names.sort(key=lambda name: list(BY_NAME).index(name) if name in BY_NAME else len(BY_NAME))
    found = []
    for name in names:
        metric = BY_NAME.get(name)
        ideal = None
        if metric and metric.ideal and isinstance(classes, int) and classes > 1:
            ideal = metric.ideal(classes)
        meaning = metric.meaning if metric else ""
        found.append({"name": name, "meaning": meaning, "ideal": ideal})
    return found


def _tables(run: Follower, layers: Sequence[str], room: Room) -> list[dict[str, Any]]:
    tables = []
    for kind, columns in run.columns.items():
        places, values = columns.table(room.points)
        kept = [
            {"layer": layer, "metric": metric, "y": short(y)}
            for (layer, metric), y in values.items()
            if metric not in SIZES
            and any(value is not None for value in y)
            and (room.everything or layer in ("", *layers[-1:]) or metric in EVERY_LAYER)
        ]
        tables.append(
            {"kind": kind, **{k: short(v, 9) for k, v in places.items()}, "columns": kept}
        )
    return tables


def _cosines(run: Follower, room: Room) -> dict[str, Any] | None:
    """The class cosines of the last layer, one matrix a frame."""
    frames: list[dict[str, Any]] = []
    for record in run.measurements.records(room.frames):
        matrix = last_layer(record).get("inter_cosine")
        if not isinstance(matrix, list) or not 0 < len(matrix) <= MOST_CLASSES:
            continue
        try:
            flat = [None if v is None else round(v * FINE) for row in matrix for v in row]
        except DAMAGED:
            continue
        frames.append({"epoch": record.get("epoch"), "step": record.get("step"), "values": flat})
    if not frames:
        return None
    size = round(len(frames[-1]["values"]) ** 0.5)
    return {"classes": size, "fine": FINE, "frames": frames}


def _geometry(run: Follower, room: Room) -> list[dict[str, Any]]:
    """The 3-D picture of every layer that has one."""
    by_layer: dict[str, list[dict[str, Any]]] = {}
    for record in run.geometry.records():
        by_layer.setdefault(str(record.get("layer") or ""), []).append(record)
    most = max(2, room.frames // max(1, len(by_layer)))
    return [
        {
            "layer": layer,
            "fine": FINE,
            "frames": frames,
        }
        for layer, all_ in by_layer.items()
        if (frames := _frames(_some(all_, most), room.spots))
    ]


def _frames(records: list[dict[str, Any]], spots: int) -> list[dict[str, Any]]:
    """Frames without those that are damaged, or of features that were not finite."""
    frames = []
    for record in records:
        with contextlib.suppress(*DAMAGED):
            frames.append(_frame(record, spots))
    return frames


def _frame(record: dict[str, Any], spots: int) -> dict[str, Any]:
    labels, points = record.get("labels") or [], record.get("points") or []
    step = max(1, -(-len(points) // spots))
    return {
        "epoch": record.get("epoch"),
        "step": record.get("step"),
        "share": record.get("share"),
        "labels": labels[::step],
        "points": _fine(points[::step]),
        "means": _fine(record.get("means") or []),
        "weights": _fine(record.get("weights") or []),
        "etf": _fine(record.get("etf") or []),
    }


def _fine(rows: Sequence[Sequence[float]]) -> list[int]:
    return [round(value * FINE) for row in rows for value in row]


def _some(records: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(records) <= most:
        return records
    return [records[round(n * (len(records) - 1) / (most - 1))] for n in range(most)]


def short(values: Sequence[float | None], digits: int = 6) -> list[float | int | None]:
    """As many digits as a screen can show.

    >>> short([0.123456789, 3.0, None])
    [0.123457, 3, None]
    """
    return [None if value is None else _short(value, digits) for value in values]


def _short(value: float, digits: int) -> float | int | None:
    if value != value or value in (float("inf"), float("-inf")):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
