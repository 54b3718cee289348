"""Kinds of records, the fields of a measurement, and defaults that a run's configuration omits.

Records may be damaged or written by other programs: read them with the functions of this module.
Increase `SCHEMA` if the meaning of a field changes, but not if a field is added.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

SCHEMA: Final = 3
"""Version of the format in manifests, journals and checkpoints; newer versions are refused.

Since 2, lines of journals and JSON files have checksums. Since 3, the lines, the manifest and the
checkpoints of a run share an identity."""
START: Final = "start"
EPOCH: Final = "epoch"
MEASUREMENT: Final = "measurement"
SAMPLE: Final = "sample"
GEOMETRY: Final = "geometry"
ALARM: Final = "alarm"
END: Final = "end"

TRAIN: Final = "train"
"""Split of the data in records that name no split."""

State = Literal["running", "finished", "failed", "stopped"]
Train = dict[str, float | None]
"""Loss, accuracy and learning rate of the training itself."""
LayerNumbers = dict[str, Any]
"""Numbers of one measured layer from `Collapse.to_dict`; the key `layer` has its name."""

Health = Literal["", "not finite", "not measured", "dead", "not converged"]
"""What is wrong with the results of a run; empty if nothing is."""
CONVERGED_ACCURACY = 0.99
"""A run has converged if its training accuracy is at least this."""
SAME_DIRECTION = 1e-6
"""Two class means have the same direction if their cosine is at least 1 minus this number."""

FLEET = "fleet"
OMITTED_DEFAULTS: dict[str, Any] = {
    "shape.features": None,
    "shape.activation": "relu",
    "shape.head_bias": True,
    "shape.model": "mlp",
    "recipe.optimizer": "sgd",
    "recipe.nesterov": False,
    "recipe.beta1": 0.9,
    "recipe.beta2": 0.999,
    "recipe.epsilon": 1e-8,
    "recipe.schedule": "milestones",
    "recipe.warmup": 0.0,
    "recipe.loss": "cross_entropy",
    "recipe.smoothing": 0.1,
    "recipe.focusing": 2.0,
    "recipe.head_bias_decay": None,
    "data.selection.imbalance": 1.0,
    "data.selection.tail": "step",
    "data.selection.label_noise": 0.0,
    "data.selection.test_share": 0.0,
    "data.selection.selection_seed": 0,
}
"""Defaults of options that the manifest of a sweep's run omits, by path in the manifest.

