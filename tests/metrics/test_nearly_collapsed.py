"""Tests of accuracy where published codes lose digits: offsets, tiny noise, close means."""

import math

import numpy as np
import pytest
import torch

import nclab
from nclab import metrics
from nclab.metrics import simplex_etf
from tests.reference.slow import slow_metrics


@pytest.mark.parametrize("offset", [0.0, 1.0, 10.0, 100.0])
def test_tiny_noise_far_from_the_origin_in_float32(offset: float) -> None:
    """The noise is 1e-6 of the norm of means, the offset up to 100 times their separation."""
    generator = torch.Generator().manual_seed(0)
    num_classes, dim, per_class = 6, 12, 20
    means = simplex_etf(num_classes, dim, generator=generator)
    separation = float((means[0] - means[1]).norm())
    shift = torch.randn(dim, generator=generator, dtype=torch.float64)
    means = means + offset * separation * shift / shift.norm()
    labels = torch.arange(num_classes).repeat(per_class)
    size = 1e-6 * float(means.norm(dim=1).mean())
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    features = (means[labels] + size * noise).float()
    expected = slow_metrics(features, labels)
    measured = nclab.measure_features(features, labels, metrics="all").scalars()
    for name in ("nc1_trace_pinv", "nc1_trace_ratio", "cdnv", "nc1_within_variation"):
        assert expected[name] > 0
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("dim", [3, 12], ids=["more classes than dimensions", "fewer"])
def test_two_close_means_keep_their_mode(apart: float, dim: int) -> None:
    """NC1 has a closed form for isotropic noise."""
    generator = torch.Generator().manual_seed(1)
    num_classes, noise = 5, 1e-3
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    step = torch.randn(dim, generator=generator, dtype=torch.float64)
    means[1] = means[0] + apart * step / step.norm()
    # Noise of both signs along every axis makes the covariance within classes isotropic.
    axes = noise * torch.cat([torch.eye(dim), -torch.eye(dim)]).double()
    features = (means[:, None] + axes).reshape(-1, dim)
    labels = torch.repeat_interleave(torch.arange(num_classes), 2 * dim)
    collapse = nclab.measure_features(features, labels)
    centred = (means - means.mean(0)).numpy()
    values = np.linalg.svd(centred, compute_uv=False)[: min(num_classes - 1, dim)]
    expected = (noise**2 / dim) * np.sum(1 / values**2)
    assert collapse.nc1_trace_pinv == pytest.approx(expected, rel=1e-6)
    assert not any("leaves out" in warning for warning in collapse.warnings)
    pairs = [
        noise**2 / np.sum((centred[c] - centred[k]) ** 2)
        for c in range(num_classes)
        for k in range(c)
    ]
    assert collapse.cdnv == pytest.approx(np.mean(pairs), rel=1e-6)


@pytest.mark.parametrize("dim", [3, 5], ids=["more classes than dimensions", "fewer"])
def test_a_dropped_mode_gives_a_warning(dim: int) -> None:
    generator = torch.Generator().manual_seed(2)
    noise = 0.1 * torch.randn(10, dim, generator=generator, dtype=torch.float64)
    means = torch.eye(3, dim, dtype=torch.float64)[[0, 0, 1, 2]]  # Classes 0 and 1 coincide.
    features = (means[:, None] + noise).reshape(-1, dim)
    labels = torch.repeat_interleave(torch.arange(4), 10)
    collapse = nclab.measure_features(features, labels)
    assert any("leaves out 1 of 3 modes" in warning for warning in collapse.warnings)
    assert "leaves out" in str(collapse)
    assert collapse.cdnv == math.inf
    assert "infinite" in collapse.notes["cdnv"]
    assert collapse.to_dict()["cdnv"] is None
    moments = nclab.ClassMoments(4, dim, scatter=True)
    moments.update(features, labels)
    with pytest.warns(nclab.NclabWarning, match="leaves out 1 of 3"):
        metrics.nc1_trace_pinv(moments)


def test_constant_features_give_reasons_instead_of_numbers() -> None:
    collapse = nclab.measure_features(torch.ones(30, 4), torch.arange(30) % 3, torch.eye(3, 4))
    assert collapse.min_intra == pytest.approx(1.0)
    assert collapse.max_inter == pytest.approx(1.0)
    for name in ("nc1_trace_pinv", "nc1_trace_ratio", "nc2_equiangularity_means", "cdnv"):
        assert getattr(collapse, name) is None
        assert "undefined" in collapse.notes[name]
    assert any("All class means coincide" in warning for warning in collapse.warnings)


