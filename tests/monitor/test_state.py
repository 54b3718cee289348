"""Tests that a damaged state raises in one line and leaves the monitor unchanged."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import nclab
from nclab.errors import NclabError
from nclab.monitor.event import CollapseReached
from tests.monitor.loops import batches, network


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
    values: tuple[Any, ...] = (None, "x", -1, [], {}, {"version": 2})
    for value in values:
        yield f"{value!r}", value
    for key in state:
        yield f"{key} missing", {name: item for name, item in state.items() if name != key}
        yield f"{key} wrong", {**state, key: None}
    yield "negative steps", {**state, "steps": -1}
    yield "alarm", {**state, "alarms": [{"name": "x"}]}
    yield "history", {**state, "history": [3]}
    for path in (("moments",), ("nonfinite",), ("moments", "pivot")):
        spoiled = copy.deepcopy(state)
        inner = next(iter(spoiled["running"]["layers"].values()))
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = torch.zeros(2)
        yield f"{path}", spoiled


@pytest.mark.parametrize("found", [True, False])
def test_a_damaged_state_raises_and_changes_nothing(found: bool) -> None:
    state = trained().state_dict()
    monitor = trained(more=True) if found else nclab.Monitor(network(norm=False), preset="full")
    monitor.state_dict()  # adds the collected rows to the sums
    before = plain(monitor.state_dict())
    assert state["alarms"]
    assert state["running"]["layers"]
    for damage, spoiled in damaged(state):
        with pytest.raises(NclabError) as raised:
            monitor.load_state_dict(spoiled)
        assert str(raised.value).startswith("Expected"), damage
        assert "\n" not in str(raised.value), damage
        assert plain(monitor.state_dict()) == before, damage
    monitor.load_state_dict(state)
    assert plain(monitor.state_dict()) == plain(state)
    fresh = nclab.Monitor(network(norm=False), preset="full")
    fresh.load_state_dict(state)
    assert plain(fresh.state_dict()) == plain(state)