Options with their default value are omitted, so that the names of runs do not change when nclab
gets new options. These defaults and paths are part of the format and must never change."""
OMITTED_DATA_DEFAULTS = {"fashion": {"classes": 10}}
"""Omitted defaults of options that only one data set has."""
STORED_NAMES = {"focal_gamma": "focusing"}
"""Older names under which manifests store options; the names of existing runs depend on them."""


class MeasurementRecord(TypedDict):
    """All measured layers at one step; the last layer is the input of the classifier."""

    kind: Literal["measurement"]
    step: int
    epoch: NotRequired[float]
    log_time: NotRequired[float | None]
    """Logarithm of the time in the layer-peeled model, which has no epochs; None at time 0."""
    source: NotRequired[str]
    """How a monitor measured: `training` (running estimate) or `loader` (exact measurement)."""
    split: NotRequired[str]
    """Data that were measured: train (default), test, val, ..."""
    layers: list[LayerNumbers]
    train: Train
    """Loss and accuracy on the measured data."""
    why: NotRequired[str]
    """Why no layer could be measured."""


def layers_of(record: Mapping[str, Any] | None) -> Sequence[LayerNumbers]:
    """Return the measured layers of a record; entries of other types are skipped.

    >>> layers_of({"layers": [{"layer": "fc"}, 5]}), layers_of({"layers": 5}), layers_of(None)
    ([{'layer': 'fc'}], [], [])
    """
    layers = record.get("layers") if record else None
    return [layer for layer in layers if type(layer) is dict] if type(layers) is list else []


def split_of(record: Mapping[str, Any] | None) -> str:
    """Return the split of the data that a record describes; `train` if it names none.

    >>> split_of({"split": "test"}), split_of({"step": 1}), split_of({"split": 5})
    ('test', 'train', 'train')
    """
    split = record.get("split") if record else None
    return split if type(split) is str and split else TRAIN


def last_layer(record: Mapping[str, Any] | None) -> LayerNumbers:
    """Return the layer that is the input of the classifier, or an empty one.

    >>> last_layer({"layers": [{"layer": "conv"}, {"layer": "fc"}]}), last_layer({"layers": []})
    ({'layer': 'fc'}, {})
    """
    layers = layers_of(record)
    return layers[-1] if layers else {}


def title_of_layer(layer: Mapping[str, Any], index: int) -> str:
    """Return the name of a layer, or its number if it has no name.

    >>> title_of_layer({"layer": "fc"}, 0), title_of_layer({}, 1)
    ('fc', 'layer 2')
    """
    return str(layer.get("layer") or f"layer {index + 1}")


def health_of(
    measurement: Mapping[str, Any] | None,
    *,
    state: State = "finished",
    alarms: Iterable[Mapping[str, Any]] = (),
) -> Health:
    """Return what is wrong with a run, judged by the last measurement of its training data.

    >>> layer = {"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3}
    >>> health_of({"layers": [layer]}), health_of({"layers": [{**layer, "accuracy": 0.7}]})
    ('', 'not converged')
    >>> health_of({"layers": [{**layer, "mean_inter": 1.0}]})
    'dead'
    >>> health_of({"layers": []}, alarms=[{"kind": "alarm", "name": "not finite"}])
    'not finite'
    """
    if measurement is None:
        return ""
    layer = last_layer(measurement)
    if not layer:
        names = [str(alarm.get("name")) for alarm in alarms if alarm.get("kind") == ALARM]
        reasons = f"{measurement.get('why') or ''} {' '.join(names)}"
        return "not finite" if "finite" in reasons or "nan" in reasons.split() else "not measured"
    has_classifier = layer.get("accuracy") is not None
    if has_classifier and not _is_finite(layer.get("loss")):
        return "not finite"
    mean_inter = layer.get("mean_inter")
    if mean_inter is not None and _is_finite(mean_inter) and mean_inter >= 1 - SAME_DIRECTION:
        return "dead"
    if layer.get("zero_features") and layer["zero_features"] == layer.get("samples"):
        return "dead"
    is_final = has_classifier and state != "running"
    if is_final and not has_converged(layer, threshold=CONVERGED_ACCURACY):
        return "not converged"
    return ""


def has_converged(row: Mapping[str, Any], *, threshold: float) -> bool:
    """Whether a network is accurate, its numbers are finite, and class means differ in direction.

    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3}, threshold=0.99)
    True
    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": 1.0}, threshold=0.99)
    False
    """
    values = [row.get(name) for name in ("accuracy", "loss", "max_inter")]
    if not all(_is_finite(value) for value in values):
        return False
    return bool(row["accuracy"] >= threshold and row["max_inter"] < 1 - SAME_DIRECTION)


def _is_finite(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def stored(options: dict[str, Any]) -> dict[str, Any]:
    """Return options under the names that manifests use.

    >>> stored({"loss": "focal", "focal_gamma": 3.0})
    {'loss': 'focal', 'focusing': 3.0}
    """
    return {STORED_NAMES.get(name, name): value for name, value in options.items()}


def current(options: dict[str, Any]) -> dict[str, Any]:
    """Return stored options under their current names, the inverse of `stored`."""
    names = {old: name for name, old in STORED_NAMES.items()}
    return {names.get(name, name): value for name, value in options.items()}


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a sweep's run with current names and all omitted defaults.

    >>> completed({"shape": {"width": 8}, "recipe": {"loss": "mse"}})["recipe"]["optimizer"]
    'sgd'
    """
    result = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
    for path, value in OMITTED_DEFAULTS.items():
        *parts, name = path.split(".")
        inner = result
        for part in parts:
            inner[part] = dict(inner.get(part, {}))
            inner = inner[part]
        inner.setdefault(name, value)
    data = result.get("data", {})
    for name, value in OMITTED_DATA_DEFAULTS.get(str(data.get("kind")), {}).items():
        data.setdefault(name, value)
    return {**result, "recipe": current(result["recipe"])}
