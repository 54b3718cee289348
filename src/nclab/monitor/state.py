"""State of a monitor from a checkpoint, checked completely before any part of it is used."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
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
ROW_FIELDS = {"event": Integral, "step": Real, "epoch": Real, "layer": str, "split": str}
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
    nclab.errors.NclabError: Expected steps in the state of a monitor as a number of 0 or more, \
got None. Pass the result of state_dict().
    """
    _require(isinstance(state, Mapping), "the state of a monitor as a dictionary", state)
    version = state.get("version")
    _require(version == VERSION, f"the state of a monitor, version {VERSION}", version)
    for name in ("steps", "epochs", "last_step", "batches"):
        value = state.get(name)
        kind = Integral if name == "batches" else Real
        good = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
        _require(good and value >= 0, _part(name, "a number of 0 or more"), value)
    for name in ("alarms", "history"):
        _require(isinstance(state.get(name), SEQUENCE), _part(name, "a list"), state.get(name))
    for row in state["history"]:
        _check_fields("history", row, ROW_FIELDS)
    alarms = [_alarm(fields) for fields in state["alarms"]]
    _check_sums(state.get("running"))
    return MonitorState(
        *(state["steps"], state["epochs"], state["batches"], state["last_step"]),
        alarms=alarms,
        history=[dict(row) for row in state["history"]],
        running=state["running"],
    )


def _alarm(fields: Any) -> Alarm:
    _check_fields("alarms", fields, ALARM_FIELDS)
    classes, names = tuple(fields.get("classes", ())), tuple(fields.get("names", ()))
    numbers = all(isinstance(number, int) and number >= 0 for number in classes)
    _require(numbers, _part("classes of alarms", "a list of class numbers"), fields.get("classes"))
    texts = all(isinstance(name, str) for name in names)
    _require(texts, _part("names of alarms", "a list of texts"), fields.get("names"))
    try:
        lists = {"classes": classes, "names": names}
        known = {name: lists.get(name, value) for name, value in fields.items()}
        return Alarm(**known)
    except TypeError as error:  # a field is missing or unknown
        raise _error(_part("alarms", "saved by nclab"), f"({error})") from error


def _check_fields(part: str, fields: Any, types: Mapping[str, Any]) -> None:
    _require(_has_names(fields), _part(part, "dictionaries with names"), fields)
    for name, kind in types.items():
        if name in fields:
            good = isinstance(fields[name], kind)
            _require(good, _part(f"{name} of {part}", "saved by nclab"), fields[name])


def _check_sums(running: Any) -> None:
    """Check the sums of an unfinished epoch, as far as possible without the model's layers."""
    good = _has_names(running) and _has_names(running.get("layers"))
    _require(good, _part("running", "a dictionary with layers"), running)
    if "logits" in running:
        _require(_has_tensors(running["logits"]), _part("logits", "tensors"), running["logits"])
    for layer in running["layers"].values():
        good = _has_names(layer) and _has_tensors(layer.get("moments"))
        _require(good, _part("layers of running", "dictionaries of tensors"), layer)
        counts = layer.get("nonfinite")
        size = ClassMoments.from_state_dict(layer["moments"]).num_classes
        good = isinstance(counts, Tensor) and not counts.is_floating_point()
        good = good and counts.shape == (size,)
        _require(good, _part("nonfinite of running", f"counts of {size} classes"), counts)


def _part(name: str, kind: str) -> str:
    return f"{name} in the state of a monitor as {kind}"


def _require(good: Any, expected: str, value: Any) -> None:
    """Raise unless a part of the state is as expected."""
    if not good:
        short = isinstance(value, str | Real | None)
        raise _error(expected, repr(value)[:60] if short else f"a {type(value).__name__}")


def _error(expected: str, got: str) -> NclabError:
    return NclabError(f"Expected {expected}, got {got}. Pass the result of state_dict().")


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _has_tensors(value: Any) -> bool:
    return _has_names(value) and all(isinstance(item, Tensor) for item in value.values())
