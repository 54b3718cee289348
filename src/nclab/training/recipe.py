"""What a fleet is told: its members, and the recipe of stochastic gradient descent they share."""

import math
from dataclasses import dataclass
from typing import get_args

from nclab.errors import NclabError
from nclab.models.mlp import Norm


@dataclass(frozen=True)
class Member:
    """What sets one model of a fleet apart from the others."""

    norm: Norm = "affine"
    """Batch norm: "affine" (scale and shift), "plain" (without) or "none"."""
    weight_decay: float = 1e-3
    """Added, times the parameter, to the gradient of every parameter, batch norm's included."""
    seed: int = 0
    """First weights and batch order follow from it."""

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise NclabError(f"Expected norm 'affine', 'plain' or 'none', got {self.norm!r}.")
        if not (0 <= self.weight_decay < math.inf):
            raise NclabError(f"Expected a weight decay of at least 0, got {self.weight_decay!r}.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise NclabError(f"Expected a seed from 0 to 2^63 - 1, got {self.seed!r}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Stochastic gradient descent as `torch.optim.SGD` does it; the defaults are pan2023's.

    >>> [Recipe(epochs=4, rate=8.0, decay=0.5).rate_at(epoch) for epoch in range(4)]
    [8.0, 4.0, 2.0, 1.0]
    """

    epochs: int = 300
    """Passes over the data."""
    batch: int = 128
    """Samples a step."""
    rate: float = 0.0679
    """First learning rate."""
    momentum: float = 0.9
    """Momentum, without dampening."""
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75)
    """Shares of the epochs after which the rate is multiplied by `decay`."""
    decay: float = 0.1
    """Factor of the rate at every milestone."""
    drop_last: bool = False
    """Leave out a smaller last batch of an epoch."""

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 0), ("batch", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise NclabError(f"Expected {name} of at least {lowest}, got {value!r}.")
        for name, below in (("rate", math.inf), ("momentum", 1.0), ("decay", math.inf)):
            value = getattr(self, name)
            if not 0 <= value < below:
                raise NclabError(f"Expected 0 <= {name} < {below:g}, got {value!r}.")
        for share in self.milestones:
            if not 0 <= share <= 1:
                raise NclabError(f"Expected milestones as shares from 0 to 1, got {share!r}.")

    def rate_at(self, epoch: int) -> float:
        """The learning rate during an epoch, counted from 0."""
        passed = sum(epoch >= round(share * self.epochs, 9) for share in self.milestones)
        return self.rate * self.decay**passed

    def steps(self, samples: int) -> int:
        """Steps of one epoch."""
        full, rest = divmod(samples, self.batch)
        return full + (rest > 0 and not self.drop_last)
