"""Losses for extreme logits: both backends in float32 against autograd in float64."""

from typing import Any, get_args

import numpy as np
import pytest
import torch

from nclab.training.fleet import Loss, Recipe, epoch_kernel
from nclab.training.fleet.kernel_backend import _numbers
from nclab.training.fleet.torch_backend import mean_loss
from tests.reference.slow_training import plain_loss


@pytest.mark.parametrize("loss", get_args(Loss))
@pytest.mark.parametrize("scale", [0.1, 5.0, 40.0, 300.0])
def test_loss_and_gradient_equal_autograd(loss: Any, scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = scale * torch.randn(5, 9, generator=generator, dtype=torch.float32)
    labels = logits.argmax(0)
    labels[::2] = (labels[::2] + 1) % 5  # half of the samples are misclassified
    exact = logits.double().T.requires_grad_()
    expected = plain_loss(loss)(exact, labels)
    expected.backward()
    recipe = Recipe(loss=loss)
    value, gradient = mean_loss(logits.clone(), labels, recipe)
    kernel_gradient = logits.clone().numpy()
    numbers = _numbers(recipe, 0.1, torch.float32)
    kernel = getattr(epoch_kernel, f"_{loss}")
    mean, hits = kernel.py_func(kernel_gradient, labels.numpy(), np.arange(9), numbers)
    assert hits == 4
    assert exact.grad is not None
    for result, slope in ((float(value), gradient), (mean, torch.from_numpy(kernel_gradient))):
        assert result == pytest.approx(float(expected.detach()), rel=1e-5)
        torch.testing.assert_close(slope.double(), exact.grad.T, rtol=1e-4, atol=1e-6 * scale)


def test_zero_focal_gamma_and_zero_smoothing_are_cross_entropy() -> None:
    logits, labels = torch.randn(4, 6, dtype=torch.float64), torch.arange(6) % 4
    expected = mean_loss(logits.clone(), labels, Recipe())
    recipes = (Recipe(loss="focal", focal_gamma=0.0), Recipe(loss="label_smoothing", smoothing=0.0))
    for recipe in recipes:
        for result, value in zip(mean_loss(logits.clone(), labels, recipe), expected, strict=True):
            torch.testing.assert_close(result, value)
