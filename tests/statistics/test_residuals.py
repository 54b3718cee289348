"""Tests of residual sums against slow sums: in batches and merged."""

import pytest
import torch

import nclab
from nclab.measurement import layer_stream
from nclab.statistics.logits import LogitStatistics

GENERATOR = torch.Generator().manual_seed(3)
C, N = 5, 240
LABELS = torch.arange(N) % C
FEATURES = 3 * torch.randn(N, 7, generator=GENERATOR).double()
WEIGHT = torch.randn(C, 7, generator=GENERATOR).double()
BIAS = torch.randn(C, generator=GENERATOR).double()
HARD = torch.nn.functional.one_hot(LABELS, C).double()


def slow_sums() -> torch.Tensor:
    """Return the (C, C) sums: row c is the sum of q - e_c over class c."""
    q = torch.softmax(FEATURES @ WEIGHT.T + BIAS, 1)
    return torch.stack([(q - HARD)[c == LABELS].sum(0) for c in range(C)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_pass_agrees_with_slow_sums(dtype: torch.dtype) -> None:
    rows, weight, bias = (tensor.to(dtype) for tensor in (FEATURES, WEIGHT, BIAS))
    moments = nclab.measure_features(rows, LABELS, weight, bias).residuals
    parts = [(rows[k::7], LABELS[k::7]) for k in range(7)]
    batches = nclab.measure_features(parts, weight=weight, bias=bias).residuals
    for stream in (moments, batches):
        assert stream is not None
        assert torch.allclose(stream, slow_sums(), atol=1e-4 if dtype == torch.float32 else 1e-11)


def test_sums_of_tiny_losses_keep_their_digits() -> None:
    moments = LogitStatistics(2, residuals=True)
    moments.update([[40.0, 0.0], [0.0, 800.0]], [0, 0])
    assert moments.residual_sums is not None
    wrong = 1 / (1 + torch.tensor([40.0, -800.0]).double().exp())
    assert moments.residual_sums[0].tolist() == pytest.approx([-float(wrong.sum()), 1.0])
    moments = LogitStatistics(2, residuals=True)
    moments.update([[40.0, 0.0]], [0])
    assert moments.residual_sums is not None
    assert float(moments.residual_sums[0, 0]) == pytest.approx(-float(wrong[0]), rel=1e-12)


def test_merged_and_loaded_streams_agree() -> None:
    logits = FEATURES @ WEIGHT.T + BIAS
    complete, left, right = (LogitStatistics(C, residuals=True) for _ in range(3))
    complete.update(logits, LABELS)
    left.update(logits[:100], LABELS[:100])
    right.load_sums(left.sums())
    left.update(logits[100:], LABELS[100:])
    remainder = LogitStatistics(C, residuals=True)
    remainder.update(logits[100:], LABELS[100:])
    right.merge(remainder)
    for stream in (left, right):
        assert stream.residual_sums is not None
        assert complete.residual_sums is not None
        assert torch.allclose(stream.residual_sums, complete.residual_sums, atol=1e-12)
    right.merge(LogitStatistics(C))  # This stream has no residual sums.
    assert right.residual_sums is None


def test_residual_moments_of_many_classes_need_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weight = (
        FEATURES[:, :4],
        WEIGHT[:, :4],
    )  # The dimension is smaller than the number of classes.
    assert nclab.measure_features(rows, LABELS, weight).residuals is None
    assert nclab.measure_features(rows, LABELS, weight, metrics="all").residuals is not None
    monkeypatch.setattr(layer_stream, "MOST_CLASSES", 4)
    assert nclab.measure_features(FEATURES, LABELS, WEIGHT).residuals is None
