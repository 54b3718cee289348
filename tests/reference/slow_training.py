"""Ordinary training with nn.Sequential, autograd and torch.optim, without code of nclab."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


def plain_network(
    widths: Sequence[int],
    norm: str,
    *,
    bias: bool = True,
    activation: str = "relu",
    head_bias: bool = True,
) -> nn.Sequential:
    """Return linear, activation and batch norm for every hidden layer, then a linear layer.

    With the norm "last" only the last hidden layer has a batch norm.
    """
    modules: list[nn.Module] = []
    for width, following in pairwise(widths[:-1]):
        modules += [nn.Linear(width, following, bias=bias), ACTIVATIONS[activation]()]
        if norm in ("affine", "plain"):
            modules.append(nn.BatchNorm1d(following, affine=norm == "affine"))
    if norm == "last" and len(widths) > 2:
        modules.append(nn.BatchNorm1d(widths[-2]))
    return nn.Sequential(*modules, nn.Linear(widths[-2], widths[-1], bias=bias and head_bias))


class Signum(torch.optim.Optimizer):
    """Signed momentum: theta <- theta - lr sign(v), v <- momentum v + gradient + decay theta."""

    def __init__(self, params: Any, lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step with every parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad + group["weight_decay"] * parameter
                v = self.state[parameter].get("v", torch.zeros_like(parameter))
                self.state[parameter]["v"] = v = group["momentum"] * v + gradient
                parameter -= group["lr"] * torch.sign(v)


class Decoupled(torch.optim.Optimizer):
    """Decoupled weight decay: theta <- (1 - lr weight_decay) theta before each inner step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner
        for group in inner.param_groups:
            group["own_decay"], group["weight_decay"] = group["weight_decay"], 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Shrink the parameters, then take a step."""
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                parameter *= 1 - group["lr"] * group["own_decay"]
        self.inner.step()


def plain_optimizer(name: str, groups: Any, *, rate: float, nesterov: bool) -> Any:
    """Return the optimiser of torch, or the equivalent for sgdw and signum, which torch lacks."""
    if name == "adam":
        return torch.optim.Adam(groups, lr=rate)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=rate)
    if name.startswith("sgd"):
        optimiser = torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=nesterov)
    else:
        optimiser = Signum(groups, rate, 0.9, 0.0)  # type: ignore[assignment]
    return Decoupled(optimiser) if name.endswith("w") else optimiser


def plain_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of torch.nn, or the definition if torch.nn does not have it."""
    if name == "label_smoothing":
        return nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "focal":
        each = nn.CrossEntropyLoss(reduction="none")

        def focal(logits: Tensor, labels: Tensor) -> Tensor:
            surprise = each(logits, labels)
            return ((1 - torch.exp(-surprise)) ** 2 * surprise).mean()

        return focal
    if name == "mse":
        return lambda logits, labels: (
            nn.functional.mse_loss(
                logits,
                nn.functional.one_hot(labels, logits.shape[1]).to(logits.dtype),
                reduction="sum",
            )
            / (2 * len(labels))
        )
    return nn.CrossEntropyLoss()


def plain_training(
    network: nn.Sequential,
    inputs: Tensor,
    labels: Tensor,
    batches: Sequence[Sequence[Tensor]],
    *,
    rate: float,
    milestones: Sequence[int],
    weight_decay: float,
    optimizer: str = "sgd",
    nesterov: bool = False,
    loss: str = "cross_entropy",
    head_bias_decay: float | None = None,
) -> list[float]:
    """Train on the given batches of every epoch; return the mean loss of every epoch."""
    head = [p for p in [network[-1].bias] if p is not None]
    others = [p for p in network.parameters() if all(p is not parameter for parameter in head)]
    head_decay = weight_decay if head_bias_decay is None else head_bias_decay
    groups = [{"params": others, "weight_decay": weight_decay}]
    groups += [{"params": head, "weight_decay": head_decay}] if head else []
    optimiser = plain_optimizer(optimizer, groups, rate=rate, nesterov=nesterov)
    steps = getattr(optimiser, "inner", optimiser)
    schedule = torch.optim.lr_scheduler.MultiStepLR(steps, list(milestones), gamma=0.1)
    measure = plain_loss(loss)
    means = []
    for epoch in batches:
        total = 0.0
        for rows in epoch:
            value = measure(network(inputs[rows]), labels[rows])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            total += float(value.detach()) * len(rows)
        means.append(total / sum(len(rows) for rows in epoch))
        schedule.step()
    return means
