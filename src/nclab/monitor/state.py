"""State of a monitor from a checkpoint, checked completely before any part of it is used."""

import math
from collections.abc import Mapping
from numbers import Real
from types import NoneType
from typing import Any, NamedTuple

from torch import Tensor

from nclab.errors import NclabError
from nclab.monitor.event import Alarm
from nclab.statistics import ClassMoments

VERSION = 1
SEQUENCE = (list, tuple)
NUMBER_OR_NONE = (Real, NoneType)
ALARM_FIELDS: dict[str, Any] = {
    "name": str,
    "layer": str,
    "classes": SEQUENCE,
    "value": NUMBER_OR_NONE,
    "message": str,
    "severe": bool,
    "split": str,
    "names": SEQUENCE,
    "epoch": NUMBER_OR_NONE,
    "step": NUMBER_OR_NONE,
}
"""Field of an alarm -> type. The first five are required."""
ROW_FIELDS = {"event": Real, "step": Real, "epoch": Real, "layer": str, "split": str}
"""Field of a row of history -> type; the other fields are metrics."""


class MonitorState(NamedTuple):
    """The parts of `Monitor.state_dict`, each with its type."""

    steps: int
    epochs: int
    batches: int
    last_step: int
    alarms: list[Alarm]
    history: list[dict[str, Any]]
    running: Mapping[str, Any]


def parse_state(state: Any) -> MonitorState:
    """Return the parts of a state; raise an error that names the first wrong part.

    >>> parse_state({"version": 1, "steps": None})
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected steps as saved in the state of a monitor, got None. Pass the \
result of state_dict().
    """
    _require(isinstance(state, Mapping), "a dictionary", state)
    _require(state.get("version") == VERSION, f"version {VERSION}", state.get("version"))
    for name in ("steps", "epochs", "last_step", "batches"):
        value = state.get(name)
        number = isinstance(value, Real) and not isinstance(value, bool)
        _require(number and math.isfinite(value) and value >= 0, name, value)
    for name, types in (("alarms", ALARM_FIELDS), ("history", ROW_FIELDS)):
        rows = state.get(name)
        _require(isinstance(rows, SEQUENCE), name, rows)
        for row in rows:
            _require(_has_names(row), name, row)
            for field in types.keys() & row.keys():
                _require(isinstance(row[field], types[field]), f"{field} of {name}", row[field])
    _check_sums(state.get("running"))
    return MonitorState(
        *(state["steps"], state["epochs"], state["batches"], state["last_step"]),
        alarms=[_alarm(fields) for fields in state["alarms"]],
        history=[dict(row) for row in state["history"]],
        running=state["running"],
    )


def _alarm(fields: Mapping[str, Any]) -> Alarm:
    try:
        alarm = Alarm(**fields)
    except TypeError as error:  # a field is missing or unknown
        raise _error("alarms", f"({error})") from error
    numbers = all(isinstance(number, int) and number >= 0 for number in alarm.classes)
    _require(numbers, "classes of alarms", alarm.classes)
    _require(all(isinstance(name, str) for name in alarm.names), "names of alarms", alarm.names)
    return alarm._replace(classes=tuple(alarm.classes), names=tuple(alarm.names))


def _check_sums(running: Any) -> None:
    """Check the sums of an unfinished epoch, as far as possible without the model's layers."""
    _require(_has_names(running) and _has_names(running.get("layers")), "running", running)
    _require(_has_tensors(running.get("logits", {})), "logits", running.get("logits"))
    for layer in running["layers"].values():
        good = _has_names(layer) and _has_tensors(layer.get("moments"))
        _require(good, "layers of running", layer)
        counts, moments = layer.get("nonfinite"), ClassMoments.from_state_dict(layer["moments"])
        good = isinstance(counts, Tensor) and not counts.is_floating_point()
        _require(good and counts.shape == (moments.num_classes,), "nonfinite of running", counts)


def _require(good: Any, part: str, value: Any) -> None:
    """Raise unless a part of the state is as expected."""
    if not good:
        short = isinstance(value, str | Real | None)
        raise _error(part, repr(value)[:60] if short else f"a {type(value).__name__}")


def _error(part: str, got: str) -> NclabError:
    return NclabError(
        f"Expected {part} as saved in the state of a monitor, got {got}. Pass the result of "
        "state_dict()."
    )


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _has_tensors(value: Any) -> bool:
    return _has_names(value) and all(isinstance(item, Tensor) for item in value.values())
