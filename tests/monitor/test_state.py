"""Tests that a damaged state raises in one line and leaves the monitor unchanged."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import nclab
from nclab.errors import NclabError
from nclab.monitor.alarms import CollapseReached
from tests.monitor.loops import batches, network

VALUES: tuple[Any, ...] = (None, "x", -1, [], math.nan, {}, [None], {"layers": None})
FITTING: dict[str, tuple[Any, ...]] = {"alarms": ([],), "history": ([],)}
"""Values that are valid for some keys."""


def trained(*, more: bool = False) -> nclab.Monitor:
    """Return a monitor in the middle of its second epoch, with history, alarms and sums."""
    model = network(norm=False)
    rules = [CollapseReached({"nc1_trace_ratio": 1e9})]
    monitor = nclab.Monitor(model, preset="full", alarms=rules)
    for loader in (batches(), batches()[: 4 if more else 3]):
        for number, (inputs, _) in enumerate(monitor.watch(loader), start=1):
            model(inputs)
            if number == len(loader) < 6:
                monitor.step()
                break
    return monitor


def plain(value: Any) -> Any:
    """Return a state with tensors as lists, which can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def damaged(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield damaged states: other values, then states with each key missing or wrong."""
    for value in VALUES:
        yield "all", value
    for key in state:
        yield f"{key} missing", {name: item for name, item in state.items() if name != key}
        for value in VALUES:
            if not any(value == item for item in FITTING.get(key, ())):
                yield f"{key}={value!r}", {**state, key: value}
    for key in ("name", "layer", "classes", "value", "message"):
        alarm = {name: value for name, value in state["alarms"][0].items() if name != key}
        yield f"alarm without {key}", {**state, "alarms": [alarm]}
    for key in state["alarms"][0]:
        alarm = {**state["alarms"][0], key: {"x": 1}}
        yield f"alarm {key}", {**state, "alarms": [alarm]}
    yield "alarm of others", {**state, "alarms": [{**state["alarms"][0], "colour": "red"}]}
    for key in ("event", "step", "epoch", "layer"):
        yield f"history {key}", {**state, "history": [{**state["history"][0], key: [1]}]}
    yield from damaged_sums(state)


def damaged_sums(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for layer in state["running"]["layers"]:
        for path in (("moments",), ("nonfinite",), ("moments", "pivot"), ("moments", "header")):
            for value in (*VALUES, torch.zeros(2), torch.zeros(1, dtype=torch.int64)):
                spoiled = copy.deepcopy(state)
                inner = spoiled["running"]["layers"][layer]
                for name in path[:-1]:
                    inner = inner[name]
                inner[path[-1]] = value
                yield f"{layer} {path} {value!r}", spoiled
    for value in (*VALUES[:-1], {"counts": torch.zeros(7)}):
        yield f"logits {value!r}", {**state, "running": {**state["running"], "logits": value}}


@pytest.mark.parametrize("found", [True, False])
def test_a_damaged_state_raises_and_changes_nothing(found: bool) -> None:
    state = trained().state_dict()
    monitor = trained(more=True) if found else nclab.Monitor(network(norm=False), preset="full")
    monitor.state_dict()  # adds the collected rows to the sums
    before, resumed = plain(monitor.state_dict()), monitor._resumed
    assert state["alarms"]
    assert state["running"]["layers"]
    for damage, spoiled in damaged(state):
        if not found and damage.startswith("logits {"):
            continue  # the required sums are known only once the layers are found
        with pytest.raises(NclabError) as raised:
            monitor.load_state_dict(spoiled)
        assert str(raised.value).startswith("Expected"), damage
        assert "\n" not in str(raised.value), damage
        assert plain(monitor.state_dict()) == before, damage
        assert monitor._resumed == resumed
    monitor.load_state_dict(state)
    assert plain(monitor.state_dict()) == plain(state)
