"""Example 3.1 of ji2022: verdicts follow the runs, and figures hold their arrays."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.claims.pictures import write_results
from nclab.figures.picture import HeatMap, Panel
from nclab.records.results import read_json
from nclab_papers.ji2022 import saddle

STUCK, NOISE = saddle.example_3_1_stuck, saddle.example_3_1_noise


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return saddle.run(saddle.Config(), seeds=(0, 1), out=Path("unused"))


def test_the_point_is_a_strict_saddle_at_every_scale(numbers: dict[str, Any]) -> None:
    values = [point["smallest_eigenvalue"] for point in numbers["points"]]
    assert values == pytest.approx([-0.184934, -0.181568, -0.021491], abs=1e-6)
    assert {point["kind"] for point in numbers["points"]} == {"strict saddle"}


def test_only_noise_in_every_coordinate_escapes(numbers: dict[str, Any]) -> None:
    assert [seed["seed"] for seed in numbers["per_seed"]] == [0, 1]
    for ends in numbers["per_seed"]:
        assert ends["stuck"]["off_ray"] < 1e-12
        assert ends["stochastic"]["off_plane"] < 1e-9
        assert ends["noisy"]["off_plane"] > 0.1
        assert ends["settled"]["normalised_margin"] > 0.999
    assert STUCK.judge(numbers).verdict is Verdict.HOLDS
    assert NOISE.judge(numbers).verdict is Verdict.CORRECTED


def test_verdicts_follow_the_worst_seed(numbers: dict[str, Any]) -> None:
    wrong = copy.deepcopy(numbers)
    wrong["per_seed"][1]["stuck"]["off_ray"] = 0.1
    wrong["per_seed"][1]["settled"]["normalised_margin"] = 0.75
    assert STUCK.judge(wrong).verdict is Verdict.REFUTED
    assert NOISE.judge(wrong).verdict is Verdict.REFUTED


def test_claims_use_the_numbers_of_the_experiment(numbers: dict[str, Any]) -> None:
    for claim in (STUCK, NOISE):
        assert claim.check(numbers=numbers).evidence == claim.judge(numbers).evidence


def test_the_tables_have_every_scale_and_run(numbers: dict[str, Any]) -> None:
    points, ends = saddle.tables(numbers)
    assert [row[:2] for row in points.rows] == [
        (scale, "strict saddle") for scale in ("0.5", "1", "1.5")
    ]
    assert [row[3] for row in ends.rows][::3] == ["0.7500 ± 0.0000", "1.0000 ± 0.0000"]


def test_figures_hold_the_samples(numbers: dict[str, Any], tmp_path: Path) -> None:
    escape, loss_map = saddle.pictures(numbers)
    assert isinstance(escape.panels[0], Panel)
    names = [series.label for series in escape.panels[0].series]
    assert names[:2] == ["plain descent", "stochastic descent"]
    last = numbers["samples"]["settled"][-1]["normalised_margin"]
    assert escape.panels[0].series[3].y[-1] == last
    assert isinstance(loss_map.panels[0], HeatMap)
    values = np.array(loss_map.panels[0].values, dtype=float)
    assert values[30, 30] == 0.0
    assert values.min() < -0.05
    write_results(saddle.pictures(numbers), numbers, tmp_path)
    assert read_json(tmp_path / "numbers.json")["per_seed"] == numbers["per_seed"]
    assert {path.name for path in tmp_path.iterdir()} >= {"escape.svg", "slice.png"}
