"""Checks of Proposition 2.2.1 on a real batch normalisation layer: its scale fixes the feature
norms."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from nclab.errors import DataError
from nclab.theory.statements import ROUNDING, Inequality


def batch_norm_rms_printed(
    layer: nn.BatchNorm1d, inputs: Tensor, *, batch_size: int | None = None
) -> Inequality:
    r"""Compare the root mean square norm after batch normalisation with the norm of its scale.

    $$\sqrt{\tfrac1N\sum_i\|h_i\|^2} = \|\gamma\|$$

    Source: pan2023, Prop. 2.2.1
    Range: exact only with bias 0, eps 0 (torch asks for a positive one; 1e-300 vanishes),
    training statistics and no constant coordinate. It applies where the bias is 0, as printed;
    `batch_norm_mean_square` is true of every layer.

    >>> layer = nn.BatchNorm1d(1, eps=1e-300)
    >>> both = batch_norm_rms_printed(layer, torch.tensor([[0.0], [6.0]]))
    >>> round(float(both.left), 12), float(both.right)
    (1.0, 1.0)
    """
    outputs = _train_outputs(layer, inputs, batch_size)
    gamma, bias = _scale_and_bias(layer)
    left = outputs.square().sum(1).mean().sqrt()
    right = torch.linalg.vector_norm(gamma)
    applies = np.asarray(not bool(bias.any()))
    tolerance = ROUNDING * float(right)
    source = "pan2023, Prop. 2.2.1"
    return Inequality(left.numpy(), "==", right.numpy(), source, applies, tolerance)


def batch_norm_mean_square(
    layer: nn.BatchNorm1d, inputs: Tensor, *, batch_size: int | None = None
) -> Inequality:
    r"""Compare the mean square norm after batch normalisation with its exact value.

    $$\tfrac1N\sum_i\|h_i\|^2 =
      \sum_k\frac{\gamma_k^2\sigma_k^2}{\sigma_k^2+\mathrm{eps}} + \|b\|^2$$

    Source: pan2023, Prop. 2.2.1 (exact)
    Range: at most ‖gamma‖² + ‖b‖². Training statistics; over several batches the first term is
    averaged with the sizes of the batches as weights.

    >>> layer = nn.BatchNorm1d(1, eps=1.0)
    >>> both = batch_norm_mean_square(layer, torch.tensor([[0.0], [2.0]]))
    >>> round(float(both.left), 12), float(both.right)
    (0.5, 0.5)
    """
    outputs = _train_outputs(layer, inputs, batch_size)
    gamma, bias = _scale_and_bias(layer)
    left = outputs.square().sum(1).mean()
    right = bias.square().sum()
    scale = right + gamma.square().sum()
    for batch in _batches(inputs, batch_size):
        variance = batch.var(0, correction=0)
        # Without eps the layer also returns 0/0 for a constant coordinate.
        term = (gamma.square() * variance / (variance + layer.eps)).sum()
        right = right + term * (len(batch) / len(inputs))
        # The rounding error of a variance grows with the size of the coordinate.
        noise = gamma.square() * batch.square().mean(0) / (variance + layer.eps)
        scale = scale + noise.sum() * (len(batch) / len(inputs))
    source = "pan2023, Prop. 2.2.1 (exact)"
    return Inequality(left.numpy(), "==", right.numpy(), source, tolerance=ROUNDING * float(scale))


def _batches(inputs: Tensor, batch_size: int | None) -> tuple[Tensor, ...]:
    """Return the rows in float64, split into batches; the last one may be shorter."""
    rows = inputs.detach().to("cpu", torch.float64)
    return rows.split(len(rows) if batch_size is None else batch_size)


def _scale_and_bias(layer: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """Return gamma and b; ones and zeros for a layer without affine part."""
    if not layer.affine:
        size = layer.num_features
        return torch.ones(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    gamma, bias = (value.detach().to("cpu", torch.float64) for value in (layer.weight, layer.bias))
    return gamma, bias


def _train_outputs(layer: nn.BatchNorm1d, inputs: Tensor, batch_size: int | None) -> Tensor:
    """Return the layer's outputs in training mode, in float64; the layer itself does not change."""
    if inputs.ndim != 2 or inputs.shape[1] != layer.num_features:
        raise DataError(
            f"Expected inputs (N, {layer.num_features}) for this layer, got {tuple(inputs.shape)}."
        )
    batches = _batches(inputs, batch_size)
    if min(len(batch) for batch in batches) < 2:
        raise DataError(
            f"Expected batches of at least 2 rows, got {len(inputs)} rows in batches of "
            f"{batch_size or len(inputs)}. Batch statistics of one row are undefined."
        )
    twin = copy.deepcopy(layer).to("cpu", torch.float64).train()
    with torch.no_grad():
        return torch.cat([twin(batch) for batch in batches])
