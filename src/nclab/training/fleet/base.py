"""What all fleets share: checks of data and batches, epochs of the members, and how they fail."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nclab.compute import no_denormals, one_thread
from nclab.errors import DataError, NclabError
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.models.mlp import Shape

Statistics = Literal["running", "full"]
"""Batch norm by the running averages of training, or by the statistics of all data."""


@dataclass(frozen=True)
class EpochStats:
    """Loss and accuracy of one member over the training batches of an epoch."""

    loss: float
    """Mean of the recipe's loss over the epoch, each sample before its step; nan if not alive."""
    accuracy: float
    """Share of samples classified correctly before their step; nan if not alive."""
    alive: bool
    """False once loss or weights are not finite; the member keeps its last finite state."""
    why: str
    """When and why the member failed; empty while alive."""


class BaseFleet(ABC):
    """Models of one shape and recipe that are trained epoch by epoch, each independently.

    A member whose loss or weights stop being finite fails: it keeps its state at the end of the
    last good epoch, and the other members continue.
    """

    def __init__(
        self,
        shape: Shape,
        members: Sequence[Member],
        recipe: Recipe,
        inputs: Any,
        labels: Any,
        *,
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> None:
        self.shape = shape
        self.members = tuple(members)
        self.recipe = recipe
        self.inputs, self.labels = _checked_data(inputs, labels, shape, torch.device(device), dtype)
        check_batches(len(self.inputs), recipe, self.members)
        self._epochs = [0] * len(self.members)
        self._failures = [""] * len(self.members)

    @property
    def epoch(self) -> int:
        """Number of finished epochs; raise if the members are not at the same epoch."""
        if len(set(self._epochs)) > 1:
            raise NclabError(
                f"Expected all members at one epoch, got {self._epochs}. Load each of them."
            )
        return self._epochs[0]

    def train_epoch(self) -> list[EpochStats]:
        """Train every member that is alive for one epoch."""
        rate = self.recipe.rate_at(self.epoch)
        stats = []
        with one_thread(), no_denormals():
            for index, epoch in enumerate(self._epochs):
                self._epochs[index] += 1
                failure = self._failures[index]
                stats.append(_failed(failure) if failure else self._train(index, epoch, rate))
        return stats

    def load(self, index: int, tensors: Mapping[str, Tensor], epoch: int, why: str = "") -> None:
        """Set one member to the state that `tensors` returned at the end of that epoch.

        Args:
            why: why the member failed, as in its `EpochStats`; empty if it is alive.
        """
        self._restore(index, tensors)
        self._epochs[index] = epoch
        self._failures[index] = why

    @abstractmethod
    def model(self, index: int, *, statistics: Statistics = "running") -> nn.Module:
        """Return a copy of one member in evaluation mode."""

    @abstractmethod
    def tensors(self, index: int) -> dict[str, Tensor]:
        """Return copies of all that one member needs to continue bit for bit, for `load`."""

    @abstractmethod
    def _restore(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """Set the state of one member from tensors."""

    @abstractmethod
    def _train(self, index: int, epoch: int, rate: float) -> EpochStats:
        """Train one member for an epoch, counted from 0."""

    def _fail(self, index: int, reason: str, rate: float) -> EpochStats:
        """Mark a member as failed in its current epoch."""
        epoch = self._epochs[index]
        self._failures[index] = (
            f"{reason} in epoch {epoch} of {self.recipe.epochs} (weight decay "
            f"{self.members[index].weight_decay:g}, rate {rate:g}); the state after epoch "
            f"{epoch - 1} is kept"
        )
        return _failed(self._failures[index])


def check_batches(samples: int, recipe: Recipe, members: Sequence[Member]) -> None:
    """Raise without members, without a full batch, or if batch norm would get a single sample."""
    if not members:
        raise NclabError("Expected at least one member, got none.")
    if recipe.steps(samples) == 0:
        raise NclabError(
            f"Expected at least {recipe.batch} samples for a batch, got {samples}. Use a smaller "
            "batch or drop_last=False."
        )
    remainder = samples % recipe.batch
    single = recipe.batch == 1 or (remainder == 1 and not recipe.drop_last)
    if single and any(member.norm != "none" for member in members):
        raise NclabError(
            f"Expected batches of at least 2 samples, which batch norm needs, but {samples} "
            f"samples in batches of {recipe.batch} leave one of 1. Use another batch size or "
            "drop_last=True."
        )


def _checked_data(
    inputs: Any, labels: Any, shape: Shape, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return inputs (n, d) and labels (n,) on the device; raise if they do not fit the shape."""
    if dtype not in (torch.float32, torch.float64):
        raise NclabError(f"Expected dtype torch.float32 or torch.float64, got {dtype}.")
    x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    if x.ndim != 2 or x.shape[1] != shape.inputs:
        raise DataError(
            f"Expected inputs of shape (n, {shape.inputs}), got {tuple(x.shape)}. Flatten each "
            "sample to a row, and set the inputs of the shape to their dimension."
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


def _failed(why: str) -> EpochStats:
    return EpochStats(math.nan, math.nan, False, why)
