"""The public door of the fleet: data and batches are checked here, once."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nclab.errors import DataError, NclabError
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.models.mlp import Shape


def check_data(
    inputs: Any, labels: Any, shape: Shape, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Finite inputs (n, d) and labels (n,) in [0, C), on the device."""
    if dtype not in (torch.float32, torch.float64):
        raise NclabError(f"Expected dtype torch.float32 or torch.float64, got {dtype}.")
    x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    if x.ndim != 2 or x.shape[1] != shape.inputs:
        raise DataError(
            f"Expected inputs of shape (n, {shape.inputs}), got {tuple(x.shape)}. Flatten each "
            "sample to a row, and give the shape the inputs' dimension."
        )
    if y.ndim != 1 or len(y) != len(x):
        raise DataError(f"Expected one label for each of {len(x)} inputs, got {tuple(y.shape)}.")
    if y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool:
        raise DataError(f"Expected integer labels, got {y.dtype}. Convert with labels.long().")
    x, y = x.to(device, dtype).contiguous(), y.to(device, torch.int64).contiguous()
    finite = x.isfinite().all(1)
    if not finite.all():
        row = int(finite.long().argmin())
        raise DataError(f"Expected finite inputs, got nan or infinity in row {row}. Remove it.")
    if shape.classes > len(y):
        raise DataError(
            f"Expected at least one sample for each of {shape.classes} classes, got {len(y)}."
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= shape.classes:
        wrong = low if low < 0 else high
        raise DataError(f"Expected labels in [0, {shape.classes}), got {wrong}.")
    if low == high:
        raise DataError(f"Expected at least two classes among the labels, got only {low}.")
    return x, y


def check_batches(samples: int, recipe: Recipe, members: Sequence[Member]) -> None:
    """At least one member and one step an epoch; no batch of one sample under batch norm."""
    if not members:
        raise NclabError("Expected at least one member, got none.")
    if recipe.steps(samples) == 0:
        raise NclabError(
            f"Expected at least {recipe.batch} samples for a batch, got {samples}. Take a smaller "
            "batch or drop_last=False."
        )
    rest = samples % recipe.batch
    single = recipe.batch == 1 or (rest == 1 and not recipe.drop_last)
    if single and any(member.norm != "none" for member in members):
        raise NclabError(
            f"Expected batches of at least 2 samples, as batch norm needs, but {samples} samples "
            f"in batches of {recipe.batch} leave one of 1. Take another batch size or "
            "drop_last=True."
        )
