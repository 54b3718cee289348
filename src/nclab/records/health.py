"""Whether what a run measured last is worth reading: finite, alive, converged."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nclab.records.schema import ALARM, State, last_layer

Health = Literal["", "not finite", "not measured", "dead", "not converged"]
"""Empty where nothing is wrong."""
CONVERGED = 0.99
"""A run has converged if its training accuracy is at least this."""
ONE_DIRECTION = 1e-6
"""Classes whose features are closer to one direction than this are not told apart."""


def health_of(
    measurement: Mapping[str, Any] | None,
    *,
    state: State = "finished",
    alarms: Iterable[Mapping[str, Any]] = (),
) -> Health:
    """What is wrong with a run, from the last measurement of its training data.

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
        said = [str(one.get("name")) for one in alarms if one.get("kind") == ALARM]
        words = f"{measurement.get('why') or ''} {' '.join(said)}"
        return "not finite" if "finite" in words or "nan" in words.split() else "not measured"
    read = layer.get("accuracy") is not None
    if read and not _finite(layer.get("loss")):
        return "not finite"
    apart = layer.get("mean_inter")
    if apart is not None and _finite(apart) and apart >= 1 - ONE_DIRECTION:
        return "dead"
    zeros, samples = layer.get("zero_features"), layer.get("samples")
    if zeros and zeros == samples:
        return "dead"
    if read and state != "running" and not has_converged(layer, threshold=CONVERGED):
        return "not converged"
    return ""


def has_converged(row: Mapping[str, Any], *, threshold: float) -> bool:
    """Accurate enough, finite, and not a constant map that calls everything the largest class.

    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": -0.3}, threshold=0.99)
    True
    >>> has_converged({"accuracy": 1.0, "loss": 0.1, "max_inter": 1.0}, threshold=0.99)
    False
    """
    values = [row.get(name) for name in ("accuracy", "loss", "max_inter")]
    if not all(_finite(value) for value in values):
        return False
    return bool(row["accuracy"] >= threshold and row["max_inter"] < 1 - ONE_DIRECTION)


def _finite(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))
