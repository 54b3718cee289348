"""Networks restored from recorded evidence give the same numbers without training."""

import runpy
from pathlib import Path

import pytest

from nclab.claims import evidence
from nclab.claims.evidence import restore_networks
from nclab.errors import RecordError
from nclab.records import find_runs
from nclab.records.verify import verify_folder
from nclab.training.sweep import train
from nclab_papers.pan2023 import complexity, conjectures, fig33
from tests.cli.runner import call
from tests.nclab_papers.pan2023.tiny import DECAYS, TINY

PAPER = "pan2023"
BUILDER = Path(__file__).parents[3] / "docs" / "build_experiments.py"
record_networks = runpy.run_path(str(BUILDER))["record_networks"]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "networks.jsonl"
    monkeypatch.setattr(evidence, "networks_file", lambda paper: file)
    monkeypatch.setattr("nclab.records.manifest.commit", lambda: "0" * 40)
    monkeypatch.setattr(
        "sys.argv",
        ["/some/where/nclab", "reproduce", "--preset", "paper", "--out", "/some/where/else"],
    )
    return file


def test_restored_networks_give_the_same_numbers_without_training(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    place = conjectures.ConjectureSetting(TINY, "teacher", 4, DECAYS)
    configs = [
        (fig33, fig33.Config(TINY, layers=4, weight_decays=DECAYS)),
        (conjectures, conjectures.Config((place,))),
        (complexity, complexity.Config(TINY, 4, (3,), DECAYS)),
    ]
    seen = [module.run(config, seeds=(0,), out=first) for module, config in configs]
    assert record_networks(PAPER, first) == len(DECAYS)
    assert "/some/where" not in kept.read_text()
    assert record_networks(PAPER, first) == 0
    assert restore_networks(PAPER, second) == len(DECAYS)
    assert restore_networks(PAPER, second) == 0
    assert all(one.state == "good" for one in verify_folder(second))

    def trained(*_: object) -> None:
        raise AssertionError("a recorded network was trained again")

    monkeypatch.setattr(train, "train_group", trained)
    assert [module.run(config, seeds=(0,), out=second) for module, config in configs] == seen
    for one, other in zip(find_runs(first), find_runs(second), strict=True):
        ends = [(folder / "journal.jsonl").stat().st_mtime for folder in (one, other)]
        assert ends[0] == pytest.approx(ends[1], abs=1)


def test_networks_of_a_reduced_size_are_not_recorded(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["nclab", "reproduce", "--preset", "quick"])
    TINY.train(tmp_path, TINY.sweeps(seeds=(0,), layers=2, weight_decays=(1e-3,)))
    assert record_networks(PAPER, tmp_path) == 0


def test_networks_of_changed_code_are_not_recorded(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nclab.records.manifest.commit", lambda: f"{'0' * 40}-dirty")
    TINY.train(tmp_path, TINY.sweeps(seeds=(0,), layers=2, weight_decays=(1e-3,)))
    with pytest.raises(RecordError, match="from a clean commit"):
        record_networks(PAPER, tmp_path)


def test_recorded_networks_at_a_reduced_size_raise(tmp_path: Path) -> None:
    done = call("reproduce", "tour", "--recorded", "--out", tmp_path / "runs")
    assert done.code == 2
    assert "--preset paper" in done.err
    assert not (tmp_path / "runs").exists()
