"""Two processes measure together what one measures of the union of their data."""

import math
from typing import Any

import pytest

import nclab
from tests.monitor.pair import run_pair
from tests.monitor.two_processes import parts, resting


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes printed."""
    meeting = tmp_path_factory.mktemp("gloo") / "meeting"
    return run_pair("tests.monitor.two_processes", meeting)


def assert_close(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Every scalar and count to 1e-10."""
    for name, value in theirs.items():
        if isinstance(value, float):
            assert math.isclose(ours[name], value, rel_tol=1e-10, abs_tol=1e-10), name
        elif isinstance(value, (int, str)) or value is None:
            assert ours[name] == value, name
    assert ours["class_counts"] == theirs["class_counts"]


def test_training_is_the_same_and_only_the_first_process_writes(
    found: list[dict[str, Any]],
) -> None:
    assert [result["same"] for result in found] == [True, True]
    assert [result["wrote"] for result in found] == [[3, 6], []]


def test_both_processes_get_the_same_numbers(found: list[dict[str, Any]]) -> None:
    assert found[0]["estimate"] == found[1]["estimate"]
    assert found[0]["exact"] == found[1]["exact"]


def test_the_exact_measurement_is_that_of_the_union(found: list[dict[str, Any]]) -> None:
    union = [batch for part in parts() for batch in part]
    expected = nclab.measure(resting(), union, layers="all")
    assert min(found[0]["exact"][-1]["class_counts"]) > 0
    for ours, theirs in zip(found[0]["exact"], expected.layers, strict=True):
        assert ours["nc4_ncc_accuracy"] is not None
        assert_close(ours, theirs.to_dict())


def test_held_out_data_are_compared_with_the_means_of_the_union(
    found: list[dict[str, Any]],
) -> None:
    union = [batch for part in parts() for batch in part]
    other = [(inputs + 0.3, labels) for inputs, labels in union]
    expected = nclab.measure(resting(), union, test=other, layers="all").test
    assert expected is not None
    assert found[0]["held_out"] == found[1]["held_out"]
    for ours, theirs in zip(found[0]["held_out"], expected.layers, strict=True):
        assert ours["strong_test_collapse"] > 0
        assert_close(ours, theirs.to_dict())


def test_the_estimate_is_that_of_the_union(found: list[dict[str, Any]]) -> None:
    model = resting()
    with nclab.Monitor(model, preset="full") as monitor:
        for inputs, _ in monitor.watch([batch for part in parts() for batch in part]):
            model(inputs)
    assert monitor.last is not None
    for ours, theirs in zip(found[0]["estimate"], monitor.last.layers, strict=True):
        assert_close(ours, theirs.to_dict())


def test_a_process_without_data_is_named_by_all(found: list[dict[str, Any]]) -> None:
    for result in found:
        assert "processes [1] saw no batch" in result["refused"]


def test_an_epoch_without_a_batch_on_any_process_counts_quietly(
    found: list[dict[str, Any]],
) -> None:
    assert [result["idle"] for result in found] == [[1, 0], [1, 0]]
