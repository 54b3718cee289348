"""Maps agree with the targets that they are maps of."""

import math

import pytest

import nclab
from nclab.errors import DataError
from nclab.theory.targets.phase_maps import bias_map, depth_map, imbalance_map, phase_map


def test_imbalance() -> None:
    found = imbalance_map(large=3, small=3, steps=5)
    for row, ratio in zip(found["cosines"], found["ratios"], strict=True):
        n = 3 * ratio + 3
        for cosine, decay in zip(row, found["weight_decays"], strict=True):
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
    found = bias_map(num_classes=4, steps=6)
    for place in (0, 3, 5):
        share, penalty = found["shares"][2], found["penalties"][place]
        t = share * math.sqrt(5) / 20
        target = nclab.target(counts=[5] * 4, loss="mse", weight_decay=(t, t), bias=penalty)
        expected = float(target.classifier_cosines[0, 1])
        assert found["cosines"][2][place] == pytest.approx(expected, abs=1e-9)


def test_depth() -> None:
    found = depth_map(largest=10, deepest=4)
    names, classes = found["names"], found["classes"]
    shallow = [names[winner] for winner in found["winners"][0]]
    assert set(shallow) == {"simplex ETF"}
    at_three = dict(zip(classes, (names[w] for w in found["winners"][1]), strict=True))
    assert at_three[6] == at_three[8] == at_three[10] == "orthoplex"
    assert at_three[5] == "simplex ETF"


def test_unknown_maps_are_refused() -> None:
    with pytest.raises(DataError, match="imbalance, bias, depth, got 'x'"):
        phase_map("x")
