"""Example 3.1 of ji2022: the verdicts follow the runs, the figures hold their arrays."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nclab.papers.keep import keep, read_json

from nclab.figures.picture import HeatMap, Panel
from nclab.papers.ji2022 import saddle as ji2022_saddle
from nclab.papers.ji2022.example import findings
from nclab.papers.ji2022.saddle import Config, saddle
from nclab.papers.ledger import judge_all

STUCK, NOISE = "ji2022/example-3.1-stuck", "ji2022/example-3.1-noise"


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return saddle(Config(), seeds=(0, 1))


def test_the_point_is_a_strict_saddle_at_every_scale(numbers: dict[str, Any]) -> None:
    values = [point["smallest_eigenvalue"] for point in numbers["points"]]
    assert values == pytest.approx([-0.184934, -0.181568, -0.021491], abs=1e-6)
    assert {point["kind"] for point in numbers["points"]} == {"strict saddle"}


def test_only_noise_in_every_coordinate_escapes(numbers: dict[str, Any]) -> None:
    assert [one["seed"] for one in numbers["per_seed"]] == [0, 1]
    for one in numbers["per_seed"]:
        assert one["stuck"]["off_ray"] < 1e-12
        assert one["stochastic"]["off_plane"] < 1e-9
        assert one["noisy"]["off_plane"] > 0.1
        assert one["settled"]["normalised_margin"] > 0.999
    assert numbers["findings"][STUCK]["verdict"] == "holds"
    assert numbers["findings"][NOISE]["verdict"] == "holds with a correction"


def test_verdicts_follow_the_worst_seed(numbers: dict[str, Any]) -> None:
    wrong = copy.deepcopy(numbers)
    wrong["per_seed"][1]["stuck"]["off_ray"] = 0.1
    wrong["per_seed"][1]["settled"]["normalised_margin"] = 0.75
    found = findings(wrong)
    assert [found[name]["verdict"] for name in (STUCK, NOISE)] == ["refuted", "refuted"]


def test_claims_are_judged_from_the_experiment(numbers: dict[str, Any]) -> None:
    experiments = {"ji2022_saddle": {**numbers, "preset": "paper"}}
    for row in judge_all(experiments=experiments, ids=[STUCK, NOISE]):
        assert row["evidence"] == numbers["findings"][row["id"]]["evidence"]
        assert row["preset"] == "paper"


def test_figures_hold_the_samples(numbers: dict[str, Any], tmp_path: Path) -> None:
    escape, around = ji2022_saddle.pictures(numbers)
    assert isinstance(escape.panels[0], Panel)
    names = [series.label for series in escape.panels[0].series]
    assert names[:2] == ["plain descent", "stochastic descent"]
    last = numbers["samples"]["settled"][-1]["normalised_margin"]
    assert escape.panels[0].series[3].y[-1] == last
    assert isinstance(around.panels[0], HeatMap)
    values = np.array(around.panels[0].values, dtype=float)
    assert values[30, 30] == 0.0
    assert values.min() < -0.05
    keep(ji2022_saddle, numbers, tmp_path)
    assert read_json(tmp_path / "numbers.json")["per_seed"] == numbers["per_seed"]
    assert {path.name for path in tmp_path.iterdir()} >= {"escape.svg", "slice.png"}
