"""One feature vector per label: how maps and tokens become rows.

The rule, for a tensor and labels of a batch of B samples:

- (B, d) is taken as it is.
- Where every position has its own label, labels (B, ...), every position is a row.
- Otherwise the positions of a sample, pixels of a map (B, d, H, W) or tokens (B, T, d), are
  averaged ("mean", over the tokens that `attention_mask` keeps) or laid end to end ("flatten").
- Channels come second where a convolution, batch norm or pooling made or reads the tensor, last
  where a linear layer, layer norm or attention does. Any other module follows the last of these
  that met the same shape; without one, channels come second in four or more dimensions, else last.
- Sequence-first tensors (T, B, d) are recognised by their shape, in a model that has layers with
  `batch_first=False`.
"""

from typing import Literal

import torch
from torch import Tensor, nn

Pool = Literal["mean", "flatten"]

_CHANNELS_SECOND = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention, nn.RNNBase, nn.Embedding)


class NoRows(Exception):
    """This tensor has no row per label; the message says why."""


def tells_channels(module: nn.Module) -> bool:
    """Whether the kind of a module tells where the channels are in what it reads and makes."""
    # A layer norm with a forward of its own may turn maps (B, d, H, W) round, as in ConvNeXt.
    own = isinstance(module, nn.LayerNorm) and type(module).forward is not nn.LayerNorm.forward
    return isinstance(module, (*_CHANNELS_SECOND, *_CHANNELS_LAST)) and not own


def channel_dim(module: nn.Module, ndim: int) -> int:
    """Where the channels are in a tensor that `module` reads or makes.

    >>> channel_dim(nn.Conv1d(2, 3, 1), 3), channel_dim(nn.Linear(2, 3), 3)
    (1, -1)
    """
    if tells_channels(module):
        return 1 if isinstance(module, _CHANNELS_SECOND) else -1
    return 1 if ndim >= 4 else -1


def is_turned(tensor: Tensor, labels: Tensor, module: nn.Module) -> bool | None:
    """Whether a tensor is (T, B, d) rather than (B, T, d); None where T = B hides it.

    >>> is_turned(torch.ones(7, 2, 3), torch.tensor([0, 1]), nn.Linear(3, 3))
    True
    """
    first, second, _ = tensor.movedim(channel_dim(module, 3), -1).shape
    return None if first == second else second == labels.shape[0]


def to_rows(
    tensor: Tensor,
    labels: Tensor,
    module: nn.Module,
    *,
    pool: Pool = "mean",
    mask: Tensor | None = None,
    sequence_first: bool = False,
    turned: bool | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """(rows, d) features, one for each label; a copy that later layers cannot change.

    `keep` are the numbers of the labels whose rows are wanted, where each position has its own.

    `module` tells where the channels are. `sequence_first` says that the model has layers with
    `batch_first=False`: tensors may be (T, B, d), not to be told from (B, T, d) where T = B unless
    `turned` says which it is.

    >>> to_rows(torch.ones(2, 3, 4, 4), torch.tensor([0, 1]), nn.Conv2d(3, 5, 1)).shape
    torch.Size([2, 3])
    """
    if tensor.is_nested or not tensor.is_floating_point():
        raise NoRows(f"it holds {'nested' if tensor.is_nested else tensor.dtype} values")
    shape = tuple(tensor.shape)
    if tensor.ndim == 2 and shape[0] == labels.numel():
        return _copied(tensor, keep)
    if tensor.ndim < 3:
        raise NoRows(f"its shape {shape} does not fit labels of shape {tuple(labels.shape)}")
    rows = tensor.movedim(channel_dim(module, tensor.ndim), -1)  # (B, positions..., d)
    if rows.ndim == 3 and sequence_first:
        seen = is_turned(tensor, labels, module)
        turned = turned if seen is None else seen
        if turned is None:
            raise NoRows(f"its shape {shape} could be batch first or sequence first")
        rows = rows.transpose(0, 1) if turned else rows
    if rows.shape[:-1] == labels.shape:
        return _copied(rows.reshape(-1, rows.shape[-1]), keep)
    if rows.shape[0] != labels.shape[0] or labels.ndim != 1:
        hint = ""
        if rows.ndim == 3 and labels.ndim == 2 and len(rows) == len(labels):
            tokens, given = rows.shape[1], labels.shape[1]
            hint = f"; {tokens} tokens need {tokens} labels, got {given}"
            if given == tokens - 1:
                hint += " (for next tokens pass labels='next' and the labels of all tokens)"
        raise NoRows(f"its shape {shape} does not fit labels of shape {tuple(labels.shape)}{hint}")
    if pool == "flatten":
        return rows.movedim(-1, 1).flatten(1).clone()
    positions = rows.flatten(1, -2)  # (B, P, d)
    if mask is not None and mask.shape == positions.shape[:2]:
        weights = mask.double()
        summed = torch.einsum("bp,bpd->bd", weights, positions.double())
        return summed / weights.sum(1, keepdim=True).clamp_min(1.0)
    return positions.mean(1, dtype=torch.float64)


def _copied(rows: Tensor, keep: Tensor | None) -> Tensor:
    return rows.clone() if keep is None else rows.index_select(0, keep.to(rows.device))
