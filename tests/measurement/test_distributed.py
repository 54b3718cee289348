"""Several processes under torchrun give the results of one process."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import nclab
from nclab.measurement.layer_stream import DistributedData
from nclab.statistics import LogitStatistics, SecondPass
from tests.measurement import distributed_work as work
from tests.measurement.test_shards import flat
from tests.torchrun import found_by, torchrun, without_launcher

MODULE = "tests.measurement.distributed_work"
MADE = work.data()
EVERYTHING = torch.arange(len(MADE.labels))


SLOW = [pytest.param(processes, marks=pytest.mark.slow) for processes in (2, 4)]


@pytest.fixture(scope="module", params=[3, *SLOW])
def processes(request: pytest.FixtureRequest, tmp_path_factory: Any) -> list[dict[str, Any]]:
    """Return the results of each process."""
    return found_by(MODULE, request.param, tmp_path_factory.mktemp("ranks"))


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare the names, and every number to 1e-10."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs.keys() - {"warnings"}:
            assert flat(ours[name]) == pytest.approx(flat(theirs[name]), rel=1e-10, abs=1e-10), name
    else:
        assert flat(ours) == pytest.approx(flat(theirs), rel=1e-10, abs=1e-10)


def test_processes_have_unequal_parts_and_one_is_empty(processes: list[dict[str, Any]]) -> None:
    rows = [result["rows"] for result in processes]
    assert rows[-1] == 0
    assert len(set(rows)) > 1
    assert sum(rows) == len(MADE.labels)
    shares = work.shares(MADE.labels, len(processes), empty=False)
    holders = [bool((MADE.labels[rows] == work.LONELY).any()) for rows in shares]
    assert holders == [True] + [False] * (len(processes) - 1)


def test_moments_are_those_of_one_process(processes: list[dict[str, Any]]) -> None:
    for name, data_set in (("moments", MADE), ("tight", work.data(offset=1e6, noise=1e-4))):
        expected = work.numbers(work.moments(data_set, EVERYTHING))
        for result in processes:
            assert result[name] == processes[0][name]  # every bit
            assert_same(result[name], expected)
    variances = processes[0]["tight"]["variances"]
    assert max(variances) < 1e-6  # squares of features are 1e12: nothing was lost in them


def test_the_number_of_messages_does_not_grow_with_the_processes(
    processes: list[dict[str, Any]],
) -> None:
    assert [result["calls"] for result in processes] == [5] * len(processes)


def test_logits_and_second_pass_are_those_of_one_process(processes: list[dict[str, Any]]) -> None:
    logits = LogitStatistics(work.CLASSES)
    predicted = logits.update(MADE.features @ MADE.weight.T + MADE.bias, MADE.labels)
    second_pass = SecondPass(work.moments(MADE, EVERYTHING))
    kept = MADE.labels != -100
    second_pass.update(MADE.features[kept], MADE.labels[kept], predicted)
    for result in processes:
        assert_same(
            result["logits"], {name: values.tolist() for name, values in logits.sums().items()}
        )
        expected = {name: values.flatten().tolist() for name, values in second_pass.sums().items()}
        assert_same(result["look"], expected)


def test_a_process_group_is_a_subset_of_the_processes(processes: list[dict[str, Any]]) -> None:
    shares = work.shares(MADE.labels, len(processes), empty=True)
    pair = work.moments(MADE, torch.cat(shares[:2]))
    assert processes[0]["pair"] == processes[1]["pair"] == pair.counts.tolist()
    for result in processes[2:]:
        assert "Expected a process group that contains this process" in result["stranger"]


def test_a_model_is_measured_on_the_parts_of_all_processes(processes: list[dict[str, Any]]) -> None:
    shares = work.shares(MADE.labels, len(processes), empty=False)
    parts = [work.batches(rows, MADE) for rows in shares]
    loader = [batch for part in parts for batch in part]
    test = [batch for part in parts for batch in part[:2]]
    model = work.network()
    expected = nclab.measure(model, loader, test=test, layers="all", metrics="all")
    assert expected.test is not None
    for rank, result in enumerate(processes):
        assert result["report"] == processes[0]["report"]
        for ours, theirs in zip(result["report"], expected.layers, strict=True):
            assert_same(ours, theirs.to_dict())
        assert_same(result["test"], expected.test.last.to_dict())
        assert_same(result["again"], nclab.measure(model, loader).last.to_dict())
        assert result["own"] == int((MADE.labels[shares[rank]] >= 0).sum())


def test_rare_classes_are_left_out_of_all_parts(processes: list[dict[str, Any]]) -> None:
    expected = nclab.measure(
        work.network(), work.batches(EVERYTHING, MADE), min_count=work.FEWEST, metrics="all"
    ).last
    assert expected.left_out
    assert expected.nc1_trace_pinv is not None
    for result in processes:
        assert result["rare"] == processes[0]["rare"]
        assert_same(result["rare"], expected.to_dict())


def test_residuals_of_hard_and_soft_labels_are_not_merged(processes: list[dict[str, Any]]) -> None:
    assert [result["residuals"] for result in processes] == [False] * len(processes)


def test_an_error_in_one_process_is_an_error_in_all(processes: list[dict[str, Any]]) -> None:
    for rank, result in enumerate(processes):
        whose = "Expected labels in [0, 11)" if rank == 1 else "processes [1] could not"
        assert whose in result["bad label"]
        assert "one process for intervals" in result["intervals"]
        assert "exceed cache_bytes=0" in result["once"]
        assert "the same features in both passes" in result["changed"]
        assert "processes [0] saw no batch" in result["no batch"]
        assert "Expected moments of the same classes" in result["unlike"]
        assert "second passes with the same class means" in result["other means"]
        assert not any("\n" in message for message in result.values() if isinstance(message, str))


def test_a_process_that_dies_ends_the_others() -> None:
    started = time.monotonic()
    done = torchrun(MODULE, 2, "die")
    assert done.returncode != 0
    assert time.monotonic() - started < 120


def test_without_a_launcher_the_other_processes_raise_in_one_line() -> None:
    first, second = without_launcher(MODULE, 2, "die")
    _, message = first.communicate(timeout=120)
    second.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (2, -9)
    last = message.splitlines()[-1]
    assert last.startswith("nclab: Expected 2 processes to work together, but rank 0 lost")
    assert "restart all processes" in last


def test_one_process_shares_nothing(tmp_path: Path) -> None:
    assert DistributedData.over(None) is None
    assert DistributedData.over("local") is None
    with pytest.raises(nclab.DataError, match="'local' for this one alone, got 'mine'"):
        nclab.measure(work.network(), work.batches(EVERYTHING, MADE), process_group="mine")  # type: ignore[arg-type]
