"""Tests of NC4 in cases where published codes are wrong: large biases, large offsets."""

import numpy as np
import pytest
import torch

import nclab
from nclab.metrics import effective_depth
from tests.clouds import cloud
from tests.reference.slow import slow_metrics


def test_a_bias_that_determines_the_prediction() -> None:
    data = cloud(num_classes=4, dim=6, per_class=25, noise=0.1)
    bias = torch.tensor([1e4, 0.0, 0.0, 0.0], dtype=torch.float64)
    collapse = nclab.measure_features(data.features, data.labels, data.weight, bias)
    assert collapse.nc4_ncc_accuracy == 1.0
    assert collapse.accuracy == 0.25  # The network always predicts class 0.
    assert collapse.nc4_agreement == 0.25
    without = nclab.measure_features(data.features, data.labels, data.weight)
    assert without.nc4_agreement is not None
    assert without.nc4_agreement > 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_with_an_offset_of_a_thousand(dtype: torch.dtype) -> None:
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


def test_classes_without_samples_are_never_nearest() -> None:
    """A mean of zeros for a class without samples would be nearest to many samples."""
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 2], 20)
    centres = np.array([[0.1, 0.0], [0.0, 0.0], [-0.1, 0.0]])
    features = centres[labels] + 0.001 * generator.standard_normal((40, 2))
    collapse = nclab.measure_features(features, labels, num_classes=3, min_count=1)
    assert collapse.nc4_ncc_accuracy == 1.0
    assert collapse.classes == (0, 2)


@pytest.mark.parametrize("far", [2e4, 1e6, 1e9])
def test_close_means_and_one_far_mean(far: float) -> None:
    """Inner products cannot distinguish the close means; distances can."""
    generator = torch.Generator().manual_seed(0)
    means = 1e-4 * torch.randn(5, 8, generator=generator, dtype=torch.float64)
    means[0] = far
    labels = torch.arange(5).repeat(20)
    noise = torch.randn(100, 8, generator=generator, dtype=torch.float64)
    features = means[labels] + 1e-5 * noise
    collapse = nclab.measure_features(features, labels)
    class_means = torch.stack([features[labels == c].mean(0) for c in range(5)])
    direct = (features[:, None] - class_means).norm(dim=2).argmin(1)
    assert collapse.nc4_ncc_accuracy == float((direct == labels).double().mean())
    spread = torch.stack([features[labels == c].var(0, correction=0).sum() for c in range(5)])
    pairs = [
        (spread[c] + spread[k]) / (2 * (class_means[c] - class_means[k]).square().sum())
        for c in range(5)
        for k in range(c)
    ]
    assert collapse.cdnv == pytest.approx(float(torch.stack(pairs).mean()), rel=1e-6)
    if far >= 1e9:
        assert any("about" in warning and "cdnv" in warning for warning in collapse.warnings)


def test_zero_vectors_are_never_correct() -> None:
    """A zero vector counts as wrong for any order of the classes."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 3, generator=generator).abs()
    labels = torch.arange(2).repeat(20)
    features[labels == 0] = 0.0
    for numbering in (labels, 1 - labels):
        collapse = nclab.measure_features(features, numbering)
        assert collapse.nc4_cosine_accuracy == 0.5
    dead = nclab.measure_features(torch.zeros(100, 5), (torch.arange(100) >= 90).long())
    assert dead.nc4_ncc_accuracy is None
    assert "coincide" in dead.notes["nc4_ncc_accuracy"]
    assert dead.nc4_cosine_accuracy == 0.0


def test_offdiagonal_cosines_with_zero_vectors() -> None:
    moments = nclab.ClassMoments(2, 2)
    moments.update([[1.0, 0], [0, 0], [1, 0], [0, 1.0], [0, 1.0]], [0, 0, 0, 1, 1])
    cosines = nclab.metrics.intra_cosine_offdiagonal(moments)
    assert cosines.tolist() == pytest.approx([1 / 3, 1.0])


@pytest.mark.parametrize(
    ("accuracies", "epsilon", "depth"),
    [
        ([0.5, 0.99, 1.0], 0.01, 2),  # An error of exactly epsilon suffices.
        ([0.5, 0.98, 1.0], 0.01, 3),
        ([1.0, 0.2, 0.3], 0.0, 1),
        ([0.5, 0.6, 0.7], 0.1, 3),  # No layer suffices: the result is the number of layers.
    ],
)
def test_effective_depth_counts_from_one(
    accuracies: list[float], epsilon: float, depth: int
) -> None:
    assert effective_depth(accuracies, epsilon=epsilon) == depth


def test_effective_depth_rejects_bad_input() -> None:
    with pytest.raises(nclab.NclabError, match="at least one layer"):
        effective_depth([])
    with pytest.raises(nclab.NclabError, match=r"in \[0, 1\), got 2"):
        effective_depth([1.0], epsilon=2)
