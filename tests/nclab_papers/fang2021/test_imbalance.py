"""The study of imbalance: class sizes, one tiny run with its targets, and its picture."""

import json
from pathlib import Path

import pytest

from nclab.figures.matplotlib_renderer import draw
from nclab_papers.fang2021 import imbalance
from nclab_papers.fang2021.imbalance import PRESETS, Config, fleet
from nclab_papers.shared.networks import FieldNetworks
from nclab_papers.shared.study import as_rows
from tests.claims.paper_attacks import IDEAL

TINY = Config(
    FieldNetworks(width=12, layers=2, samples=50, epochs=3, batch=25, workers=0),
    imbalances=(1, 10),
    weight_decays=(1e-2,),
)


def test_every_imbalance_has_2000_samples() -> None:
    for ratio in PRESETS["paper"].imbalances:
        large, small = PRESETS["paper"].counts(ratio)
        assert 5 * (large + small) == 2000
        assert large / small == pytest.approx(ratio, rel=0.02)


@pytest.mark.usefixtures("small")
def test_a_tiny_study_is_trained_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fleet(TINY, 10, 0).draw().train.counts == [9] * 5 + [1] * 5
    numbers = imbalance.run(TINY, seeds=(0,), out=tmp_path)
    rows = as_rows(numbers)
    assert [(row["imbalance"], row["ratio"]) for row in rows] == [(1, 1.0), (10, 9.0)]
    for row in rows:
        assert 0 < row["from_target"] < 1.5
        assert -1 <= row["minority"] <= 1
    assert rows[0]["from_etf"] == pytest.approx(rows[0]["from_seli"], abs=1e-5), "no imbalance"
    assert rows[0]["target_minority"] == pytest.approx(-1 / 9, abs=1e-4)
    json.dumps(numbers, allow_nan=False)
    monkeypatch.setattr("nclab.training.sweep.rows_only.train_rows_group", None)
    assert imbalance.run(TINY, seeds=(0,), out=tmp_path) == numbers
    assert len(imbalance.tables(numbers)[0].rows) == 2


def test_networks_are_solid_and_targets_dashed() -> None:
    [picture] = imbalance.pictures(IDEAL["fang2021_imbalance"])
    assert len(draw(picture).axes) == 2
    angles = picture.panels[0]
    assert [line.style for line in angles.series[:2]] == ["solid", "dashed"]  # type: ignore[union-attr]
