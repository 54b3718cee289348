"""Accuracy of a classifier on inputs perturbed by noise or by an adversary."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Model = Callable[[Tensor], Tensor]
"""Differentiable function from inputs to logits."""
CHUNK = 250
"""Number of inputs that are perturbed together."""
PATH_LENGTH = 2.5
"""Total length of an adversary's steps, relative to the radius."""


class Box(NamedTuple):
    """Range of valid inputs: two numbers, or two tensors with the shape of an input."""

    low: Tensor | float = -torch.inf
    high: Tensor | float = torch.inf

    def clamp(self, inputs: Tensor) -> Tensor:
        """Return the nearest valid inputs."""
        return torch.maximum(
            torch.minimum(inputs, torch.as_tensor(self.high)), torch.as_tensor(self.low)
        )


def logit_gaps(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (n,) the logit of the label minus the largest other logit.

    >>> logit_gaps(torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 9.0]]), torch.tensor([0, 1])).tolist()
    [1.0, -4.0]
    """
    correct = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return correct - others.amax(1)


def attacked_accuracy(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    radius: float,
    steps: int = 5,
    box: Box | None = None,
) -> float:
    """Return the share of samples that stay correct under projected gradient descent.

    Every coordinate changes by at most `radius`. The steps reduce the gap of the logits, whose
    gradient does not vanish for large logits as that of cross-entropy does. The result is an upper
    bound: a better adversary may find more errors.

    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> inputs, labels = torch.tensor([[0.1], [0.3], [-0.3]]), torch.tensor([0, 0, 0])
    >>> [round(attacked_accuracy(model, inputs, labels, radius=r), 3) for r in (0.0, 0.2, 0.4)]
    [0.667, 0.333, 0.0]
    """
    box = box or Box()
    correct = 0
    for chunk, targets in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
        correct += _survivors(model, chunk, targets, radius, steps, box)
    return correct / len(labels)


def _survivors(
    model: Model, inputs: Tensor, labels: Tensor, radius: float, steps: int, box: Box
) -> int:
    """Count the samples that are correct after every step of the adversary."""
    moved = inputs
    for step in range(steps + 1):
        moved = moved.detach().requires_grad_(step < steps)
        gaps = logit_gaps(model(moved), labels)
        correct = gaps.detach() > 0
        if step == steps or not correct.any():
            return int(correct.sum())
        (slope,) = torch.autograd.grad(gaps.sum(), moved)
        moved = moved.detach() - PATH_LENGTH * radius / steps * slope.sign()
        moved = box.clamp(moved.clamp(inputs - radius, inputs + radius))
        moved, inputs, labels = moved[correct], inputs[correct], labels[correct]
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
    """Return the share of samples that are correct with normal noise on every coordinate.

    Args:
        size: standard deviation of the noise.

    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> inputs, labels = torch.full((4000, 1), 0.5), torch.zeros(4000, dtype=torch.int64)
    >>> round(noisy_accuracy(model, inputs, labels, size=0.5, seed=0), 2)  # Phi(1)
    0.84
    """
    box = box or Box()
    generator = torch.Generator().manual_seed(seed)
    correct = 0
    with torch.no_grad():
        for chunk, targets in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            noise = torch.randn(chunk.shape, generator=generator)
            logits = model(box.clamp(chunk + size * noise))
            correct += int((logit_gaps(logits, targets) > 0).sum())
    return correct / len(labels)
