"""A short part of every campaign; `make fuzz` runs as many attacks as you like."""

import json
import random
from pathlib import Path

import pytest

from nclab.records import open_run
from tests.cli.runner import call
from tests.fuzz import __main__ as fuzz
from tests.fuzz import files, reports, structure


def test_a_campaign_goes_on_where_it_was_stopped_with_any_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coin(chance: random.Random) -> bool:
        if chance.random() < 0.03:
            raise ValueError("unlucky")
        return chance.random() < 0.5

    monkeypatch.setattr(fuzz, "CAMPAIGNS", {"coins": lambda folder: coin})
    states = []
    for counts, workers in (((90,), 1), ((50, 40), 2)):
        monkeypatch.setattr(fuzz, "KEPT", tmp_path / str(workers))
        for count in counts:
            fuzz.main(["coins", "--count", str(count), "--workers", str(workers)])
        states.append(json.loads((tmp_path / str(workers) / "coins.json").read_text()))
    assert states[0] == states[1]
    assert states[0]["done"] == 90
    assert 0 < len(states[0]["bad"]) < 10
    assert fuzz.main(["coins", "--count", "1"]) == 1


def test_damaged_files_are_refused_in_our_own_words(tmp_path: Path) -> None:
    attack = files.campaign(tmp_path)
    assert sum(attack(random.Random(number)) for number in range(1000)) > 400


def test_the_good_files_are_good(tmp_path: Path) -> None:
    for name, content in files.originals().items():
        (tmp_path / name).write_bytes(content)
        files.use(tmp_path / name)


def test_killed_reports_are_whole(tmp_path: Path) -> None:
    attack = reports.campaign(tmp_path)
    for number in range(6):
        attack(random.Random(number))


def test_what_says_something_else_costs_only_itself(tmp_path: Path) -> None:
    attack = structure.campaign(tmp_path)
    assert sum(attack(random.Random(number)) for number in range(10)) > 5


@pytest.mark.parametrize(
    "record",
    [
        {"layers": [0.1]},
        {"layers": [{"accuracy": "0.9", "loss": {}, "mean_inter": "1"}]},
        {"layers": [{"accuracy": 10**400, "min_intra": [1]}], "epoch": {"a": 1}, "step": "x"},
        {"layers": {"a": 1}, "train": [1], "split": {"b": 2}},
        {"layers": [{"min_intra": True, "num_classes": "four"}], "train": {"loss": "x"}},
    ],
)
def test_a_record_of_the_public_door_hides_nothing(
    tmp_path: Path, record: dict[str, object]
) -> None:
    for name in ("one", "two"):
        with open_run(tmp_path / name, kind="fleet", config={}, seed=0) as run:
            run.append({"kind": "measurement", **(record if name == "one" else {"step": 1})})
            run.finish(**({"accuracy": "no number"} if name == "one" else {}))
    for options in ((), ("--json",)):
        done = call("runs", tmp_path, *options)
        assert (done.code, done.err) == (0, "")
        assert "two" in done.out
    assert call("report", tmp_path).code == 0
