"""Losses of many classes in single precision beside those in double."""

import pytest
import torch
from torch import Tensor

from nclab.statistics import LogitStatistics
from nclab.statistics.logits import is_wide


def both(logits: Tensor, labels: Tensor) -> tuple[LogitStatistics, LogitStatistics]:
    """The same logits, added in both ways."""
    wide, known = (LogitStatistics(logits.shape[1]) for _ in range(2))
    wide.add_wide(logits, labels)
    known.update(logits.double(), labels)
    return wide, known


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_as_in_double_precision(scale: float, kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(700, 300, generator=generator)).to(kind)
    labels = torch.randint(300, (700,), generator=generator)
    labels[::3] = logits[::3].float().argmax(1)  # where the classifier is right
    wide, known = both(logits, labels)
    assert torch.equal(wide.counts, known.counts)
    assert torch.equal(wide.correct, known.correct)
    assert torch.allclose(wide.loss_sums, known.loss_sums, rtol=2e-6)
    assert torch.allclose(wide.margins, known.margins, rtol=1e-12)


def test_a_small_loss_keeps_its_digits() -> None:
    logits = torch.zeros(2, 400)
    logits[0, 7], logits[1, 7] = 60.0, 20.0
    wide, known = both(logits, torch.tensor([7, 7]))
    assert float(known.loss_sums[7]) < 1e-5
    assert float(wide.loss_sums[7]) == pytest.approx(float(known.loss_sums[7]), rel=1e-5)


def test_of_equal_logits_the_first_counts() -> None:
    wide, known = both(torch.zeros(2, 300), torch.tensor([0, 5]))
    assert torch.equal(wide.correct, known.correct)
    assert int(wide.correct.sum()) == 1


def test_which_logits_are_wide() -> None:
    assert is_wide(torch.zeros(1, 256))
    assert not is_wide(torch.zeros(1, 255))
    assert not is_wide(torch.zeros(1, 256, dtype=torch.float64))
    LogitStatistics(300).add_wide(torch.zeros(0, 300), torch.zeros(0, dtype=torch.int64))
