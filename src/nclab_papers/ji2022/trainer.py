"""Training of one network, epoch by epoch, resumable to the same bits."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import NclabError

MODEL, MOMENTUM, GENERATOR = "model.", "momentum.", "generator"
"""Prefixes of the names of a checkpoint's tensors."""


@dataclass(frozen=True, kw_only=True)
class TrainerRecipe:
    """Stochastic gradient descent on cross-entropy without weight decay.

    >>> plain, faster = TrainerRecipe(rate=0.1), TrainerRecipe(rate=0.1, power=0.5, most=8.0)
    >>> [round(faster.rate_after(loss), 3) for loss in (2.3, 0.25, 0.01, 1e-9)]
    [0.1, 0.2, 0.8, 0.8]
    >>> plain.rate_after(0.01)
    0.1
    """

    batch: int = 50
    """Samples per step; the last batch of an epoch may be smaller."""
    rate: float = 0.01
    """Learning rate."""
    momentum: float = 0.9
    """Momentum, without dampening."""
    clip: float | None = None
    """Largest norm of the gradient of all parameters; None for no clipping."""
    power: float = 0.0
    """The learning rate is multiplied by max(1, (last epoch's mean loss)^-power)."""
    most: float = 1.0
    """Largest factor on the learning rate."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise NclabError(f"Expected a batch of at least 1, got {self.batch}.")
        if not 0 < self.rate < math.inf or not 0 <= self.momentum < 1:
            raise NclabError(
                f"Expected a positive rate and a momentum in [0, 1), got {self.rate} and "
                f"{self.momentum}."
            )
        if self.clip is not None and not self.clip > 0:
            raise NclabError(f"Expected a positive clip or None, got {self.clip}.")
        if not self.power >= 0 or not self.most >= 1:
            raise NclabError(
                f"Expected power >= 0 and most >= 1, got {self.power} and {self.most}."
            )

    def rate_after(self, loss: float) -> float:
        """Return the learning rate after an epoch with this mean loss."""
        if self.power == 0 or not loss < 1:
            return self.rate
        # The bound avoids 0 ** -power.
        return self.rate * min(self.most, max(loss, 1e-300) ** -self.power)


class TrainerEpoch(NamedTuple):
    """Mean loss and accuracy over the batches of an epoch, each before its step."""

    loss: float
    accuracy: float
    rate: float


class Trainer:
    """A network in training; its state is the weights, the momentum and the batch order.

    Images are stored with their channels last, which makes convolutions faster on a CPU.

    >>> inputs, labels = torch.eye(4).repeat(8, 1), torch.arange(32) % 4
    >>> recipe = TrainerRecipe(batch=8, rate=0.5)
    >>> trainer = Trainer(nn.Linear(4, 4), recipe, inputs, labels, seed=0)
    >>> stats = [trainer.train_epoch() for _ in range(20)]
    >>> stats[-1].loss < stats[0].loss, trainer.epoch, trainer.steps
    (True, 20, 80)
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: TrainerRecipe,
        inputs: Tensor,
        labels: Tensor,
        *,
        seed: int,
        device: str = "cpu",
        mixed: bool = False,
    ) -> None:
        layout = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
        self.model = model.to(device)
        if inputs.ndim == 4:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.recipe = recipe
        self.inputs = inputs.to(device).contiguous(memory_format=layout)
        self.labels = labels.to(device)
        self.epoch = 0
        self.loss = math.inf
        """Mean loss of the last epoch; the next learning rate may depend on it."""
        self.mixed = mixed
        """Whether forward passes use bfloat16 where that is safe."""
        self._generator = torch.Generator().manual_seed(seed)
        self._optimiser = torch.optim.SGD(
            self.model.parameters(), lr=recipe.rate, momentum=recipe.momentum
        )

    @property
    def steps(self) -> int:
        """Return the number of steps so far."""
        return self.epoch * math.ceil(len(self.labels) / self.recipe.batch)

    def train_epoch(self) -> TrainerEpoch:
        """Train on all samples once, in a new random order."""
        self.model.train()
        rate = self.recipe.rate_after(self.loss)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.labels.device)
        hits = torch.zeros((), dtype=torch.int64, device=self.labels.device)
        order = torch.randperm(len(self.labels), generator=self._generator)
        for rows in order.to(self.labels.device).split(self.recipe.batch):
            loss, right = self._step(self.inputs[rows], self.labels[rows])
            loss_sum += loss * len(rows)
            hits += right
        self.epoch += 1
        self.loss = float(loss_sum) / len(self.labels)
        if not math.isfinite(self.loss):
            raise NclabError(
                f"Expected a finite loss, got {self.loss} in epoch {self.epoch}. "
                "Use a smaller learning rate."
            )
        return TrainerEpoch(self.loss, int(hits) / len(self.labels), rate)

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all tensors of the state; with `extra`, training resumes exactly."""
        saved = {MODEL + name: value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            buffer = self._optimiser.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                saved[MOMENTUM + name] = buffer
        saved[GENERATOR] = self._generator.get_state()
        return {name: value.detach().cpu().clone().contiguous() for name, value in saved.items()}

    def extra(self) -> dict[str, Any]:
        """Return the numbers of the state; the loss is None before the first epoch."""
        return {"epoch": self.epoch, "loss": self.loss if math.isfinite(self.loss) else None}

    def load(self, tensors: Mapping[str, Tensor], extra: Mapping[str, Any]) -> None:
        """Restore the state that `tensors` and `extra` returned."""
        weights = {
            name.removeprefix(MODEL): value
            for name, value in tensors.items()
            if name.startswith(MODEL)
        }
        try:
            self.model.load_state_dict(weights)
            self._generator.set_state(tensors[GENERATOR])
            self.epoch = int(extra["epoch"])
            self.loss = math.inf if extra["loss"] is None else float(extra["loss"])
        except (KeyError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise NclabError(
                f"Expected a checkpoint of this network, got a different one ({reason})."
            ) from error
        for name, parameter in self.model.named_parameters():
            if (buffer := tensors.get(MOMENTUM + name)) is not None:
                # The layout of the parameter decides the order of sums.
                momentum = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
                self._optimiser.state[parameter]["momentum_buffer"] = momentum

    def _step(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        device = inputs.device.type
        with torch.autocast(device, torch.bfloat16) if self.mixed else nullcontext():
            logits = self.model(inputs)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        self._optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self._optimiser.step()
        return loss.detach(), (logits.detach().argmax(1) == labels).sum()
