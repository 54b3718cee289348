"""NC4 where published codes go wrong: a bias that decides, an offset that swamps."""

import numpy as np
import pytest
import torch

import nclab
from tests.clouds import cloud
from tests.reference.slow import slow_metrics


def test_a_bias_that_decides_the_class() -> None:
    data = cloud(num_classes=4, dim=6, per_class=25, noise=0.1)
    bias = torch.tensor([1e4, 0.0, 0.0, 0.0], dtype=torch.float64)
    collapse = nclab.measure_features(data.features, data.labels, data.weight, bias)
    assert collapse.nc4_ncc_accuracy == 1.0
    assert collapse.accuracy == 0.25  # everything is called class 0
    assert collapse.nc4_agreement == 0.25
    without = nclab.measure_features(data.features, data.labels, data.weight)
    assert without.nc4_agreement is not None
    assert without.nc4_agreement > 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_offset_by_a_thousand(dtype: torch.dtype) -> None:
    data = cloud(num_classes=5, dim=8, per_class=30, noise=0.6, offset=1000.0, seed=3)
    features = data.features.to(dtype)
    collapse = nclab.measure_features(features, data.labels, data.weight, data.bias)
    expected = slow_metrics(features, data.labels, data.weight, data.bias)
    assert 0.5 < expected["nc4_ncc_accuracy"] < 1.0
    assert collapse.nc4_ncc_accuracy == expected["nc4_ncc_accuracy"]
    assert collapse.nc4_agreement == expected["nc4_agreement"]
    moved = nclab.measure_features(data.features - 1000.0, data.labels)
    if dtype == torch.float64:
        assert moved.nc4_ncc_accuracy == collapse.nc4_ncc_accuracy


def test_agreement_needs_predictions() -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels)
    assert collapse.nc4_agreement is None
    assert collapse.notes["nc4_agreement"] == "no classifier weights were given"
    assert collapse.nc4_ncc_accuracy is not None


def test_absent_classes_do_not_compete() -> None:
    """A mean of zeros for an absent class would win all samples near the origin."""
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 2], 20)
    centres = np.array([[0.1, 0.0], [0.0, 0.0], [-0.1, 0.0]])
    features = centres[labels] + 0.001 * generator.standard_normal((40, 2))
    collapse = nclab.measure_features(features, labels, num_classes=3, allow_missing=True)
    assert collapse.nc4_ncc_accuracy == 1.0
    assert collapse.classes == (0, 2)
