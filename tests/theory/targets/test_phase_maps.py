"""Maps agree with the targets of their settings, and take networks as points."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import nclab
from nclab.errors import DataError
from nclab.figures.targets import map_picture
from nclab.theory.targets.phase_maps import (
    COLUMNS,
    bias_map,
    depth_map,
    imbalance_map,
    phase_map,
    read_points,
    with_points,
)

NUMBERS: dict[str, Any] = {
    "imbalance": imbalance_map(large=2, small=2, steps=3),
    "bias": bias_map(steps=4),
    "depth": depth_map(largest=6, deepest=3),
}


def test_imbalance() -> None:
    numbers = imbalance_map(large=3, small=3, steps=5)
    for row, ratio in zip(numbers["cosines"], numbers["ratios"], strict=True):
        n = 3 * ratio + 3
        for cosine, decay in zip(row, numbers["weight_decays"], strict=True):
            t = decay / math.sqrt(n)
            target = nclab.target(counts=[ratio] * 3 + [1.0] * 3, weight_decay=(t, t))
            assert (cosine is None) == target.is_zero
            if cosine is not None:
                assert (cosine > 1 - 1e-9) == (n * t >= 1)
                assert (n * t >= 1) == bool(target.merged or target.lost)
            if cosine is not None and not target.lost:
                expected = float(target.classifier_cosines[-1, -2])
                assert cosine == pytest.approx(expected, abs=1e-3)


def test_bias() -> None:
    numbers = bias_map(num_classes=4, steps=6)
    for index in (0, 3, 5):
        share, penalty = numbers["shares"][2], numbers["penalties"][index]
        t = share * math.sqrt(5) / 20
        target = nclab.target(counts=[5] * 4, loss="mse", weight_decay=(t, t), bias=penalty)
        expected = float(target.classifier_cosines[0, 1])
        assert numbers["cosines"][2][index] == pytest.approx(expected, abs=1e-9)


def test_depth() -> None:
    numbers = depth_map(largest=10, deepest=4)
    names, classes = numbers["names"], numbers["classes"]
    shallow = [names[winner] for winner in numbers["winners"][0]]
    assert set(shallow) == {"simplex ETF"}
    at_three = dict(zip(classes, (names[w] for w in numbers["winners"][1]), strict=True))
    assert at_three[6] == at_three[8] == at_three[10] == "orthoplex"
    assert at_three[5] == "simplex ETF"


def test_unknown_maps_raise() -> None:
    with pytest.raises(DataError, match="imbalance, bias, depth, got 'x'"):
        phase_map("x")


@pytest.mark.parametrize("kind", COLUMNS)
def test_points_are_drawn_by_state(kind: str) -> None:
    first, second = COLUMNS[kind]
    rows = [{first: 5, second: 2, "state": "a"}, {first: "7", second: "3", "state": "b", "x": 1}]
    picture = map_picture(with_points(NUMBERS[kind], rows))
    labels = [series.label for panel in picture.panels for series in getattr(panel, "series", ())]
    assert labels[-2:] == ["a", "b"]
    plain = map_picture(NUMBERS[kind])
    assert len(plain.panels) + (kind == "depth") == len(picture.panels)


def test_rows_of_a_sweep_have_a_state_by_their_cosine(tmp_path: Path) -> None:
    file = tmp_path / "nets.csv"
    file.write_text("imbalance,weight_decay,minority_cosine\n10,0.01,0.999\n10,0.001,-0.1\n3,1,\n")
    points = with_points(NUMBERS["imbalance"], read_points(file))["points"]
    assert [point["state"] for point in points] == ["merged", "apart", "network"]
    other = tmp_path / "nets.json"
    other.write_text(json.dumps({"rows": [{"imbalance": 2, "weight_decay": 0.1}]}))
    assert with_points(NUMBERS["imbalance"], read_points(other))["points"][0]["imbalance"] == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nets.txt", "", "as .csv or .json"),
        ("nets.json", "{", "Expected JSON"),
        ("nets.json", '{"a": 1}', "list of rows"),
        ("nets.json", "[5]", "rows with columns, got 5"),
        ("nets.json", "[]", "at least one point"),
        ("nets.csv", "imbalance\n3\n", "weight_decay = None in row 1"),
        ("nets.csv", "run,imbalance,optimizer,weight_decay,seed\na,3,sgd,1,0\n", "as --runs"),
        ("nets.csv", "imbalance,weight_decay\n3,-1\n", "weight_decay = '-1' in row 1"),
    ],
)
def test_bad_files_raise(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(DataError) as raised:
        with_points({"map": "imbalance"}, read_points(file))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
