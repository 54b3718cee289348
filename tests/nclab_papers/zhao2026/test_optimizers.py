"""The study of optimisers: its design, one tiny run, its table and its picture."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from nclab.claims.claim import Verdict
from nclab.claims.evidence import describe_size
from nclab.figures.matplotlib_renderer import draw
from nclab_papers.shared.networks import FieldNetworks
from nclab_papers.shared.study import as_columns, as_rows
from nclab_papers.zhao2026 import optimizers
from nclab_papers.zhao2026.optimizers import NO_MOMENTUM, PRESETS, Config, arms
from tests.claims.paper_attacks import IDEAL

TINY = Config(
    FieldNetworks(width=8, layers=2, samples=60, epochs=2, batch=30, workers=0),
    rates=(0.03,),
    classes=(4, 5),
    data=("teacher",),
    weight_decays=(0.0, 1e-2, 3.0),
)


def test_the_design_has_10560_networks_and_576_without_momentum() -> None:
    fleets = arms(PRESETS["paper"], range(8))
    sizes = {
        plain: sum(
            len(config.members)
            for setting, config in fleets
            if (setting["optimizer"] == NO_MOMENTUM) is plain
        )
        for plain in (False, True)
    }
    assert sizes == {False: 10_560, True: 576}
    assert len({repr(config) for _, config in fleets}) == len(fleets), "a network is repeated"


def test_arms_share_seeds_and_have_matched_rates() -> None:
    fleets = arms(TINY, (3,))
    recipes = {setting["optimizer"]: config.recipe for setting, config in fleets}
    assert {name: recipe.rate for name, recipe in recipes.items()} == {
        "sgd": 0.03,
        "sgdw": 0.03,
        "adam": 0.003,
        "adamw": 0.003,
        "signum": 0.003,
        NO_MOMENTUM: 0.3,
    }
    assert recipes[NO_MOMENTUM].momentum == 0
    assert {config.seeds for _, config in fleets} == {(3,)}
    assert {config.data.seed for _, config in fleets} == {3}  # type: ignore[union-attr]
    [decays] = {
        config.weight_decays for setting, config in fleets if setting["optimizer"] == NO_MOMENTUM
    }
    assert decays == (0.0, 1e-2)


def test_a_tiny_study_is_trained_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = optimizers.run(TINY, seeds=(0,), out=tmp_path)
    rows = as_rows(numbers)
    assert len(rows) == 2 * (5 * 3 + 2)
    assert {row["optimizer"] for row in rows} == {*optimizers.OPTIMIZERS, NO_MOMENTUM}
    json.dumps(numbers, allow_nan=False)
    assert "34 networks; 2 layers of width 8" in describe_size(numbers | {"preset": "tiny"})
    monkeypatch.setattr("nclab.training.sweep.rows_only.train_rows_group", None)
    assert optimizers.run(TINY, seeds=(0,), out=tmp_path) == numbers
    assert len(optimizers.tables(numbers)[0].rows) == 5 * 3 + 2


def test_pictures_show_only_networks_that_count() -> None:
    numbers = IDEAL["zhao2026_optimizers"]
    [picture] = optimizers.pictures(numbers)
    assert len(draw(picture).axes) == 4
    line = picture.panels[0].series[0]  # type: ignore[union-attr]
    assert (line.label, line.x[0]) == ("SGD", 1e-4)
    failed = as_columns([{**row, "accuracy": 0.5} for row in as_rows(numbers)])
    assert optimizers.pictures({**numbers, "networks": failed}) == []
    assert "0 of 32" in optimizers.tables({**numbers, "networks": failed})[0].rows[0]


def test_parity_without_odd_numbers_of_classes_is_open() -> None:
    numbers = IDEAL["zhao2026_optimizers"]
    even = as_columns([row for row in as_rows(numbers) if row["classes"] % 2 == 0])
    config = {**numbers["config"], "classes": [4, 6]}
    finding = optimizers.parity.judge({**numbers, "networks": even, "config": config})
    assert finding.verdict is Verdict.OPEN


def test_evidence_of_the_complete_study_is_small() -> None:
    """Rows with six digits per number take about 100 bytes as columns."""
    row = {"optimizer": "adamw", "data": "fashion", "classes": 7, "rate": 0.003, "seed": 7}
    row |= {"weight_decay": 0.0003, "accuracy": 0.9995}
    names = ("loss", "nc0", "nc1", "nc2", "nc3", "raw_nc1", "raw_nc2", "raw_nc3")
    row |= dict.fromkeys(names, 0.00123457)
    numbers = {"config": asdict(PRESETS["paper"]), "networks": as_columns([row] * 11_136)}
    assert len(json.dumps(numbers, separators=(",", ":"))) < 3e6
