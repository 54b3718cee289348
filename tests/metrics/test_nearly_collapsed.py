"""Digits survive where published codes lose them: offsets, tiny noise, close means."""

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
    """Noise of 1e-6 of the mean norm, means offset by 100 times their separation."""
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
    found = nclab.measure_features(features, labels, metrics="all").scalars()
    for name in ("nc1_trace_pinv", "nc1_trace_ratio", "cdnv", "nc1_within_variation"):
        assert expected[name] > 0
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("dim", [3, 12], ids=["more classes than dimensions", "fewer"])
def test_two_close_means_keep_their_mode(apart: float, dim: int) -> None:
    """With orthogonal noise of known size NC1 has a closed form."""
    generator = torch.Generator().manual_seed(1)
    num_classes, noise = 5, 1e-3
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    step = torch.randn(dim, generator=generator, dtype=torch.float64)
    means[1] = means[0] + apart * step / step.norm()
    # Plus and minus noise along every axis: the within-class covariance is exactly isotropic.
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
def test_a_dropped_mode_is_said(dim: int) -> None:
    generator = torch.Generator().manual_seed(2)
    noise = 0.1 * torch.randn(10, dim, generator=generator, dtype=torch.float64)
    means = torch.eye(3, dim, dtype=torch.float64)[[0, 0, 1, 2]]  # classes 0 and 1 coincide
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


def test_constant_features_are_no_number_but_a_reason() -> None:
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
    assert any("1 feature vectors are zero" in warning for warning in collapse.warnings)


def test_cosine_spread_of_equal_but_wrong_angles_is_zero() -> None:
    """Centred rows of a scaled identity: all cosines agree to the last digit."""
    rows = torch.eye(7, dtype=torch.float64) + 0.25
    assert metrics.nc2_cosine_std_weights(rows) < 1e-15


def test_loss_far_below_machine_precision() -> None:
    """log(1 + 2 exp(-60)) where a softmax would give exactly 0."""
    features = 60.0 * torch.eye(3, dtype=torch.float64)
    collapse = nclab.measure_features(features, [0, 1, 2], torch.eye(3))
    assert collapse.loss == pytest.approx(2 * math.exp(-60), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_classes", [100, 20], ids=["more classes than dimensions", "fewer"])
def test_what_a_layer_norm_leaves_empty_is_no_mode(dtype: torch.dtype, num_classes: int) -> None:
    """Features in a hyperplane: beyond it class means hold rounding of the input alone."""
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
    whole = torch.linalg.pinv(between.T @ between, rtol=1e-10)  # the textbook form, with a gap
    expected = float(torch.trace(rows.T @ rows @ whole)) / len(labels)
    collapse = nclab.measure_features(stored, labels)
    assert collapse.nc1_trace_pinv == pytest.approx(expected, rel=torch.finfo(dtype).eps)
    told = [warning for warning in collapse.warnings if "nc1_trace_pinv" in warning]
    if num_classes > dim:
        assert len(told) == 1
        assert "leaves out 1 of 64 modes" in told[0]
        assert "rounding of the features" in told[0]
    else:
        assert not told
    moments = nclab.ClassMoments(num_classes, dim, scatter=True)
    for part in torch.arange(len(labels)).split(7 * num_classes):
        other = nclab.ClassMoments(num_classes, dim, scatter=True)
        other.update(stored[part], labels[part])
        moments.merge(nclab.ClassMoments.from_state_dict(other.state_dict()))
    assert moments.unit == torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("size", [1e3, 1e7, 1e8, 1e9])
@pytest.mark.parametrize("num_classes", [10, 50])
def test_one_wide_direction_is_said(size: float, num_classes: int) -> None:
    """Spread in one direction `size` times that of the others: its square is lost, and said."""
    generator = torch.Generator().manual_seed(4)
    dim, each = 20, 40
    labels = torch.arange(num_classes).repeat(each)
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    spread = 0.3 * torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    spread[:, -1] *= size
    plain = means[labels] + spread
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    # The reference in the frame of the wide direction, where it mixes with no other.
    own = torch.stack([plain[labels == c].mean(0) for c in range(num_classes)])
    _, values, right = torch.linalg.svd(own - own.mean(0), full_matrices=False)
    rank = min(num_classes - 1, dim)
    seen = (plain - own[labels]) @ (right[:rank].T / values[:rank])
    expected = float(seen.square().sum()) / len(labels)
    collapse = nclab.measure_features(plain @ turn, labels)
    told = [w for w in collapse.warnings if w.startswith("nc1_trace_pinv may be off by")]
    found = collapse.nc1_trace_pinv
    assert found is not None
    error = abs(found / expected - 1)
    if size < 1e6:
        assert not told
        assert error < 1e-10
    else:
        said = float(told[0].split("off by ")[1].split()[0])
        assert error < said * 1.1 < max(400 * error, 4e-4)
