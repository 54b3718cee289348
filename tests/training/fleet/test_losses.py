"""Losses at the ends of the scale: float32 beside autograd in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from nclab.training.fleet import Recipe, epoch_kernel
from nclab.training.fleet.compiled import _numbers
from nclab.training.fleet.losses import mean_loss
from tests.reference.slow_training import plain_loss

KERNEL = {
    "cross_entropy": epoch_kernel._cross_entropy,
    "label_smoothing": epoch_kernel._label_smoothing,
    "focal": epoch_kernel._focal,
    "mse": epoch_kernel._mse,
}


@pytest.mark.parametrize("loss", KERNEL)
@pytest.mark.parametrize("scale", [0.1, 5.0, 40.0, 300.0])
def test_loss_and_gradient_of_any_logits(loss: Any, scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = scale * torch.randn(5, 9, generator=generator, dtype=torch.float32)
    labels = logits.argmax(0)
    labels[::2] = (labels[::2] + 1) % 5  # half of the labels are surprises
    exact = logits.double().T.requires_grad_()
    wanted = plain_loss(loss)(exact, labels)
    wanted.backward()
    recipe = Recipe(loss=loss)
    value, gradient = mean_loss(logits.clone(), labels, recipe)
    own = logits.clone().numpy()
    numbers = _numbers(recipe, 0.1, torch.float32)
    kernel: Any = KERNEL[loss]
    mean, hits = kernel.py_func(own, labels.numpy(), np.arange(9), numbers)
    assert hits == 4
    assert exact.grad is not None
    for found, slope in ((float(value), gradient), (mean, torch.from_numpy(own))):
        assert found == pytest.approx(float(wanted.detach()), rel=1e-5)
        torch.testing.assert_close(slope.double(), exact.grad.T, rtol=1e-4, atol=1e-6 * scale)


def test_a_focus_of_zero_and_no_smoothing_are_cross_entropy() -> None:
    logits, labels = torch.randn(4, 6, dtype=torch.float64), torch.arange(6) % 4
    wanted = mean_loss(logits.clone(), labels, Recipe())
    plain = (Recipe(loss="focal", focusing=0.0), Recipe(loss="label_smoothing", smoothing=0.0))
    for recipe in plain:
        for one, other in zip(mean_loss(logits.clone(), labels, recipe), wanted, strict=True):
            torch.testing.assert_close(one, other)
