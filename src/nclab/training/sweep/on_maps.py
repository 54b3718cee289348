"""Networks of a finished sweep as points on the maps of `nclab target --map`."""

import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from nclab.errors import DataError
from nclab.records import RunView, find_runs, glance
from nclab.records.fleet_config import FLEET, completed
from nclab.records.schema import MEASUREMENT, LayerNumbers, last_layer
from nclab.training.sweep.rows import Row

TRAINED = {"imbalance": "cross_entropy", "bias": "mse"}
"""The loss that a map is about."""
COUPLED = ("sgd", "adam")
"""Optimisers whose weight decay is a penalty of the loss."""
SIMPLEX, FRAME = "nearer the simplex ETF", "nearer an orthogonal frame"
MERGED, APART = "minority merged", "minority apart"
ALIKE = 0.99
"""Cosine of two class means from which on they count as merged."""


class OnMap(NamedTuple):
    """Points of one map, and which map it is."""

    rows: list[Row]
    options: dict[str, int]
    """Of the map: its numbers of classes."""
    left_out: dict[str, int]
    """How many networks are not on it, by reason."""


def sweep_points(kind: str, folder: Path) -> OnMap:
    """The ended networks of a folder that belong on a map, by what their records say.

    The weight decay of the features is inferred from the balance of norms at an optimum,
    λ_W |W|² = λ_H |H|², so that t √n is λ_W √C β / α; a network's state is that of its class
    means. All networks have the same number of classes, as the map has.
    """
    if kind not in TRAINED:
        wanted = " or ".join(TRAINED)
        raise DataError(f"Expected --runs with --map {wanted}, got {kind}: sweeps train no such.")
    if not folder.is_dir():
        raise DataError(f"Expected --runs as a folder of runs, got {folder}.")
    rows: list[Row] = []
    sizes: set[tuple[int, ...]] = set()
    left_out: Counter[str] = Counter()
    for place in find_runs(folder):
        view = glance(place)
        layer = last_layer(view.last(MEASUREMENT))
        if reason := _unfit(kind, view, layer):
            left_out[reason] += 1
            continue
        config = completed(view.manifest.config)
        sizes.add(_classes(kind, layer["num_classes"]))
        rows.append({**_row(kind, config, layer), "run": view.name})
    if not rows:
        words = "; ".join(f"{many} {reason}" for reason, many in left_out.items()) or "no runs"
        raise DataError(f"Expected networks for --map {kind} in {folder}, got none: {words}.")
    if len(sizes) > 1:
        many = ", ".join(str(sum(one)) for one in sorted(sizes))
        raise DataError(f"Expected networks of one number of classes for a map, got {many}.")
    names = ("large", "small") if kind == "imbalance" else ("num_classes",)
    return OnMap(rows, dict(zip(names, sizes.pop(), strict=True)), dict(left_out))


def _unfit(kind: str, view: RunView, layer: LayerNumbers) -> str:
    """Why a run is on no map, or nothing."""
    if view.manifest.kind != FLEET:
        return "not of a sweep"
    if view.end is None:
        return "not ended"
    config = completed(view.manifest.config)
    recipe, selection = config["recipe"], config["data"]["selection"]
    if recipe["loss"] != TRAINED[kind]:
        return f"trained on {recipe['loss']}"
    if recipe["optimizer"] not in COUPLED:
        return f"of {recipe['optimizer']}, whose decay is no penalty"
    if not config["member"]["weight_decay"] > 0:
        return "without weight decay"
    if selection["label_noise"]:
        return "with noisy labels"
    if kind == "imbalance" and selection["imbalance"] > 1 and selection["tail"] != "step":
        return "with more than two counts"
    if kind == "bias" and selection["imbalance"] > 1:
        return "imbalanced"
    if kind == "bias" and not _bias_penalty(config):
        return "without a penalised bias"
    if not all(layer.get(name) for name in ("alpha", "beta", "inter_cosine", "intra_cosine")):
        return "without a measurement of features"
    return ""


def _classes(kind: str, C: int) -> tuple[int, ...]:
    """As `SampleSelection` makes steps: the first half of the classes is large."""
    return ((C + 1) // 2, C // 2) if kind == "imbalance" else (C,)


def _bias_penalty(config: dict[str, Any]) -> float:
    own, bias = config["recipe"]["head_bias_decay"], config["shape"]["head_bias"]
    return float(config["member"]["weight_decay"] if own is None else own) if bias else 0.0


def _row(kind: str, config: dict[str, Any], layer: LayerNumbers) -> Row:
    C, counts = layer["num_classes"], layer["class_counts"]
    squares = sum(n * a**2 for n, a in zip(counts, layer["class_alpha"], strict=True))
    alpha = math.sqrt(squares / sum(counts))  # of all samples
    decay = config["member"]["weight_decay"] * math.sqrt(C) * layer["beta"] / alpha
    if kind == "bias":
        cosine = _mean_cosine(layer, range(C))
        halfway = -1 / (C - 1) / 2
        return {
            "weight_decay_share": decay * math.sqrt(C),
            "bias_penalty": _bias_penalty(config),
            "state": SIMPLEX if cosine < halfway else FRAME,
            "cosine": cosine,
        }
    large = (C + 1) // 2
    ratio = (sum(counts[:large]) / large) / (sum(counts[large:]) / (C - large))
    cosine = _mean_cosine(layer, range(large, C))
    return {
        "imbalance": max(ratio, 1.0),
        "weight_decay": decay,
        "state": MERGED if cosine >= ALIKE else APART,
        "cosine": cosine,
    }


def _mean_cosine(layer: LayerNumbers, classes: range) -> float:
    """Between the means of unit features: inter over the root of both intra."""
    inter, intra = layer["inter_cosine"], layer["intra_cosine"]
    found = [
        inter[a][b] / math.sqrt(max(intra[a] * intra[b], 1e-300))
        for a in classes
        for b in classes
        if a < b
    ]
    return sum(found) / len(found) if found else 0.0
