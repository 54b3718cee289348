"""Tests that two processes measure the same as one process with all their data."""

import math
from typing import Any

import pytest

import nclab
from tests.monitor.pair import run_pair
from tests.monitor.two_processes import parts, resting


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the printed results of two processes."""
    meeting = tmp_path_factory.mktemp("gloo") / "meeting"
    return run_pair("tests.monitor.two_processes", meeting)


def assert_close(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Assert that all scalars and counts agree to 1e-10."""
    for name, value in theirs.items():
        if isinstance(value, float):
            assert math.isclose(ours[name], value, rel_tol=1e-10, abs_tol=1e-10), name
        elif isinstance(value, (int, str)) or value is None:
            assert ours[name] == value, name
    assert ours["class_counts"] == theirs["class_counts"]


def test_training_is_unchanged_and_only_the_first_process_writes(
    results: list[dict[str, Any]],
) -> None:
    assert [result["same"] for result in results] == [True, True]
    assert [result["wrote"] for result in results] == [[3, 6], []]


def test_both_processes_get_the_same_numbers(results: list[dict[str, Any]]) -> None:
    assert results[0]["estimate"] == results[1]["estimate"]
    assert results[0]["exact"] == results[1]["exact"]


def test_the_exact_measurement_is_that_of_all_data(results: list[dict[str, Any]]) -> None:
    union = [batch for part in parts() for batch in part]
    expected = nclab.measure(resting(), union, layers="all")
    assert min(results[0]["exact"][-1]["class_counts"]) > 0
    for ours, theirs in zip(results[0]["exact"], expected.layers, strict=True):
        assert ours["nc4_ncc_accuracy"] is not None
        assert_close(ours, theirs.to_dict())


def test_held_out_data_are_compared_with_the_means_of_all_data(
    results: list[dict[str, Any]],
) -> None:
    union = [batch for part in parts() for batch in part]
    other = [(inputs + 0.3, labels) for inputs, labels in union]
    expected = nclab.measure(resting(), union, test=other, layers="all").test
    assert expected is not None
    assert results[0]["held_out"] == results[1]["held_out"]
    for ours, theirs in zip(results[0]["held_out"], expected.layers, strict=True):
        assert ours["strong_test_collapse"] > 0
        assert_close(ours, theirs.to_dict())


def test_the_estimate_is_that_of_all_data(results: list[dict[str, Any]]) -> None:
    model = resting()
    with nclab.Monitor(model, preset="full") as monitor:
        for inputs, _ in monitor.watch([batch for part in parts() for batch in part]):
            model(inputs)
    assert monitor.last is not None
    for ours, theirs in zip(results[0]["estimate"], monitor.last.layers, strict=True):
        assert_close(ours, theirs.to_dict())


def test_a_process_without_data_is_named_by_all(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert "processes [1] saw no batch" in result["refused"]


def test_an_epoch_without_any_batch_is_counted(
    results: list[dict[str, Any]],
) -> None:
    assert [result["idle"] for result in results] == [[1, 0], [1, 0]]
