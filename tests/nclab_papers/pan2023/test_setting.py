"""Proposition 2.2.1 against real layers."""

import pytest
import torch
from torch import nn

from nclab_papers.pan2023.setting import (
    batch_norm_mean_square,
    batch_norm_rms_printed,
)


@pytest.mark.parametrize("eps", [1e-300, 1e-5, 1e-2, 3.0])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_batch_norm(eps: float, batch_size: int | None) -> None:
    """Proposition 2.2.1 against torch, with eps, bias and coordinates of tiny variance."""
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(20, eps=eps).double()
    inputs = torch.randn(128, 20, dtype=torch.float64) * torch.logspace(-3, 1, 20) + 1
    nn.init.normal_(layer.weight)
    printed = batch_norm_rms_printed(layer, inputs, batch_size=batch_size)
    assert printed.tested == 1
    assert printed.always == (eps == 1e-300)
    assert float(printed.left) <= float(printed.right) * (1 + 1e-12)
    assert batch_norm_mean_square(layer, inputs, batch_size=batch_size).always
    nn.init.normal_(layer.bias)
    assert batch_norm_mean_square(layer, inputs, batch_size=batch_size).always
    assert batch_norm_rms_printed(layer, inputs, batch_size=batch_size).tested == 0
    assert int(layer.num_batches_tracked or 0) == 0


def test_batch_norm_on_many_layers() -> None:
    """500 layers of 20 coordinates: 10,000 random scales, biases and variances."""
    torch.manual_seed(1)
    layer = nn.BatchNorm1d(20).double()
    for _ in range(500):
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        layer.eps = float(10 ** torch.empty(()).uniform_(-8, 1))
        spread = 10 ** torch.empty(20, dtype=torch.float64).uniform_(-5, 2)
        spread[0] = 0.0  # a coordinate that never varies
        inputs = torch.randn(16, 20, dtype=torch.float64) * spread
        both = batch_norm_mean_square(layer, inputs)
        assert both.always
        bound = (layer.weight.square().sum() + layer.bias.square().sum()).detach()
        assert float(both.left) <= float(bound) * (1 + 1e-12)
