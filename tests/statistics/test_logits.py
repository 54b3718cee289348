"""Tests of LogitStatistics and of the cross-entropy of very small losses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nclab
from nclab.statistics.logits import LogitStatistics, cross_entropy, is_wide, logit_blocks


@pytest.mark.parametrize("gap", [-800.0, -40.0, -1.0, 0.0, 1.0, 40.0, 300.0, 690.0])
def test_two_logits_have_a_closed_form(gap: float) -> None:
    z = torch.tensor([[gap, 0.0]], dtype=torch.float64)
    loss = float(cross_entropy(z, torch.tensor([0])))
    expected = -gap + math.log1p(math.exp(gap)) if gap < 0 else math.log1p(math.exp(-gap))
    assert loss == pytest.approx(expected, rel=1e-12)
    assert loss > 0


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8), st.integers(0, 7))
def test_cross_entropy_equals_torch_where_torch_is_accurate(
    logits: list[float], label: int
) -> None:
    z = torch.tensor([logits], dtype=torch.float64)
    y = torch.tensor([label % len(logits)])
    expected = float(torch.nn.functional.cross_entropy(z, y))
    assert float(cross_entropy(z, y)) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_stream_and_merge_agree_with_one_shot() -> None:
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(60) % 4
    complete, left, right = (nclab.LogitStatistics(4) for _ in range(3))
    predicted = complete.update(z, y)
    assert torch.equal(predicted, z.argmax(1))
    left.update(z[:17], y[:17])
    right.update(z[17:], y[17:])
    left.merge(right)
    assert torch.allclose(left.loss_sums, complete.loss_sums, rtol=1e-13)
    assert torch.equal(left.margins, complete.margins)
    assert torch.equal(left.correct, complete.correct)
    with pytest.raises(nclab.NclabError, match="4 classes, got 3"):
        left.merge(nclab.LogitStatistics(3))


def test_ignored_rows_are_skipped() -> None:
    statistics = nclab.LogitStatistics(2)
    predicted = statistics.update([[1.0, 0.0], [9.0, 0.0]], [-100, 0])
    assert predicted.tolist() == [0]
    assert statistics.counts.tolist() == [1, 0]
    assert statistics.update([[1.0, 0.0]], [-100]).tolist() == []


@pytest.mark.parametrize("size", [2, 10, 64, 65, 300])
def test_the_compiled_kernel_agrees_with_a_plain_loop(size: int) -> None:
    """Losses, margins and predictions agree, with ties before, at and after the label."""
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(size)
    logits = 30 * torch.randn(500, size, generator=generator, dtype=torch.float64)
    logits[:300] = logits[:300].div(30).round()  # This creates many ties.
    labels = torch.randint(0, size, (500,), generator=generator)
    statistics = LogitStatistics(size)
    predicted = statistics.add_checked(logits.clone(), labels, compiled=True)
    losses, margins, correct = [0.0] * size, [math.inf] * size, [0] * size
    for z, label, prediction in zip(
        logits.tolist(), labels.tolist(), predicted.tolist(), strict=True
    ):
        others = [value for j, value in enumerate(z) if j != label]
        assert prediction == z.index(max(z))
        correct[label] += prediction == label
        margins[label] = min(margins[label], z[label] - max(others))
        odds = math.fsum(math.exp(value - z[label]) for value in others)
        losses[label] += math.log1p(odds)
    assert statistics.correct.tolist() == correct
    assert statistics.margins.tolist() == margins
    assert statistics.loss_sums.tolist() == pytest.approx(losses, rel=1e-12)


@pytest.mark.parametrize(("size", "dim"), [(2, 3), (40, 700), (5000, 7)])
def test_logit_blocks_equal_the_products(size: int, dim: int) -> None:
    """The logits agree in one block and in several, with a bias and without."""
    generator = torch.Generator().manual_seed(0)
    rows, classes = torch.randn(1100, dim, generator=generator), torch.arange(1100) % size
    weight = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    for bias in (None, weight[:, 0]):
        blocks = [
            (z.clone(), block_labels)
            for z, block_labels in logit_blocks(rows, classes, weight, bias)
        ]
        assert torch.equal(torch.cat([block_labels for _, block_labels in blocks]), classes)
        expected = rows.double() @ weight.T + (0.0 if bias is None else bias)
        assert torch.allclose(torch.cat([z for z, _ in blocks]), expected, rtol=1e-12, atol=1e-12)


def add_both_ways(logits: Tensor, labels: Tensor) -> tuple[LogitStatistics, LogitStatistics]:
    """Return statistics of the same logits, in float32 and in float64."""
    wide, exact = (LogitStatistics(logits.shape[1]) for _ in range(2))
    wide.add_wide(logits, labels)
    exact.update(logits.double(), labels)
    return wide, exact


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_float32_sums_agree_with_float64(scale: float, kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(700, 300, generator=generator)).to(kind)
    labels = torch.randint(300, (700,), generator=generator)
    labels[::3] = logits[::3].float().argmax(1)  # These rows are correct.
    wide, exact = add_both_ways(logits, labels)
    assert torch.equal(wide.counts, exact.counts)
    assert torch.equal(wide.correct, exact.correct)
    assert torch.allclose(wide.loss_sums, exact.loss_sums, rtol=2e-6)
    assert torch.allclose(wide.margins, exact.margins, rtol=1e-12)


def test_a_small_float32_loss_keeps_its_digits() -> None:
    logits = torch.zeros(2, 400)
    logits[0, 7], logits[1, 7] = 60.0, 20.0
    wide, exact = add_both_ways(logits, torch.tensor([7, 7]))
    assert float(exact.loss_sums[7]) < 1e-5
    assert float(wide.loss_sums[7]) == pytest.approx(float(exact.loss_sums[7]), rel=1e-5)


def test_the_first_of_equal_logits_is_the_prediction() -> None:
    wide, exact = add_both_ways(torch.zeros(2, 300), torch.tensor([0, 5]))
    assert torch.equal(wide.correct, exact.correct)
    assert int(wide.correct.sum()) == 1


def test_wide_logits_have_many_classes_and_low_precision() -> None:
    assert is_wide(torch.zeros(1, 256))
    assert not is_wide(torch.zeros(1, 255))
    assert not is_wide(torch.zeros(1, 256, dtype=torch.float64))
    LogitStatistics(300).add_wide(torch.zeros(0, 300), torch.zeros(0, dtype=torch.int64))
