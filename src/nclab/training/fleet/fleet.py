"""The fleet: many models of one shape trained in lock-step, epoch by epoch, each independently."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from nclab.errors import NclabError
from nclab.training.fleet.backend import Backend, find_backend
from nclab.training.fleet.course import Course, EpochStats
from nclab.training.fleet.fleet_checks import check_batches, check_data
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.fleet.state import State
from nclab.training.models.mlp import MLP, Shape

Statistics = Literal["running", "full"]
"""Batch norm by the running averages of training, or by the statistics of the whole data."""


class Fleet:
    """Models of one shape that differ in norm, weight decay and seed, trained together.

    Each has its own weights and batch order from its own seed; its numbers do not depend on which
    others train beside it. A CPU's one thread does the work: take a process per core. A member
    takes exactly the steps of this script:

        torch.manual_seed(member.seed); model = MLP(shape, member.norm)
        optimiser = torch.optim.SGD(model.parameters(), recipe.rate, recipe.momentum,
                                    weight_decay=member.weight_decay)  # or the recipe's
        for epoch: for rows in torch.randperm(n).split(recipe.batch): a step on those rows

    Numbers below 1.2e-38 are zeros (`torch.set_flush_denormal`), else a network that died by
    weight decay takes three times as long.

    A member whose loss or weights stop being finite is dead: it keeps the state of the last epoch
    that ended well, and the others go on.

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
        self.shape = shape
        self.members = tuple(members)
        self.recipe = recipe
        where = torch.device(device)
        self.inputs, self.labels = check_data(inputs, labels, shape, where, dtype)
        self._train_epoch = find_backend(backend, where, recipe)
        check_batches(len(self.inputs), recipe, self.members)
        self._states = [State.start(shape, m, recipe, where, dtype) for m in self.members]
        self._course = Course(self.members, recipe)

    @property
    def epoch(self) -> int:
        """Epochs done; the members must be at the same one."""
        return self._course.epoch

    def train_epoch(self) -> list[EpochStats]:
        """One epoch of every member."""
        return self._course.train_epoch(self._train)

    def _train(self, index: int, epoch: int, rate: float) -> EpochStats:
        state, member = self._states[index], self.members[index]
        state.keep()
        order = torch.randperm(len(self.inputs), generator=state.generator)
        steps, batch = self.recipe.steps(len(order)), self.recipe.batch
        order = order[: steps * batch]
        data = (self.inputs, self.labels, order.to(self.inputs.device))
        how = {"rate": rate, "weight_decay": member.weight_decay, "taken": epoch * steps}
        losses, hits = self._train_epoch(state, *data, self.recipe, **how)
        broken = _first_broken(losses, state)
        if broken is not None:
            state.restore()
            return self._course.dies(index, broken, rate)
        sizes = torch.full((steps,), float(batch), dtype=torch.float64)
        sizes[-1] = len(order) - (steps - 1) * batch
        loss = float(losses @ sizes) / len(order)
        return EpochStats(loss, int(hits.sum()) / len(order), True, "")

    def model(self, index: int, *, statistics: Statistics = "running") -> MLP:
        """A copy of one member in evaluation mode, its batch norms by either statistics."""
        if statistics not in get_args(Statistics):
            raise NclabError(f"Expected statistics 'running' or 'full', got {statistics!r}.")
        model = self._states[index].model()
        return model if statistics == "running" else model.with_full_statistics(self.inputs)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Copies of what one member needs to go on bit for bit, for `load`."""
        return self._states[index].tensors()

    def load(self, index: int, tensors: Mapping[str, Tensor], epoch: int, why: str = "") -> None:
        """Put one member back to where `tensors` found it, at the end of that epoch.

        Args:
            why: how it died, as its `EpochStats` said; empty for one that goes on.
        """
        self._states[index].load(tensors)
        self._course.put(index, epoch, why)


def _first_broken(losses: Tensor, state: State) -> str | None:
    """What stopped being finite first, if anything did."""
    finite = losses.isfinite()
    if not finite.all():
        step = int(finite.long().argmin())
        return f"the loss became {float(losses[step])} at step {step + 1}"
    if not all(bound.isfinite() for bound in state.parameters.aminmax()):  # a nan is both
        return "the weights became infinite"
    return None
