"""Residuals of the first pass against slow sums, in batches, merged and of soft labels."""

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


def slow() -> torch.Tensor:
    """Row c: the sum of q - e_c."""
    q = torch.softmax(FEATURES @ WEIGHT.T + BIAS, 1)
    return torch.stack([(q - HARD)[c == LABELS].sum(0) for c in range(C)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_pass_gives_the_slow_sums(dtype: torch.dtype) -> None:
    rows, weight, bias = (one.to(dtype) for one in (FEATURES, WEIGHT, BIAS))
    found = nclab.measure_features(rows, LABELS, weight, bias).residuals
    parts = [(rows[k::7], LABELS[k::7]) for k in range(7)]
    batches = nclab.measure_features(parts, weight=weight, bias=bias).residuals
    for one in (found, batches):
        assert one is not None
        assert one.soft is None
        assert torch.allclose(one.sums, slow(), atol=1e-4 if dtype == torch.float32 else 1e-11)


def test_sums_of_tiny_losses_keep_their_digits() -> None:
    found = LogitStatistics(2, residuals=False)
    found.update([[40.0, 0.0], [0.0, 800.0]], [0, 0])
    assert found.residuals is not None
    wrong = 1 / (1 + torch.tensor([40.0, -800.0]).double().exp())
    assert found.residuals.sums[0].tolist() == pytest.approx([-float(wrong.sum()), 1.0])
    found = LogitStatistics(2, residuals=False)
    found.update([[40.0, 0.0]], [0])
    assert found.residuals is not None
    assert float(found.residuals.sums[0, 0]) == pytest.approx(-float(wrong[0]), rel=1e-12)


def test_merged_streams_and_states() -> None:
    logits = FEATURES @ WEIGHT.T + BIAS
    whole, left, right = (LogitStatistics(C, residuals=False) for _ in range(3))
    whole.update(logits, LABELS)
    left.update(logits[:100], LABELS[:100])
    right.load_sums(left.sums())
    left.update(logits[100:], LABELS[100:])
    rest = LogitStatistics(C, residuals=False)
    rest.update(logits[100:], LABELS[100:])
    right.merge(rest)
    for one in (left, right):
        assert one.residuals is not None
        assert whole.residuals is not None
        assert torch.allclose(one.residuals.sums, whole.residuals.sums, atol=1e-12)
    right.merge(LogitStatistics(C))  # which has none: what is left is not the whole
    assert right.residuals is None


def test_soft_labels_have_their_moment() -> None:
    targets = 0.8 * HARD + 0.2 * torch.rand(N, C, generator=GENERATOR).double().softmax(1)
    found = nclab.measure_features(FEATURES, targets, WEIGHT, BIAS, soft=True).residuals
    assert found is not None
    assert found.soft is not None
    q = torch.softmax(FEATURES @ WEIGHT.T + BIAS, 1)
    off = q - targets
    assert torch.allclose(found.soft.moment, off.T @ off, atol=1e-10)
    entropies = [float(-(one * one.log()).sum()) for one in (q, targets)]
    assert found.soft.entropies.tolist() == pytest.approx(entropies, rel=1e-10)
    hard = torch.nn.functional.cross_entropy(FEATURES @ WEIGHT.T + BIAS, LABELS, reduction="sum")
    assert float(found.soft.hard_losses.sum()) == pytest.approx(float(hard), rel=1e-10)


def test_many_classes_are_gathered_only_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weight = FEATURES[:, :4], WEIGHT[:, :4]  # fewer dimensions than classes
    assert nclab.measure_features(rows, LABELS, weight).residuals is None
    assert nclab.measure_features(rows, LABELS, weight, metrics="all").residuals is not None
    monkeypatch.setattr(layer_stream, "MOST_CLASSES", 4)
    assert nclab.measure_features(FEATURES, LABELS, WEIGHT).residuals is None