def test_zero_vectors_are_counted() -> None:
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    collapse = nclab.measure_features(features, [0, 0, 1, 1])
    assert collapse.zero_features == 1
    assert collapse.intra_cosine.tolist() == [0.25, 1.0]
    assert any("1 feature vector of length 0" in warning for warning in collapse.warnings)


def test_cosine_spread_of_equal_but_wrong_angles_is_zero() -> None:
    """All cosines of the centred rows of a scaled identity are equal."""
    rows = torch.eye(7, dtype=torch.float64) + 0.25
    assert metrics.nc2_cosine_std_weights(rows) < 1e-15


def test_loss_far_below_machine_precision() -> None:
    """The loss is log(1 + 2 exp(-60)), for which a softmax gives exactly 0."""
    features = 60.0 * torch.eye(3, dtype=torch.float64)
    collapse = nclab.measure_features(features, [0, 1, 2], torch.eye(3))
    assert collapse.loss == pytest.approx(2 * math.exp(-60), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_classes", [100, 20], ids=["more classes than dimensions", "fewer"])
def test_the_direction_removed_by_a_layer_norm_is_no_mode(
    dtype: torch.dtype, num_classes: int
) -> None:
    """Features lie in a hyperplane; orthogonal to it, class means contain only rounding."""
    generator = torch.Generator().manual_seed(3)
    dim, each = 64, 20
    labels = torch.arange(num_classes).repeat(each)
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    before = means[labels] + 0.3 * noise + 0.5
    exact = torch.nn.functional.layer_norm(before, (dim,))
    stored = torch.nn.functional.layer_norm(before.to(dtype), (dim,))
    mean = torch.stack([exact[labels == c].mean(0) for c in range(num_classes)])
    rows, between = exact - mean[labels], mean - mean.mean(0)
    inverse = torch.linalg.pinv(
        between.T @ between, rtol=1e-10
    )  # The textbook formula; the eigenvalues have a gap.
    expected = float(torch.trace(rows.T @ rows @ inverse)) / len(labels)
    collapse = nclab.measure_features(stored, labels)
    assert collapse.nc1_trace_pinv == pytest.approx(expected, rel=torch.finfo(dtype).eps)
    warnings = [warning for warning in collapse.warnings if "nc1_trace_pinv" in warning]
    if num_classes > dim:
        assert len(warnings) == 1
        assert "leaves out 1 of 64 modes" in warnings[0]
        assert "rounding of the features" in warnings[0]
    else:
        assert not warnings
    moments = nclab.ClassMoments(num_classes, dim, scatter=True)
    for part in torch.arange(len(labels)).split(7 * num_classes):
        other = nclab.ClassMoments(num_classes, dim, scatter=True)
        other.update(stored[part], labels[part])
        moments.merge(nclab.ClassMoments.from_state_dict(other.state_dict()))
    assert moments.unit == torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("size", [1e3, 1e7, 1e8, 1e9])
@pytest.mark.parametrize("num_classes", [10, 50])
def test_one_wide_direction_gives_a_warning(size: float, num_classes: int) -> None:
    """One direction has `size` times the spread of the others, whose digits it destroys."""
    generator = torch.Generator().manual_seed(4)
    dim, each = 20, 40
    labels = torch.arange(num_classes).repeat(each)
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    spread = 0.3 * torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    spread[:, -1] *= size
    plain = means[labels] + spread
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    # The reference uses the frame of the wide direction, where it does not mix with others.
    class_means = torch.stack([plain[labels == c].mean(0) for c in range(num_classes)])
    _, values, right = torch.linalg.svd(class_means - class_means.mean(0), full_matrices=False)
    rank = min(num_classes - 1, dim)
    coordinates = (plain - class_means[labels]) @ (right[:rank].T / values[:rank])
    expected = float(coordinates.square().sum()) / len(labels)
    collapse = nclab.measure_features(plain @ rotation, labels)
    warnings = [w for w in collapse.warnings if w.startswith("nc1_trace_pinv may be off by")]
    value = collapse.nc1_trace_pinv
    assert value is not None
    error = abs(value / expected - 1)
    if size < 1e6:
        assert not warnings
        assert error < 1e-10
    else:
        stated = float(warnings[0].split("off by ")[1].split()[0])
        assert error < stated * 1.1 < max(400 * error, 4e-4)
