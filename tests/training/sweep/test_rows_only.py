"""Sweeps that keep one row per network: order, resuming after a kill, damaged files."""

import pickle
from pathlib import Path

import pytest

from nclab.engine import ReportStep
from nclab.errors import DataError, NclabWarning
from nclab.training.data.artificial import Teacher
from nclab.training.fleet import Fleet, Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import Row, SweepConfig, rows_only
from nclab.training.sweep.group import Group
from nclab.training.sweep.rows_only import FOLDER, TrainedNetwork, train_rows

DECAYS = (1e-3, 1e-2)


def config(seed: int = 0, **recipe: float) -> SweepConfig:
    return SweepConfig(
        data=Teacher(samples=120, width=12, seed=seed),
        shape=Shape(layers=3, width=8),
        norms=("affine",),
        weight_decays=DECAYS,
        seeds=(seed,),
        recipe=Recipe(epochs=3, batch=40, **recipe),  # type: ignore[arg-type]
    )


def norms(trained_network: TrainedNetwork) -> Row:
    """Return a number that depends on every step."""
    return {
        "norm": float(trained_network.model.classifier.weight.detach().norm()),
        "n": len(trained_network.train),
    }


def count(network: TrainedNetwork) -> Row:
    return {"samples": len(network.train)}


def raising(trained_network: TrainedNetwork) -> Row:
    if trained_network.weight_decay > 5e-3:
        raise DataError("nothing to measure")
    return {"norm": 1.0}


def test_rows_are_those_of_a_fleet_in_the_order_of_the_configs(tmp_path: Path) -> None:
    configs = [config(seed) for seed in (0, 1)]
    results = train_rows(configs, tmp_path, norms, workers=0)
    for single, rows in zip(configs, results, strict=True):
        samples = single.draw().train
        fleet = Fleet(single.shape_for(samples), single.members, single.recipe, *samples)
        for _ in range(3):
            fleet.train_epoch()
        for index, row in enumerate(rows):
            expected = float(fleet.model(index).classifier.weight.detach().norm())
            assert row["norm"] == expected
            assert (row["weight_decay"], row["seed"], row["why"]) == (
                DECAYS[index],
                single.seeds[0],
                None,
            )


def test_only_missing_networks_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill, only finished groups have files."""
    complete = train_rows([config(0), config(1)], tmp_path / "complete", norms, workers=0)
    first = train_rows([config(0)], tmp_path / "part", norms, workers=0)
    trained: list[int] = []
    before = rows_only.train_rows_group

    def counted(report: ReportStep, group: Group, measure: rows_only.MeasureRow) -> None:
        trained.append(group.plans[0].member.seed)
        before(report, group, measure)

    monkeypatch.setattr(rows_only, "train_rows_group", counted)
    leftover = tmp_path / "part" / FOLDER / ".abc.json.0123456789ab"
    leftover.write_text("{")  # of a writer that was killed
    assert train_rows([config(1), config(0)], tmp_path / "part", norms, workers=0) == complete[::-1]
    assert set(trained) == {1}
    assert not leftover.exists()
    assert first == complete[:1]
    train_rows([config(0)], tmp_path / "part", count, workers=0)
    assert 0 in trained, "another measure has other rows"


def test_networks_of_a_damaged_file_are_trained_again_with_a_warning(tmp_path: Path) -> None:
    rows = train_rows([config()], tmp_path, norms, workers=0)
    for file in (tmp_path / FOLDER).iterdir():
        file.write_text(file.read_text()[:-9])
    with pytest.warns(NclabWarning, match="is skipped and its networks are trained again"):
        assert train_rows([config()], tmp_path, norms, workers=0) == rows


def test_a_network_without_numbers_has_a_reason(tmp_path: Path) -> None:
    [[good, bad]] = train_rows([config()], tmp_path, raising, workers=0)
    assert good["norm"] == 1.0
    assert bad["why"] == "nothing to measure"
    [[dead, _]] = train_rows([config(rate=1e30)], tmp_path, norms, workers=0)
    assert "in epoch" in dead["why"]
    assert "norm" not in dead


def test_a_group_can_be_pickled(tmp_path: Path) -> None:
    single = config()
    samples = single.draw().train
    group = Group(single, tuple(single.plan(samples)), samples, tmp_path)
    job, arguments = pickle.loads(pickle.dumps((rows_only.train_rows_group, (group, count))))
    steps: list[tuple[int, int]] = []
    job(lambda *word: steps.append(word), *arguments)
    assert steps[-1] == (18, 18), "two models, three epochs of three steps"
    assert len(list(tmp_path.iterdir())) == 1
