"""Descent on the deep unconstrained model: its gradient, its rest, and runs that do not mix."""

import pytest
import torch

from nclab.theory.targets.squared_error import shrunk
from nclab_papers.sukenik2024 import descent
from nclab_papers.sukenik2024.descent import Model, descend, look


@pytest.mark.parametrize("kind", ["linear", "relu"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_slopes_are_those_of_autograd(kind: descent.Kind, loss: descent.DeepLoss) -> None:
    model = Model(kind, loss, 3, 5, 4)
    both = [model.start(seed) for seed in (0, 1)]
    factors = [torch.stack(parts).requires_grad_() for parts in zip(*both, strict=True)]
    decay = torch.tensor([0.01, 0.2], dtype=torch.float64)
    found = look(model, factors, decay)
    expected = torch.autograd.grad(found.value.sum(), factors)
    for mine, theirs in zip(found.slopes, expected, strict=True):
        torch.testing.assert_close(mine.detach(), theirs)


def test_linear_maps_come_to_rest_at_the_known_optimum() -> None:
    """Three factors of decay 0.02: every singular value is shrunk alike."""
    model = Model("linear", "mse", 3, 3, 2)
    [rest] = descend(model, [model.start(0)], [0.02], 3000)
    sigma = float(shrunk(torch.ones(1, dtype=torch.float64), 3, 0.02, 3))
    value = 3 * ((1 - sigma) ** 2 / 6 + 1.5 * 0.02 * sigma ** (2 / 3))
    assert rest.value == pytest.approx(value, rel=1e-6)
    assert (rest.rank, rest.accuracy) == (3, 1.0)
    assert rest.gradient < descent.REST
    assert rest.steps < 3000


def test_a_run_does_not_depend_on_the_others_of_its_batch() -> None:
    model = Model("relu", "cross_entropy", 3, 4, 3)
    starts = [model.start(seed) for seed in range(3)]
    together = descend(model, starts, [0.001, 0.01, 0.1], 150)
    for index, decay in enumerate((0.001, 0.01, 0.1)):
        [alone] = descend(model, [starts[index]], [decay], 150)
        assert alone.value == pytest.approx(together[index].value, rel=1e-9)
        assert alone.steps == together[index].steps


def test_too_much_decay_ends_at_zero_and_does_not_count() -> None:
    model = Model("relu", "mse", 3, 3, 3)
    [rest] = descend(model, [model.start(0)], [1.0], 500)
    assert rest.value == pytest.approx(0.5, abs=1e-6)
    assert rest.accuracy < 0.99
