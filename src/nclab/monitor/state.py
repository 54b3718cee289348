"""The state of a monitor as a checkpoint gives it back, checked before anything of it is used."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from torch import Tensor

from nclab.errors import NclabError
from nclab.monitor.event import Alarm
from nclab.statistics import ClassMoments

VERSION = 1
MISSING = object()
Test = Callable[[Any], bool]


class MonitorState(NamedTuple):
    """What `Monitor.state_dict` told, every part of the type it must have."""

    steps: int
    epochs: int
    batches: int
    last_step: int
    alarms: list[Alarm]
    history: list[dict[str, Any]]
    running: Mapping[str, Any]


def parse_state(state: Any) -> MonitorState:
    """The parts of a state, or NclabError in one line that names the first one which is wrong.

    >>> parse_state({"version": 1, "steps": None})
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected steps in the state of a monitor as a number of 0 or more, \
got None. Pass what state_dict() gave.
    """
    if not isinstance(state, Mapping):
        raise _wrong("the state of a monitor", "a dictionary", state)
    if state.get("version") != VERSION:
        raise NclabError(
            f"Expected the state of a monitor, version {VERSION}, got {state.get('version')!r}. "
            "Pass what state_dict() gave."
        )
    for name, (test, words) in PARTS.items():
        if not test(state.get(name)):
            where = f"{name} in the state of a monitor"
            raise _wrong(where, words, state.get(name, MISSING))
    alarms = [_alarm(one) for one in state["alarms"]]
    for row in state["history"]:
        _check(row, ROW, "history in the state of a monitor", needs=())
    _check_running(state["running"])
    history = [dict(row) for row in state["history"]]
    return MonitorState(
        *(state["steps"], state["epochs"], state["batches"], state["last_step"]),
        alarms=alarms,
        history=history,
        running=state["running"],
    )


def _alarm(told: Any) -> Alarm:
    _check(told, ALARM, "alarms in the state of a monitor", needs=NEEDED)
    if unknown := [name for name in told if name not in ALARM]:
        raise _wrong("alarms in the state of a monitor", "alarms of nclab", unknown[0])
    lists = {"classes": tuple(told["classes"]), "names": tuple(told.get("names", ()))}
    return Alarm(**{**told, **lists})


def _check_running(running: Mapping[str, Any]) -> None:
    """The sums of an unfinished epoch, as far as they can be told without the model's layers."""
    where = "running in the state of a monitor"
    _check(running, {"layers": _is_named, "logits": _is_tensors}, where, needs=("layers",))
    for own in running["layers"].values():
        parts: dict[str, Test] = {"moments": _is_tensors, "nonfinite": _is_counts}
        _check(own, parts, where, needs=("moments", "nonfinite"))
        moments = ClassMoments.from_state_dict(own["moments"])
        if len(own["nonfinite"]) != moments.num_classes:
            raise _wrong(where, f"counts of {moments.num_classes} classes", len(own["nonfinite"]))


def _check(told: Any, tests: Mapping[str, Test], where: str, *, needs: tuple[str, ...]) -> None:
    if not _is_named(told):
        raise _wrong(where, "dictionaries with names", told)
    for name, test in tests.items():
        if name in told and not test(told[name]):
            raise _wrong(f"{name} of {where}", "it was saved", told[name])
        if name in needs and name not in told:
            raise _wrong(f"{name} of {where}", "it was saved", MISSING)


def _wrong(what: str, wanted: str, got: Any) -> NclabError:
    is_short = isinstance(got, str | Real | None)
    said = repr(got)[:60] if is_short else f"a {type(got).__name__}"
    said = "nothing" if got is MISSING else said
    return NclabError(f"Expected {what} as {wanted}, got {said}. Pass what state_dict() gave.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0


def _is_index(value: Any) -> bool:
    return isinstance(value, Integral) and _is_count(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_tensors(value: Any) -> bool:
    return _is_named(value) and all(isinstance(one, Tensor) for one in value.values())


def _is_counts(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1 and not value.is_floating_point()


def _list_of(test: Test) -> Test:
    return lambda value: _is_list(value) and all(map(test, value))


def _or_none(test: Test) -> Test:
    return lambda value: value is None or test(value)


PARTS: dict[str, tuple[Test, str]] = {
    "steps": (_is_count, "a number of 0 or more"),
    "epochs": (_is_count, "a number of 0 or more"),
    "batches": (_is_index, "a whole number of 0 or more"),
    "last_step": (_is_count, "a number of 0 or more"),
    "alarms": (_is_list, "a list"),
    "history": (_is_list, "a list"),
    "running": (_is_named, "a dictionary"),
}
ALARM: dict[str, Test] = {
    "name": _is_text,
    "layer": _is_text,
    "classes": _list_of(_is_index),
    "value": _or_none(_is_number),
    "message": _is_text,
    "severe": lambda value: isinstance(value, bool),
    "split": _is_text,
    "names": _list_of(_is_text),
    "epoch": _or_none(_is_number),
    "step": _or_none(_is_number),
}
NEEDED = ("name", "layer", "classes", "value", "message")
ROW: dict[str, Test] = {
    "event": _is_index,
    "step": _is_number,
    "epoch": _is_number,
    "layer": _is_text,
    "split": _is_text,
}
"""What history and pictures read of a row; the rest are metrics."""
