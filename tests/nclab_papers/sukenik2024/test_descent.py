"""Descent on the deep unconstrained model: its gradient, its end, and independent runs."""

import pytest
import torch

from nclab.theory.targets.closed_forms import shrunk
from nclab_papers.sukenik2024 import descent
from nclab_papers.sukenik2024.descent import Model, descend, evaluate


@pytest.mark.parametrize("kind", ["linear", "relu"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_gradients_equal_those_of_autograd(kind: descent.Kind, loss: descent.DeepLoss) -> None:
    model = Model(kind, loss, 3, 5, 4)
    starts = [model.start(seed) for seed in (0, 1)]
    factors = [torch.stack(parts).requires_grad_() for parts in zip(*starts, strict=True)]
    decay = torch.tensor([0.01, 0.2], dtype=torch.float64)
    evaluation = evaluate(model, factors, decay)
    expected = torch.autograd.grad(evaluation.value.sum(), factors)
    for gradient, reference in zip(evaluation.gradients, expected, strict=True):
        torch.testing.assert_close(gradient.detach(), reference)


def test_linear_maps_converge_to_the_known_optimum() -> None:
    """Three factors with weight decay 0.02 shrink every singular value equally."""
    model = Model("linear", "mse", 3, 3, 2)
    [end] = descend(model, [model.start(0)], [0.02], 3000)
    sigma = float(shrunk(torch.ones(1, dtype=torch.float64), 3, 0.02, 3))
    value = 3 * ((1 - sigma) ** 2 / 6 + 1.5 * 0.02 * sigma ** (2 / 3))
    assert end.value == pytest.approx(value, rel=1e-6)
    assert (end.rank, end.accuracy) == (3, 1.0)
    assert end.gradient < descent.CONVERGED
    assert end.steps < 3000


def test_a_run_does_not_depend_on_the_others_of_its_batch() -> None:
    model = Model("relu", "cross_entropy", 3, 4, 3)
    starts = [model.start(seed) for seed in range(3)]
    together = descend(model, starts, [0.001, 0.01, 0.1], 150)
    for index, decay in enumerate((0.001, 0.01, 0.1)):
        [alone] = descend(model, [starts[index]], [decay], 150)
        assert alone.value == pytest.approx(together[index].value, rel=1e-9)
        assert alone.steps == together[index].steps


def test_large_weight_decay_ends_at_zero() -> None:
    model = Model("relu", "mse", 3, 3, 3)
    [end] = descend(model, [model.start(0)], [1.0], 500)
    assert end.value == pytest.approx(0.5, abs=1e-6)
    assert end.accuracy < 0.99
