"""The configuration of a fleet: its members, and the training recipe that they share."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nclab.errors import NclabError
from nclab.training.models.mlp import Norm

Optimizer = Literal["sgd", "sgdw", "adam", "adamw", "signum", "signumw"]
"""Optimiser; names ending in w decouple weight decay, the others add it to the gradient."""
Rule = Literal["sgd", "adam", "signum"]
RateSchedule = Literal["milestones", "cosine", "constant"]
Loss = Literal["cross_entropy", "label_smoothing", "focal", "mse"]


@dataclass(frozen=True)
class Member:
    """Options in which the models of a fleet differ."""

    norm: Norm = "affine"
    """Batch norm: "affine" (scale and shift), "plain" (without), "none", or "last" (affine, after
    the last hidden layer only)."""
    weight_decay: float = 1e-3
    """Weight decay of every parameter, including those of batch norm."""
    seed: int = 0
    """Seed of initial weights and batch order."""

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            known = "'affine', 'plain', 'none' or 'last'"
            raise NclabError(f"Expected norm {known}, got {self.norm!r}.")
        if not (0 <= self.weight_decay < math.inf):
            raise NclabError(f"Expected 0 <= weight_decay < inf, got {self.weight_decay!r}.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise NclabError(f"Expected a seed from 0 to 2^63 - 1, got {self.seed!r}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training options with the meaning of `torch.optim`; the defaults are those of pan2023.

    >>> [Recipe(epochs=4, rate=8.0, decay=0.5).rate_at(epoch) for epoch in range(4)]
    [8.0, 4.0, 2.0, 1.0]
    >>> warm = Recipe(epochs=6, rate=8.0, schedule="cosine", warmup=0.5)
    >>> [round(warm.rate_at(epoch), 9) for epoch in range(6)]
    [2.0, 4.0, 6.0, 8.0, 6.0, 2.0]
    """

    epochs: int = 300
    """Number of passes over the data."""
    batch: int = 128
    """Batch size."""
    rate: float = 0.0679
    """Initial learning rate."""
    momentum: float = 0.9
    """Momentum of sgd, sgdw and signum, without dampening."""
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75)
    """Shares of the epochs after which the rate is multiplied by `decay`."""
    decay: float = 0.1
    """Factor of the rate at every milestone."""
    drop_last: bool = False
    """Whether to drop an incomplete last batch of an epoch."""
    optimizer: Optimizer = "sgd"
    """Optimiser; those ending in w decouple weight decay from the gradient, signum steps by the
    sign of the momentum."""
    nesterov: bool = False
    """Whether to use Nesterov momentum; sgd and sgdw only."""
    beta1: float = 0.9
    """Decay of Adam's mean gradient at every step."""
    beta2: float = 0.999
    """Decay of Adam's mean squared gradient at every step."""
    epsilon: float = 1e-8
    """Number added to the root of Adam's mean squared gradient."""
    schedule: RateSchedule = "milestones"
    """Learning rate over the epochs: falling at milestones, cosine down to 0, or constant."""
    warmup: float = 0.0
    """Share of the epochs in which the rate first rises to `rate` in equal steps."""
    loss: Loss = "cross_entropy"
    """Loss, averaged over the batch; mse is half the squared distance to the one-hot label."""
    smoothing: float = 0.1
    """Share s of the label that label_smoothing spreads over all C classes, each of which gets
    s / C."""
    focal_gamma: float = 2.0
    """Exponent gamma of the focal loss, -(1 - p)^gamma log p, with the probability p of the
    label."""
    head_bias_decay: float | None = None
    """Weight decay of the classifier's bias; by default that of all other parameters."""

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 0), ("batch", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise NclabError(f"Expected {name} of at least {lowest}, got {value!r}.")
        for name, bound in _UPPER_BOUNDS.items():
            value = getattr(self, name)
            if not 0 <= value < bound:
                raise NclabError(f"Expected 0 <= {name} < {bound:g}, got {value!r}.")
        for share in self.milestones:
            if not 0 <= share <= 1:
                raise NclabError(f"Expected milestones as shares from 0 to 1, got {share!r}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(map(repr, get_args(choices)))
                raise NclabError(f"Expected {name} as one of {known}; got {getattr(self, name)!r}.")
        if self.nesterov and (self.rule != "sgd" or self.momentum == 0):
            raise NclabError(
                f"Expected nesterov with sgd or sgdw and a momentum, got {self.optimizer} with "
                f"momentum {self.momentum:g}."
            )
        if self.head_bias_decay is not None and not 0 <= self.head_bias_decay < math.inf:
            raise NclabError(
                f"Expected head_bias_decay of at least 0, got {self.head_bias_decay!r}."
            )

    @property
    def rule(self) -> Rule:
        """Name of the optimiser without the last letter w, which means decoupled weight decay."""
        rules: tuple[Rule, ...] = get_args(Rule)
        return next(rule for rule in rules if self.optimizer.removesuffix("w") == rule)

    @property
    def decoupled(self) -> bool:
        """Whether weight decay shrinks the weights directly, apart from the gradient."""
        return self.optimizer.endswith("w")

    def rate_at(self, epoch: int) -> float:
        """Return the learning rate during an epoch, counted from 0."""
        rising = round(self.warmup * self.epochs)
        if epoch < rising:
            return self.rate * (epoch + 1) / (rising + 1)
        if self.schedule == "constant":
            return self.rate
        if self.schedule == "cosine":
            done = (epoch - rising) / max(1, self.epochs - rising)
            return self.rate * (1 + math.cos(math.pi * done)) / 2
        passed = sum(epoch >= round(share * self.epochs, 9) for share in self.milestones)
        return self.rate * self.decay**passed

    def steps(self, samples: int) -> int:
        """Return the number of steps of one epoch."""
        full, remainder = divmod(samples, self.batch)
        return full + (remainder > 0 and not self.drop_last)


_UPPER_BOUNDS = dict.fromkeys(("rate", "decay", "epsilon", "focal_gamma"), math.inf)
_UPPER_BOUNDS |= dict.fromkeys(("momentum", "beta1", "beta2", "warmup", "smoothing"), 1.0)
_CHOICES: dict[str, Any] = {"optimizer": Optimizer, "schedule": RateSchedule, "loss": Loss}
