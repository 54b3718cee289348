"""The fleet: many MLPs of one shape, trained by a compiled kernel or by plain torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from nclab.compute import has_numba, no_denormals, one_thread
from nclab.errors import DataError, NclabError
from nclab.training.fleet import torch_backend
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.fleet.state import State
from nclab.training.models.mlp import MLP, Shape

Backend = Literal["auto", "kernel", "torch"]
"""Code that trains: the compiled kernel (CPU, extra `fast`), plain torch (any device), or the
kernel wherever it works."""
Statistics = Literal["running", "full"]
"""Statistics of batch norm: running averages from training, or mean and variance of all data."""
TrainEpoch = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EpochStats:
    """Loss and accuracy of one member over the training batches of an epoch."""

    loss: float
    """Mean of the recipe's loss over the samples, each with the weights before the step that uses
    the sample; nan if the member failed."""
    accuracy: float
    """Share of correctly classified samples, with the same weights; nan if the member failed."""
    alive: bool
    """False once loss or weights are not finite; the member keeps its last finite state."""
    why: str
    """When and why the member failed; empty while alive."""


class Fleet:
    """Models of one shape that differ in norm, weight decay and seed, trained together.

    Each member has its own weights and batch order from its own seed. Its numbers do not depend on
    the other members. A fleet uses one thread of a CPU, so use one process per core. A member takes
    exactly the steps of this script:

        torch.manual_seed(member.seed); model = MLP(shape, member.norm)
        optimiser = torch.optim.SGD(model.parameters(), recipe.rate, recipe.momentum,
                                    weight_decay=member.weight_decay)  # or the recipe's
        for epoch: for rows in torch.randperm(n).split(recipe.batch): a step on those rows

    A member whose loss or weights stop being finite fails: it keeps its state at the end of the
    last good epoch, and the other members continue. Numbers below 1.2e-38 become 0
    (`torch.set_flush_denormal`), because a CPU computes with them many times slower.

    >>> inputs = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    >>> members = [Member("affine", 1e-3, seed=0), Member("none", 1e-2, seed=0)]
    >>> fleet = Fleet(Shape(width=8), members, Recipe(epochs=2, batch=20), inputs,
    ...               torch.arange(60) % 4)
    >>> [stats.alive for stats in fleet.train_epoch()], fleet.epoch
    ([True, True], 1)
    """

    def __init__(
        self,
        shape: Shape,
        members: Sequence[Member],
        recipe: Recipe,
        inputs: Any,
        labels: Any,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        backend: Backend = "auto",
    ) -> None:
        device = torch.device(device)
        self.shape = shape
        self.members = tuple(members)
        self.recipe = recipe
        self.inputs, self.labels = _checked_data(inputs, labels, shape, device, dtype)
        check_batches(len(self.inputs), recipe, self.members)
        self._epochs = [0] * len(self.members)
        self._failures = [""] * len(self.members)
        self._train_epoch: TrainEpoch = torch_backend.train_epoch
        if choose_backend(backend, device) == "kernel":
            from nclab.training.fleet import kernel_backend  # late: it needs numba

            self._train_epoch = kernel_backend.train_epoch
        self._states = [State.start(shape, m, recipe, device, dtype) for m in self.members]

    @property
    def epoch(self) -> int:
        """Number of finished epochs; raise if the members are not at the same epoch."""
        if len(set(self._epochs)) > 1:
            raise NclabError(
                f"Expected all members at the same epoch, got epochs {self._epochs}. Load a state "
                "of the same epoch into every member."
            )
        return self._epochs[0]

    def train_epoch(self) -> list[EpochStats]:
        """Train every member that is alive for one epoch."""
        rate = self.recipe.rate_at(self.epoch)
        stats = []
        with one_thread(), no_denormals():
            for index, epoch in enumerate(self._epochs):
                self._epochs[index] += 1
                trained = None if self._failures[index] else self._train(index, epoch, rate)
                failed = EpochStats(math.nan, math.nan, False, self._failures[index])
                stats.append(trained or failed)
        return stats

    def model(self, index: int, *, statistics: Statistics = "running") -> MLP:
        """Return a copy of one member in evaluation mode.

        Args:
            statistics: running, batch norm uses the running averages of training; full, it uses
                mean and variance of all training data.
        """
        if statistics not in get_args(Statistics):
            raise NclabError(f"Expected statistics 'running' or 'full', got {statistics!r}.")
        model = self._states[index].model()
        return model if statistics == "running" else model.with_full_statistics(self.inputs)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Return copies of all that one member needs to continue bit for bit, for `load`."""
        return self._states[index].tensors()

    def load(self, index: int, tensors: Mapping[str, Tensor], epoch: int, why: str = "") -> None:
        """Restore the state of one member.

        Args:
            tensors: state that the method `tensors` returned.
            epoch: number of epochs that the member had finished in this state.
            why: why the member failed, as in its `EpochStats`; empty if it is alive.
        """
        self._states[index].load(tensors)
        self._epochs[index] = epoch
        self._failures[index] = why

    def _train(self, index: int, epoch: int, rate: float) -> EpochStats | None:
        """Train one member for an epoch, counted from 0; return None if it fails."""
        state, member = self._states[index], self.members[index]
        backup = state.copy()
        order = torch.randperm(len(self.inputs), generator=state.generator)
        steps, batch = self.recipe.steps(len(order)), self.recipe.batch
        order = order[: steps * batch]
        losses, hits = self._train_epoch(
            state,
            self.inputs,
            self.labels,
            order.to(self.inputs.device),
            self.recipe,
            rate=rate,
            weight_decay=member.weight_decay,
            first_step=epoch * steps + 1,
        )
        problem = _first_not_finite(losses, state)
        if problem is not None:
            self._states[index] = backup
            self._failures[index] = (
                f"{problem} in epoch {epoch + 1} of {self.recipe.epochs} (weight decay "
                f"{member.weight_decay:g}, rate {rate:g}); the state after epoch {epoch} is kept"
            )
            return None
        sizes = torch.full((steps,), float(batch), dtype=torch.float64)
        sizes[-1] = len(order) - (steps - 1) * batch
        loss = float(losses @ sizes) / len(order)
        return EpochStats(loss, int(hits.sum()) / len(order), True, "")


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
            "sample to a row, and set `inputs` of the network's Shape to the length of a row."
        )
    if y.shape != x.shape[:1] or y.dtype.is_floating_point:
        raise DataError(
            f"Expected one integer label for each of {len(x)} inputs, got {y.dtype} of shape "
            f"{tuple(y.shape)}."
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= shape.classes:
        wrong = low if low < 0 else high
        raise DataError(f"Expected labels in [0, {shape.classes}), got {wrong}.")
    return x.to(device, dtype).contiguous(), y.to(device, torch.int64).contiguous()


def choose_backend(backend: Backend, device: torch.device) -> Literal["kernel", "torch"]:
    """Return the code that trains on a device; raise if the requested backend cannot.

    >>> choose_backend("auto", torch.device("cuda"))
    'torch'
    """
    if backend not in get_args(Backend):
        raise NclabError(f"Expected backend 'auto', 'kernel' or 'torch', got {backend!r}.")
    if backend == "kernel" and device.type != "cpu":
        raise NclabError(f"Expected the device cpu for the kernel, got {device}. Use 'torch'.")
    if backend == "kernel" and not has_numba():
        raise NclabError("The kernel needs numba, which is not installed: pip install nclab[fast].")
    if backend == "torch" or device.type != "cpu":
        return "torch"
    return "kernel" if has_numba() else "torch"


def _first_not_finite(losses: Tensor, state: State) -> str | None:
    """Describe the first loss that is not finite, else weights that are not; None if all are."""
    finite = losses.isfinite()
    if not finite.all():
        step = int(finite.long().argmin())
        return f"the loss became {float(losses[step])} at step {step + 1}"
    if not all(bound.isfinite() for bound in state.parameters.aminmax()):  # nan is both bounds
        return "the weights became infinite"
    return None
