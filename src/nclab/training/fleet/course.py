"""How far every member of a fleet has come, and how it died: the same for every kind of fleet."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from nclab.compute import no_denormals, one_thread
from nclab.errors import NclabError
from nclab.training.fleet.recipe import Member, Recipe


@dataclass(frozen=True)
class EpochStats:
    """How one member's epoch went, seen from its own training batches."""

    loss: float
    """Mean of the recipe's loss over the epoch, each sample before its step; nan when dead."""
    accuracy: float
    """Share of samples whose largest logit, before the step, was their label's; nan when dead."""
    alive: bool
    """False once loss or weights are not finite; the member keeps its last finite state."""
    why: str
    """When and how it died; empty while alive."""


Train = Callable[[int, int, float], EpochStats]
"""Takes the index of a member, the epochs it has done and the rate."""


class Course:
    """The epochs that the members of a fleet have done."""

    def __init__(self, members: tuple[Member, ...], recipe: Recipe) -> None:
        self.members, self.recipe = members, recipe
        self._epochs = [0] * len(members)
        self._deaths = [""] * len(members)

    @property
    def epoch(self) -> int:
        """Epochs done; the members must be at the same one."""
        if len(set(self._epochs)) > 1:
            raise NclabError(
                f"Expected all members at one epoch, got {self._epochs}. Load each of them."
            )
        return self._epochs[0]

    def train_epoch(self, train: Train) -> list[EpochStats]:
        """One epoch of every member that is alive."""
        rate = self.recipe.rate_at(self.epoch)
        found = []
        with one_thread(), no_denormals():
            for index, epoch in enumerate(self._epochs):
                self._epochs[index] += 1
                dead = self._deaths[index]
                found.append(_dead(dead) if dead else train(index, epoch, rate))
        return found

    def dies(self, index: int, what: str, rate: float) -> EpochStats:
        """A member ends, in the epoch it is in; `what` it was that stopped being finite."""
        epoch = self._epochs[index]
        self._deaths[index] = (
            f"{what} in epoch {epoch} of {self.recipe.epochs} (weight decay "
            f"{self.members[index].weight_decay:g}, rate {rate:g}); the state after epoch "
            f"{epoch - 1} is kept"
        )
        return _dead(self._deaths[index])

    def put(self, index: int, epoch: int, why: str) -> None:
        """A member is at the end of that epoch; `why` it died, if it did."""
        self._epochs[index] = epoch
        self._deaths[index] = why


def _dead(why: str) -> EpochStats:
    return EpochStats(math.nan, math.nan, False, why)
