"""LogitStatistics and the loss that keeps its digits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nclab
from nclab.statistics.logits import cross_entropy


@pytest.mark.parametrize("gap", [-800.0, -40.0, -1.0, 0.0, 1.0, 40.0, 300.0, 690.0])
def test_two_logits_have_a_closed_form(gap: float) -> None:
    z = torch.tensor([[gap, 0.0]], dtype=torch.float64)
    loss = float(cross_entropy(z, torch.tensor([0])))
    expected = -gap + math.log1p(math.exp(gap)) if gap < 0 else math.log1p(math.exp(-gap))
    assert loss == pytest.approx(expected, rel=1e-12)
    assert loss > 0


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8), st.integers(0, 7))
def test_it_is_torch_cross_entropy_where_that_is_right(logits: list[float], label: int) -> None:
    z = torch.tensor([logits], dtype=torch.float64)
    y = torch.tensor([label % len(logits)])
    expected = float(torch.nn.functional.cross_entropy(z, y))
    assert float(cross_entropy(z, y)) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_stream_and_merge_agree_with_one_shot() -> None:
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(60) % 4
    whole, left, right = (nclab.LogitStatistics(4) for _ in range(3))
    predicted = whole.update(z, y)
    assert torch.equal(predicted, z.argmax(1))
    left.update(z[:17], y[:17])
    right.update(z[17:], y[17:])
    left.merge(right)
    assert torch.allclose(left.loss_sums, whole.loss_sums, rtol=1e-13)
    assert torch.equal(left.margins, whole.margins)
    assert torch.equal(left.correct, whole.correct)
    with pytest.raises(nclab.NclabError, match="4 classes, got 3"):
        left.merge(nclab.LogitStatistics(3))


def test_ignored_rows() -> None:
    statistics = nclab.LogitStatistics(2)
    predicted = statistics.update([[1.0, 0.0], [9.0, 0.0]], [-100, 0])
    assert predicted.tolist() == [0]
    assert statistics.counts.tolist() == [1, 0]
    assert statistics.update([[1.0, 0.0]], [-100]).tolist() == []
