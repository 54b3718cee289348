"""The study of losses: recipes, one tiny run, and logit gaps with their predictions."""

import json
from pathlib import Path

import pytest
import torch

from nclab.figures.matplotlib_renderer import draw
from nclab_papers.shared.networks import FieldNetworks
from nclab_papers.shared.study import as_rows
from nclab_papers.zhou2022 import losses
from nclab_papers.zhou2022.losses import LOSSES, PRESETS, Config, gap, gap_error, recipe_of
from tests.claims.paper_attacks import IDEAL

TINY = Config(
    FieldNetworks(width=12, layers=2, samples=60, epochs=3, batch=30, workers=0),
    data=("teacher",),
    classes=(4,),
    weight_decays=(1e-2,),
)


def test_only_the_squared_error_has_its_own_bias_decay() -> None:
    paper = PRESETS["paper"]
    assert recipe_of(paper, "focal") == {"loss": "focal", "rate": 0.03}
    assert recipe_of(paper, "mse")["head_bias_decay"] == 0.0
    assert recipe_of(paper, "mse_penalised")["head_bias_decay"] == 1.0


def test_a_tiny_study_is_trained_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = losses.run(TINY, seeds=(0,), out=tmp_path)
    rows = as_rows(numbers)
    assert [row["loss"] for row in rows] == list(LOSSES)
    assert all(0 <= row["test_accuracy"] <= 1 for row in rows)
    gaps = {row["loss"]: row["predicted_gap"] for row in rows}
    assert gaps["label_smoothing"] < gaps["cross_entropy"]
    assert 0 < gaps["mse"] < 1
    json.dumps(numbers, allow_nan=False)
    monkeypatch.setattr("nclab.training.sweep.rows_only.train_rows_group", None)
    assert losses.run(TINY, seeds=(0,), out=tmp_path) == numbers
    assert len(losses.tables(numbers)[0].rows) == 5


def test_the_gap_compares_the_correct_logit_with_the_others() -> None:
    logits = torch.tensor([[4.0, 0.0, 1.0], [2.0, 5.0, 0.0]])
    assert gap(logits, torch.tensor([0, 1])) == pytest.approx((3.5 + 4.0) / 2)
    assert gap_error({"gap": 10.0, "predicted_gap": 1.0}) == 1.0
    assert gap_error({"gap": -1.0, "predicted_gap": 1.0}) == 10.0


def test_the_picture_shows_all_losses() -> None:
    [picture] = losses.pictures(IDEAL["zhou2022_losses"])
    assert len(draw(picture).axes) == 3
    assert len(picture.panels[0].series) == 5  # type: ignore[union-attr]
