"""A network, a loss and an optimiser for `nclab sweep`, trained by autograd."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

WIDTH = 32


class Block(nn.Module):
    """A layer with a way around it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """h + relu(W h + b)."""
        return hidden + self.linear(hidden).relu()


def residual(inputs: int, classes: int) -> nn.Module:
    """A residual network that ends in a linear classifier."""
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.ReLU(), Block(), Block(), nn.Linear(WIDTH, classes)
    )


def poly(logits: Tensor, labels: Tensor) -> Tensor:
    """Poly-1: cross-entropy + 1 - p, the mean over a batch."""
    surprise = nn.functional.cross_entropy(logits, labels, reduction="none")
    return (surprise + 1 - (-surprise).exp()).mean()


def rmsprop(
    parameters: Iterable[nn.Parameter], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """As torch has it."""
    return torch.optim.RMSprop(parameters, lr=lr, weight_decay=weight_decay)
