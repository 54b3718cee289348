"""Several processes under torchrun find together what one finds alone."""

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
def found(request: pytest.FixtureRequest, tmp_path_factory: Any) -> list[dict[str, Any]]:
    """What each process has written."""
    return found_by(MODULE, request.param, tmp_path_factory.mktemp("ranks"))


def assert_same(ours: Any, theirs: Any) -> None:
    """Every number to 1e-10, and the same names."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs.keys() - {"warnings"}:
            assert flat(ours[name]) == pytest.approx(flat(theirs[name]), rel=1e-10, abs=1e-10), name
    else:
        assert flat(ours) == pytest.approx(flat(theirs), rel=1e-10, abs=1e-10)


def test_parts_are_uneven_and_one_is_empty(found: list[dict[str, Any]]) -> None:
    rows = [told["rows"] for told in found]
    assert rows[-1] == 0
    assert len(set(rows)) > 1
    assert sum(rows) == len(MADE.labels)
    shares = work.shares(MADE.labels, len(found), empty=False)
    holders = [bool((MADE.labels[rows] == work.LONELY).any()) for rows in shares]
    assert holders == [True] + [False] * (len(found) - 1)


def test_moments_are_those_of_one_process(found: list[dict[str, Any]]) -> None:
    for name, made in (("moments", MADE), ("tight", work.data(offset=1e6, noise=1e-4))):
        expected = work.numbers(work.moments(made, EVERYTHING))
        for told in found:
            assert told[name] == found[0][name]  # every bit
            assert_same(told[name], expected)
    variances = found[0]["tight"]["variances"]
    assert max(variances) < 1e-6  # squares of features are 1e12: nothing was lost in them


def test_the_number_of_messages_does_not_grow_with_the_processes(
    found: list[dict[str, Any]],
) -> None:
    assert [told["calls"] for told in found] == [5] * len(found)


def test_logits_and_second_passs_too(found: list[dict[str, Any]]) -> None:
    logits = LogitStatistics(work.CLASSES)
    predicted = logits.update(MADE.features @ MADE.weight.T + MADE.bias, MADE.labels)
    look = SecondPass(work.moments(MADE, EVERYTHING))
    kept = MADE.labels != -100
    look.update(MADE.features[kept], MADE.labels[kept], predicted)
    for told in found:
        assert_same(told["logits"], {name: own.tolist() for name, own in logits.sums().items()})
        expected = {name: own.flatten().tolist() for name, own in look.sums().items()}
        assert_same(told["look"], expected)


def test_a_group_is_a_part_of_the_processes(found: list[dict[str, Any]]) -> None:
    shares = work.shares(MADE.labels, len(found), empty=True)
    pair = work.moments(MADE, torch.cat(shares[:2]))
    assert found[0]["pair"] == found[1]["pair"] == pair.counts.tolist()
    for told in found[2:]:
        assert "Expected a group that this process belongs to" in told["stranger"]


def test_a_model_is_measured_on_all_parts_together(found: list[dict[str, Any]]) -> None:
    shares = work.shares(MADE.labels, len(found), empty=False)
    parts = [work.batches(rows, MADE) for rows in shares]
    loader = [batch for part in parts for batch in part]
    test = [batch for part in parts for batch in part[:2]]
    model = work.network()
    expected = nclab.measure(model, loader, test=test, layers="all", metrics="all")
    assert expected.test is not None
    for rank, told in enumerate(found):
        assert told["report"] == found[0]["report"]
        for ours, theirs in zip(told["report"], expected.layers, strict=True):
            assert_same(ours, theirs.to_dict())
        assert_same(told["test"], expected.test.last.to_dict())
        assert_same(told["again"], nclab.measure(model, loader).last.to_dict())
        assert told["own"] == int((MADE.labels[shares[rank]] >= 0).sum())


def test_rare_classes_are_left_out_of_all_parts_together(found: list[dict[str, Any]]) -> None:
    expected = nclab.measure(
        work.network(), work.batches(EVERYTHING, MADE), min_count=work.FEWEST, metrics="all"
    ).last
    assert expected.left_out
    assert expected.nc1_trace_pinv is not None
    for told in found:
        assert told["rare"] == found[0]["rare"]
        assert_same(told["rare"], expected.to_dict())


def test_residuals_of_unlike_labels_are_none_of_the_whole(found: list[dict[str, Any]]) -> None:
    assert [told["residuals"] for told in found] == [False] * len(found)


def test_what_one_process_refuses_all_refuse(found: list[dict[str, Any]]) -> None:
    for rank, told in enumerate(found):
        whose = "Expected labels in [0, 11)" if rank == 1 else "processes [1] could not"
        assert whose in told["bad label"]
        assert "one process for intervals and shuffled_labels" in told["no null"]
        assert "exceed cache_bytes=0" in told["once"]
        assert "the same features in both passes" in told["changed"]
        assert "processes [0] saw no batch" in told["no batch"]
        assert "Expected moments of the same classes" in told["unlike"]
        assert "second passes with the same class means" in told["other means"]
        assert not any("\n" in said for said in told.values() if isinstance(said, str))


def test_a_process_that_dies_ends_the_others() -> None:
    started = time.monotonic()
    done = torchrun(MODULE, 2, "die")
    assert done.returncode != 0
    assert time.monotonic() - started < 120


def test_without_a_launcher_the_others_say_so_in_one_line() -> None:
    first, second = without_launcher(MODULE, 2, "die")
    _, said = first.communicate(timeout=120)
    second.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (2, -9)
    last = said.splitlines()[-1]
    assert last.startswith("nclab: Expected 2 processes to work together, but rank 0 lost")
    assert "restart all processes" in last


def test_one_process_shares_nothing(tmp_path: Path) -> None:
    assert DistributedData.over(None) is None
    assert DistributedData.over("local") is None
    with pytest.raises(nclab.DataError, match="'local' for this one alone, got 'mine'"):
        nclab.measure(work.network(), work.batches(EVERYTHING, MADE), process_group="mine")  # type: ignore[arg-type]
