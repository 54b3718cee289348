"""Rows of features, one for each label, from feature maps and tokens.

The rules for a tensor and the labels of a batch of B samples:

- (B, d) is used unchanged.
- If every position has a label, labels (B, ...), every position is a row.
- Otherwise the positions of a sample, pixels of a map (B, d, H, W) or tokens (B, T, d), are
  averaged ("mean", over the tokens that `attention_mask` keeps) or concatenated ("flatten").
- Channels come second if a convolution, batch norm or pooling made or reads the tensor, last if a
  linear layer, layer norm or attention does. For any other module, the dimension is that of the
  last tensor of the same shape that one of these modules read or returned. Without such a tensor,
  channels come second in four or more dimensions, else last.
- Sequence-first tensors (T, B, d) are recognised by their shape if the model has layers with
  `batch_first=False`.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

Pool = Literal["mean", "flatten"]
"""Method that turns the positions of a sample into one row."""
PositionSelection = Literal["rows", "token", "mean"]
"""Features that the classifier reads: "rows" means the rows of `to_rows`, "token" the features at
one position of each sample, "mean" the mean over all positions, including padding."""

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
    """Raised for a tensor without a row for each label; the message gives the reason."""


def has_known_channels(module: nn.Module) -> bool:
    """Whether the type of a module determines the channel dimension of its input and output."""
    # A layer norm with a forward of its own may permute maps (B, d, H, W), as in ConvNeXt.
    permutes = isinstance(module, nn.LayerNorm) and type(module).forward is not nn.LayerNorm.forward
    return isinstance(module, (*_CHANNELS_SECOND, *_CHANNELS_LAST)) and not permutes


def channel_dim(module: nn.Module, ndim: int) -> int:
    """Return the channel dimension of a tensor that `module` reads or returns.

    >>> channel_dim(nn.Conv1d(2, 3, 1), 3), channel_dim(nn.Linear(2, 3), 3)
    (1, -1)
    """
    if has_known_channels(module):
        return 1 if isinstance(module, _CHANNELS_SECOND) else -1
    return 1 if ndim >= 4 else -1


def is_sequence_first(tensor: Tensor, labels: Tensor, module: nn.Module) -> bool | None:
    """Whether a tensor is (T, B, d) rather than (B, T, d); None if T = B leaves this open.

    >>> is_sequence_first(torch.ones(7, 2, 3), torch.tensor([0, 1]), nn.Linear(3, 3))
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
    time_first: bool | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """Return (rows, d) features, one row for each label, as a copy that later layers cannot change.

    Args:
        module: determines the channel dimension.
        sequence_first: whether the model has layers with `batch_first=False`, so that tensors may
            be (T, B, d).
        time_first: whether the tensor is (T, B, d) if its shape leaves this open, because T = B.
        keep: indices of the labels whose rows are returned, if each position has a label.

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
        by_shape = is_sequence_first(tensor, labels, module)
        time_first = time_first if by_shape is None else by_shape
        if time_first is None:
            raise NoRows(f"its shape {shape} could be batch first or sequence first")
        rows = rows.transpose(0, 1) if time_first else rows
    if rows.shape[:-1] == labels.shape:
        return _copied(rows.reshape(-1, rows.shape[-1]), keep)
    if rows.shape[0] != labels.shape[0] or labels.ndim != 1:
        raise NoRows(
            f"its shape {shape} does not fit labels of shape {tuple(labels.shape)}"
            + _token_hint(rows, labels)
        )
    if pool == "flatten":
        return rows.movedim(-1, 1).flatten(1).clone()
    positions = rows.flatten(1, -2)  # (B, P, d)
    if mask is not None and mask.shape == positions.shape[:2]:
        weights = mask.double()
        summed = torch.einsum("bp,bpd->bd", weights, positions.double())
        return summed / weights.sum(1, keepdim=True).clamp_min(1.0)
    return positions.mean(1, dtype=torch.float64)


def _token_hint(rows: Tensor, labels: Tensor) -> str:
    """Return an addition to the error if sequences and labels differ in length, else ""."""
    if rows.ndim != 3 or labels.ndim != 2 or len(rows) != len(labels):
        return ""
    tokens, given = rows.shape[1], labels.shape[1]
    hint = f"; {tokens} tokens need {tokens} labels, got {given}"
    if given == tokens - 1:
        hint += " (for next tokens pass labels='next' and the labels of all tokens)"
    return hint


def _copied(rows: Tensor, keep: Tensor | None) -> Tensor:
    return rows.clone() if keep is None else rows.index_select(0, keep.to(rows.device))


def as_column(output: Tensor) -> Tensor:
    """Return logits with a class dimension; (B,) logits become (B, 1)."""
    return output[:, None] if output.ndim == 1 else output


def as_rows(tensor: Tensor) -> Tensor:
    """Return a tensor with all positions flattened to rows, (n, d)."""
    return tensor.reshape(-1, tensor.shape[-1])


def binary_logits(logits: Tensor) -> Tensor:
    """Convert one logit z per sample to the logits -z/2 and z/2; return other logits unchanged."""
    return torch.cat([-logits / 2, logits / 2], -1) if logits.shape[-1] == 1 else logits


def views(
    tensor: Tensor, output: Tensor, mask: Tensor | None = None
) -> Iterator[tuple[PositionSelection, Tensor]]:
    """Yield the parts of a tensor, channels last, whose rows may correspond to rows of the output.

    These parts are all positions; or, if the output has one row for each sample, the mean over
    positions, the first position and the last position.
    """
    if tensor.shape[:-1] == output.shape[:-1]:
        yield "rows", tensor
        return
    if output.ndim != 2:
        return
    for positions in _by_sample(tensor, len(output)):
        mean = positions.mean(1)
        if mask is not None and mask.shape == positions.shape[:2]:
            weights = mask.to(positions)
            total = weights.sum(1, keepdim=True).clamp_min(1.0)
            yield "rows", torch.einsum("bp,bpd->bd", weights, positions) / total
            yield "mean", mean
        else:
            yield "rows", mean
        yield "token", positions[:, 0]
        yield "token", positions[:, -1]


def is_averaged(tensor: Tensor, output: Tensor, selection: PositionSelection) -> bool:
    """Whether a view of a tensor is its mean over positions."""
    return selection != "token" and tensor.shape[:-1] != output.shape[:-1]


def select_positions(features: Tensor, logits: Tensor, output: Tensor) -> Tensor | None:
    """Return (B, d) features at the position of each sample whose logits are the (B, C) output.

    Features and logits have the channels last. Return None if a sample has no such position.

    >>> features = torch.tensor([[[1.0, 0], [2, 0], [3, 0]], [[4, 0], [5, 0], [6, 0]]])
    >>> select_positions(features, features, torch.tensor([[3.0, 0], [4, 0]])).tolist()
    [[3.0, 0.0], [4.0, 0.0]]
    """
    eps = max(torch.finfo(part.dtype).eps for part in (logits, output))
    layouts = zip(_by_sample(features, len(output)), _by_sample(logits, len(output)), strict=True)
    for rows, values in layouts:
        if values.shape[-1] != output.shape[-1]:
            continue
        errors = (values.double() - output[:, None].double()).abs().amax(-1)  # (B, P)
        least, position = errors.min(1)
        size = values.double().abs().amax((1, 2))
        if bool((least <= 8 * eps * size).all()):
            return rows[torch.arange(len(rows), device=rows.device), position]
    return None


def mean_rows(features: Tensor, count: int) -> Tensor:
    """Return (B, d) means over all positions of `count` samples."""
    return next(_by_sample(features, count)).mean(1, dtype=torch.float64)


def _by_sample(tensor: Tensor, count: int) -> Iterator[Tensor]:
    """Yield (B, positions, d) views of a tensor, one per dimension that may index the samples."""
    if tensor.ndim > 2 and len(tensor) == count:
        yield tensor.flatten(1, -2)
    if tensor.ndim == 3 and tensor.shape[1] == count:
        yield tensor.transpose(0, 1)
