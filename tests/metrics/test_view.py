"""Tests of sweeps over all pairs of classes, in tiles and in parts."""

import pytest
import torch

import nclab
from nclab.metrics import view
from nclab.metrics.cosine import ClosestPairs
from nclab.metrics.nc1_variability import upper_factor
from nclab.metrics.view import reduce_pairs
from nclab.statistics import blocks
from tests.clouds import cloud


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tiles of 7 rows."""
    monkeypatch.setattr(view, "TILE", 7)


def test_equal_means_give_an_infinite_cdnv(small_tiles: None) -> None:
    data = cloud(num_classes=53, dim=11, per_class=4, seed=3)
    features = data.features.clone()
    features[data.labels == 31] = features[data.labels == 7]
    result = nclab.measure_features(features, data.labels)
    assert result.cdnv == float("inf")


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_closest_pairs_equal_those_of_all_products(small_tiles: None, offset: float) -> None:
    generator = torch.Generator().manual_seed(6)
    rows = torch.randn(97, 9, generator=generator, dtype=torch.float64) + offset
    rows /= rows.norm(dim=1, keepdim=True)
    gram = (rows @ rows.T).triu(1) + torch.full((97, 97), -9.0).tril().double()
    values, positions = gram.flatten().topk(10)
    closest = ClosestPairs()
    reduce_pairs(rows, closest)
    assert [pair.row * 97 + pair.col for pair in closest.pairs] == positions.tolist()
    assert [pair.value for pair in closest.pairs] == pytest.approx(values.tolist(), abs=1e-15)


def test_a_factor_in_parts_has_an_equal_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MANY_CLASSES", 10)
    rows = torch.randn(300, 5, generator=torch.Generator().manual_seed(8)).double()
    factor = upper_factor(rows).triu()
    assert torch.allclose(factor.T @ factor, rows.T @ rows, rtol=1e-12)
