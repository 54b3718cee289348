"""Experiments train their networks on the given engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nclab.claims.paper import find_preset
from nclab.claims.registry import find_experiments
from nclab.engine import Engine, Job
from nclab.engine.jobs import JobList
from nclab.errors import NclabError
from nclab.training.data import fashion_mnist
from nclab.training.sweep import train_sweep
from tests.nclab_papers.pan2023.author_files import use_author_files
from tests.training.sweep.small import small

UNTRAINED = ("guarantees", "drawings", "regime", "author_results")
TRAINING = [
    name for name in find_experiments(["pan2023"]) if name.removeprefix("pan2023_") not in UNTRAINED
]
TRAINING += ["ji2022_fig3", "findings_terminal_phase"]


class RecordingEngine(Engine):
    """Engine with three slots that records its jobs and trains nothing."""

    here = False

    def __init__(self) -> None:
        self.jobs: Sequence[Job] = ()
        self.asked: dict[str, Any] = {}

    def slots(self) -> int:
        return 3

    def run_all(self, work: JobList) -> None:
        self.jobs, self.asked = work.jobs, vars(work)
        raise NclabError("Asked.")


@pytest.mark.parametrize("name", TRAINING)
def test_experiments_train_on_the_given_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fashion_mnist, "load", lambda **_: None)
    monkeypatch.chdir(tmp_path)
    use_author_files(tmp_path / "author", monkeypatch)
    engine = RecordingEngine()
    experiment = find_experiments([name])[name]
    with pytest.raises(NclabError, match="Asked"):
        experiment.run(
            find_preset(experiment, "quick"), seeds=(0,), out=Path("runs"), engine=engine
        )
    assert engine.jobs
    assert engine.asked["folder"].parent == tmp_path / "runs"


def test_a_sweep_is_split_into_one_group_per_slot(tmp_path: Path) -> None:
    engine = RecordingEngine()
    with pytest.raises(NclabError, match="Asked"):
        train_sweep(small(), tmp_path, engine=engine)
    assert [len(job.arguments[0].plans) for job in engine.jobs] == [2, 1, 1]
    with pytest.raises(NclabError, match="Asked"):
        train_sweep(small(), tmp_path, engine=engine, workers=1)
    assert engine.asked["workers"] == 1  # not 0, which would be this process


def test_a_cluster_rejects_graphics_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(NclabError, match="Expected device 'cpu' on a cluster, got 'cuda'"):
        train_sweep(small(), tmp_path, engine=RecordingEngine(), device="cuda")
