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

LOSSES = {"imbalance": "cross_entropy", "bias": "mse"}
"""Loss of each map."""
COUPLED = ("sgd", "adam")
"""Optimisers whose weight decay is a penalty of the loss."""
SIMPLEX, FRAME = "nearer the simplex ETF", "nearer an orthogonal frame"
MERGED, APART = "minority merged", "minority apart"
MERGED_COSINE = 0.99
"""Cosine of two class means from which they count as merged."""


class MapPoints(NamedTuple):
    """Points of one map, and the options of the map to which they belong."""

    rows: list[Row]
    options: dict[str, int]
    """Numbers of classes of the map."""
    skipped: dict[str, int]
    """Number of skipped networks by reason."""


def sweep_points(kind: str, folder: Path) -> MapPoints:
    """Return the ended networks of a folder that belong on a map, with coordinates and state.

    The weight decay of the features is inferred from the balance of norms at an optimum,
    λ_W |W|² = λ_H |H|², so that t √n is λ_W √C β / α. The state of a network is that of its class
    means. All networks must have the same number of classes.
    """
    if kind not in LOSSES:
        raise DataError(
            f"Expected --runs with --map {' or '.join(LOSSES)}, got --map {kind}, on which sweeps "
            "have no points."
        )
    if not folder.is_dir():
        raise DataError(f"Expected --runs as a folder of runs, got {folder}.")
    rows: list[Row] = []
    sizes: set[tuple[int, ...]] = set()
    skipped: Counter[str] = Counter()
    for path in find_runs(folder):
        view = glance(path)
        layer = last_layer(view.last(MEASUREMENT))
        if reason := _reason_to_skip(kind, view, layer):
            skipped[reason] += 1
            continue
        config = completed(view.manifest.config)
        C = layer["num_classes"]  # in selections, the first half of the classes is large
        sizes.add(((C + 1) // 2, C // 2) if kind == "imbalance" else (C,))
        rows.append({**_row(kind, config, layer), "run": view.name})
    if not rows:
        reasons = "; ".join(f"{count} {reason}" for reason, count in skipped.items()) or "no runs"
        raise DataError(f"Expected networks for --map {kind} in {folder}, got none: {reasons}.")
    if len(sizes) > 1:
        counts = ", ".join(str(sum(classes)) for classes in sorted(sizes))
        raise DataError(f"Expected networks with one number of classes for a map, got {counts}.")
    names = ("large", "small") if kind == "imbalance" else ("num_classes",)
    return MapPoints(rows, dict(zip(names, sizes.pop(), strict=True)), dict(skipped))


def _reason_to_skip(kind: str, view: RunView, layer: LayerNumbers) -> str:
    """Return why a run does not belong on the map; an empty text if it does."""
    if view.manifest.kind != FLEET:
        return "not of a sweep"
    if view.end is None:
        return "not ended"
    config = completed(view.manifest.config)
    recipe, selection = config["recipe"], config["data"]["selection"]
    if recipe["loss"] != LOSSES[kind]:
        return f"trained on {recipe['loss']}"
    if recipe["optimizer"] not in COUPLED:
        return f"trained by {recipe['optimizer']}, whose weight decay is no penalty"
    if not config["member"]["weight_decay"] > 0:
        return "without weight decay"
    if selection["label_noise"]:
        return "with noisy labels"
    if kind == "imbalance" and selection["imbalance"] > 1 and selection["tail"] != "step":
        return "with more than two class sizes"
    if kind == "bias" and selection["imbalance"] > 1:
        return "with class imbalance"
    if kind == "bias" and not _bias_penalty(config):
        return "without a penalised bias"
    if not all(layer.get(name) for name in ("alpha", "beta", "inter_cosine", "intra_cosine")):
        return "without a measurement of features"
    return ""


def _bias_penalty(config: dict[str, Any]) -> float:
    """Return the weight decay of the classifier's bias; 0 without a bias."""
    decay, bias = config["recipe"]["head_bias_decay"], config["shape"]["head_bias"]
    return float(config["member"]["weight_decay"] if decay is None else decay) if bias else 0.0


def _row(kind: str, config: dict[str, Any], layer: LayerNumbers) -> Row:
    """Return the coordinates of a network on the map, and its state."""
    C, counts = layer["num_classes"], layer["class_counts"]
    squares = sum(n * a**2 for n, a in zip(counts, layer["class_alpha"], strict=True))
    alpha = math.sqrt(squares / sum(counts))  # over all samples
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
        "state": MERGED if cosine >= MERGED_COSINE else APART,
        "cosine": cosine,
    }


def _mean_cosine(layer: LayerNumbers, classes: range) -> float:
    """Return the mean cosine between class means of unit features: inter / sqrt(intra intra)."""
    inter, intra = layer["inter_cosine"], layer["intra_cosine"]
    cosines = [
        inter[a][b] / math.sqrt(max(intra[a] * intra[b], 1e-300))
        for a in classes
        for b in classes
        if a < b
    ]
    return sum(cosines) / len(cosines) if cosines else 0.0
