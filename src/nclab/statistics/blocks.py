"""How the streams read: blocks of rows that stay in the cache, in float64."""

from collections.abc import Iterator

import torch
from torch import Tensor

CPU_BLOCK = 2**17
"""Numbers in a block: 1 MiB of float64, so that every operation on it stays in the L2 cache."""
ACCELERATOR_BLOCK = 2**24
STRIP = 64
"""Columns in a strip of the symmetric product: the diagonal wastes STRIP / (2 d) of it."""


def device_with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU where the device knows no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def block_rows(width: int, device: torch.device) -> int:
    """Rows of `width` numbers that make one block."""
    numbers = CPU_BLOCK if device.type == "cpu" else ACCELERATOR_BLOCK
    return max(128, numbers // max(1, width))


def row_blocks(
    features: Tensor,
    labels: Tensor,
    ignore_index: int | None,
    device: torch.device,
    *,
    width: int | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (float64 rows, their classes) without the ignored rows.

    The rows are scratch space, valid until the next block and free to be overwritten. `width`
    is the number of columns of the widest product made of a row, if that is not d.
    """
    step = block_rows(max(features.shape[1], width or 0), device)
    scratch = torch.empty(
        min(step, len(features)), features.shape[1], dtype=torch.float64, device=device
    )
    for start in range(0, len(features), step):
        classes = labels[start : start + step]
        block = scratch[: len(classes)].copy_(features[start : start + step])
        if ignore_index is not None:
            keep = classes != ignore_index
            if not keep.all():
                block, classes = block[keep], classes[keep]
        if len(classes):
            yield block, classes


def symmetric_update(scatter: Tensor, rows: Tensor, *, factor: float = 1.0) -> Tensor:
    """Add factor * rows^T rows to the upper triangle of `scatter`, in place.

    Half a GEMM: what is left of the diagonal strips is not computed.
    """
    for start in range(0, scatter.shape[0], STRIP):
        strip = scatter[start : start + STRIP, start:]
        strip.addmm_(rows[:, start : start + STRIP].T, rows[:, start:], alpha=factor)
    return scatter
