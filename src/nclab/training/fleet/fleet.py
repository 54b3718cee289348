"""The fleet of MLPs: many models of one shape, trained by a compiled kernel or by plain torch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from nclab.compute import has_numba
from nclab.errors import NclabError
from nclab.training.fleet import torch_backend
from nclab.training.fleet.base import BaseFleet, EpochStats, Statistics
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.fleet.state import State
from nclab.training.models.mlp import MLP, Shape

Backend = Literal["auto", "kernel", "torch"]
"""Code that trains: the compiled kernel (CPU, extra `fast`), plain torch (any device), or the
kernel wherever it works."""
TrainEpoch = Callable[..., tuple[Tensor, Tensor]]


class Fleet(BaseFleet):
    """Models of one shape that differ in norm, weight decay and seed, trained together.

    Each member has its own weights and batch order from its own seed. Its numbers do not depend on
    the other members. A fleet uses one thread of a CPU, so use one process per core. A member takes
    exactly the steps of this script:

        torch.manual_seed(member.seed); model = MLP(shape, member.norm)
        optimiser = torch.optim.SGD(model.parameters(), recipe.rate, recipe.momentum,
                                    weight_decay=member.weight_decay)  # or the recipe's
        for epoch: for rows in torch.randperm(n).split(recipe.batch): a step on those rows

    Numbers below 1.2e-38 become 0 (`torch.set_flush_denormal`). Without this, a network whose
    weights decay to 0 takes three times as long.

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
        super().__init__(shape, members, recipe, inputs, labels, device=device, dtype=dtype)
        device = torch.device(device)
        self._train_epoch: TrainEpoch = torch_backend.train_epoch
        if choose_backend(backend, device) == "kernel":
            from nclab.training.fleet import kernel_backend  # late: it needs numba

            self._train_epoch = kernel_backend.train_epoch
        self._states = [State.start(shape, m, recipe, device, dtype) for m in self.members]

    def _train(self, index: int, epoch: int, rate: float) -> EpochStats:
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
            return self._fail(index, problem, rate)
        sizes = torch.full((steps,), float(batch), dtype=torch.float64)
        sizes[-1] = len(order) - (steps - 1) * batch
        loss = float(losses @ sizes) / len(order)
        return EpochStats(loss, int(hits.sum()) / len(order), True, "")

    def model(self, index: int, *, statistics: Statistics = "running") -> MLP:
        """Return a copy of one member in evaluation mode, with either statistics of batch norm."""
        if statistics not in get_args(Statistics):
            raise NclabError(f"Expected statistics 'running' or 'full', got {statistics!r}.")
        model = self._states[index].model()
        return model if statistics == "running" else model.with_full_statistics(self.inputs)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Return copies of all that one member needs to continue bit for bit, for `load`."""
        return self._states[index].tensors()

    def _restore(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        self._states[index].load(tensors)


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
    """Describe the first loss, or else the weights, that are not finite; None if all are."""
    finite = losses.isfinite()
    if not finite.all():
        step = int(finite.long().argmin())
        return f"the loss became {float(losses[step])} at step {step + 1}"
    if not all(bound.isfinite() for bound in state.parameters.aminmax()):  # nan is both bounds
        return "the weights became infinite"
    return None
