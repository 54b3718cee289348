"""Whether a classifier stays right on inputs that are moved a little, by noise or an adversary."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Model = Callable[[Tensor], Tensor]
"""From inputs to logits; of an input the gradient can be asked for."""
PART = 250
"""Inputs that are moved together."""
STRIDE = 2.5
"""An adversary's way, all steps together, over the radius."""


class Box(NamedTuple):
    """What inputs can be: between two numbers, or two tensors of the shape of an input."""

    low: Tensor | float = -torch.inf
    high: Tensor | float = torch.inf

    def clamp(self, inputs: Tensor) -> Tensor:
        """The nearest that can be."""
        return torch.maximum(
            torch.minimum(inputs, torch.as_tensor(self.high)), torch.as_tensor(self.low)
        )


def logit_gaps(logits: Tensor, labels: Tensor) -> Tensor:
    """(n,) the logit of the label less the best other one.

    >>> logit_gaps(torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 9.0]]), torch.tensor([0, 1])).tolist()
    [1.0, -4.0]
    """
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - others.amax(1)


def attacked_accuracy(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    radius: float,
    steps: int = 5,
    box: Box | None = None,
) -> float:
    """Share of samples that stay right whatever projected gradient descent tried.

    Every coordinate moves by at most `radius`. The steps go down the gap between the label and the
    best other logit: the gradient of cross-entropy vanishes where logits are large, which would
    look like robustness. An upper bound: a better adversary may find more.

    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> inputs, labels = torch.tensor([[0.1], [0.3], [-0.3]]), torch.tensor([0, 0, 0])
    >>> [round(attacked_accuracy(model, inputs, labels, radius=r), 3) for r in (0.0, 0.2, 0.4)]
    [0.667, 0.333, 0.0]
    """
    box = box or Box()
    right = 0
    for part, own in zip(inputs.split(PART), labels.split(PART), strict=True):
        right += _survivors(model, part, own, radius, steps, box)
    return right / len(labels)


def _survivors(
    model: Model, inputs: Tensor, labels: Tensor, radius: float, steps: int, box: Box
) -> int:
    moved = inputs
    for step in range(steps + 1):
        moved = moved.detach().requires_grad_(step < steps)
        gaps = logit_gaps(model(moved), labels)
        right = gaps.detach() > 0
        if step == steps or not right.any():
            return int(right.sum())
        (slope,) = torch.autograd.grad(gaps.sum(), moved)
        moved = moved.detach() - STRIDE * radius / steps * slope.sign()
        moved = box.clamp(moved.clamp(inputs - radius, inputs + radius))
        moved, inputs, labels = moved[right], inputs[right], labels[right]
    raise AssertionError("the last step returns")


def noisy_accuracy(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    size: float,
    seed: int,
    box: Box | None = None,
) -> float:
    """Share of samples that are right with normal noise of this deviation on every coordinate.

    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> inputs, labels = torch.full((4000, 1), 0.5), torch.zeros(4000, dtype=torch.int64)
    >>> round(noisy_accuracy(model, inputs, labels, size=0.5, seed=0), 2)  # Phi(1)
    0.84
    """
    box = box or Box()
    generator = torch.Generator().manual_seed(seed)
    right = 0
    with torch.no_grad():
        for part, own in zip(inputs.split(PART), labels.split(PART), strict=True):
            noise = torch.randn(part.shape, generator=generator)
            right += int((logit_gaps(model(box.clamp(part + size * noise)), own) > 0).sum())
    return right / len(labels)
