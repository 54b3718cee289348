"""What a fleet is told: its members, and the recipe of training they share."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nclab import plugins
from nclab.errors import NclabError
from nclab.training.models.mlp import Norm

Optimizer = Literal["sgd", "sgdw", "adam", "adamw", "signum", "signumw"]
"""Those with a w take weight decay from the weights, the others add it to the gradient."""
Rule = Literal["sgd", "adam", "signum"]
RateSchedule = Literal["milestones", "cosine", "constant"]
Loss = Literal["cross_entropy", "label_smoothing", "focal", "mse"]


@dataclass(frozen=True)
class Member:
    """What sets one model of a fleet apart from the others."""

    norm: Norm = "affine"
    """Batch norm: "affine" (scale and shift), "plain" (without) or "none"."""
    weight_decay: float = 1e-3
    """Of every parameter, batch norm's included: added to its gradient, or taken from it apart."""
    seed: int = 0
    """First weights and batch order follow from it."""

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise NclabError(f"Expected norm 'affine', 'plain' or 'none', got {self.norm!r}.")
        if not (0 <= self.weight_decay < math.inf):
            raise NclabError(f"Expected 0 <= weight_decay < inf, got {self.weight_decay!r}.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise NclabError(f"Expected a seed from 0 to 2^63 - 1, got {self.seed!r}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training as `torch.optim` does it; the defaults are pan2023's: SGD on cross-entropy.

    >>> [Recipe(epochs=4, rate=8.0, decay=0.5).rate_at(epoch) for epoch in range(4)]
    [8.0, 4.0, 2.0, 1.0]
    >>> warm = Recipe(epochs=6, rate=8.0, schedule="cosine", warmup=0.5)
    >>> [round(warm.rate_at(epoch), 9) for epoch in range(6)]
    [2.0, 4.0, 6.0, 8.0, 6.0, 2.0]
    """

    epochs: int = 300
    """Passes over the data."""
    batch: int = 128
    """Samples a step."""
    rate: float = 0.0679
    """First learning rate."""
    momentum: float = 0.9
    """Momentum of sgd, sgdw and signum, without dampening."""
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75)
    """Shares of the epochs after which the rate is multiplied by `decay`."""
    decay: float = 0.1
    """Factor of the rate at every milestone."""
    drop_last: bool = False
    """Leave out a smaller last batch of an epoch."""
    optimizer: Optimizer = "sgd"
    """As in torch.optim; those with a w decay the weights apart from the gradient, signum steps by
    the sign of the momentum."""
    nesterov: bool = False
    """Look ahead along the momentum; sgd and sgdw only."""
    beta1: float = 0.9
    """What Adam keeps of its mean gradient at every step."""
    beta2: float = 0.999
    """What Adam keeps of its mean squared gradient."""
    epsilon: float = 1e-8
    """Added to the root of Adam's mean squared gradient."""
    schedule: RateSchedule = "milestones"
    """The rate falls at the milestones, as half a cosine down to 0, or stays, epoch by epoch."""
    warmup: float = 0.0
    """Share of the epochs in which the rate first rises to `rate` in equal steps."""
    loss: Loss = "cross_entropy"
    """Mean over the batch; mse is half the squared distance to the one-hot label."""
    smoothing: float = 0.1
    """Share of a label that label_smoothing spreads over all classes."""
    focusing: float = 2.0
    """Exponent of 1 - p in the loss focal."""
    head_bias_decay: float | None = None
    """Weight decay of the classifier's bias; that of all others by default."""

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 0), ("batch", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise NclabError(f"Expected {name} of at least {lowest}, got {value!r}.")
        for name, below in _BELOW.items():
            value = getattr(self, name)
            if not 0 <= value < below:
                raise NclabError(f"Expected 0 <= {name} < {below:g}, got {value!r}.")
        for share in self.milestones:
            if not 0 <= share <= 1:
                raise NclabError(f"Expected milestones as shares from 0 to 1, got {share!r}.")
        for name, known in _CHOICES.items():
            there = (*get_args(known), *(plugins.names(PLUGGED[name]) if name in PLUGGED else ()))
            if getattr(self, name) not in there:
                choices = ", ".join(map(repr, there))
                raise NclabError(f"Expected {name} among {choices}; got {getattr(self, name)!r}.")
        if self.nesterov and (self.plugged_optimizer or self.rule != "sgd" or self.momentum == 0):
            raise NclabError(
                f"Expected nesterov with sgd or sgdw and a momentum, got {self.optimizer} with "
                f"momentum {self.momentum:g}."
            )
        if self.head_bias_decay is not None and not 0 <= self.head_bias_decay < math.inf:
            raise NclabError(
                f"Expected head_bias_decay of at least 0, got {self.head_bias_decay!r}."
            )

    @property
    def plugged_optimizer(self) -> bool:
        """Whether the steps are those of a plugin, which autograd takes for whole modules."""
        return self.optimizer not in get_args(Optimizer)

    @property
    def plugged_loss(self) -> bool:
        """Whether the loss is a plugin's, which the compiled kernel does not have."""
        return self.loss not in get_args(Loss)

    @property
    def rule(self) -> Rule:
        """How a step follows from the gradient, whatever the weight decay."""
        rules: tuple[Rule, ...] = get_args(Rule)
        return next(rule for rule in rules if self.optimizer.removesuffix("w") == rule)

    @property
    def decoupled(self) -> bool:
        """Whether weight decay shrinks the weights apart from the gradient."""
        return self.optimizer.endswith("w")

    def rate_at(self, epoch: int) -> float:
        """The learning rate during an epoch, counted from 0."""
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
        """Steps of one epoch."""
        full, rest = divmod(samples, self.batch)
        return full + (rest > 0 and not self.drop_last)


_BELOW = dict.fromkeys(("rate", "decay", "epsilon", "focusing"), math.inf)
_BELOW |= dict.fromkeys(("momentum", "beta1", "beta2", "warmup", "smoothing"), 1.0)
PLUGGED = {"optimizer": "optimizers", "loss": "losses"}
"""Fields that may also name what a plugin brings, and the kind of plugin."""
_CHOICES: dict[str, Any] = {"optimizer": Optimizer, "schedule": RateSchedule, "loss": Loss}
