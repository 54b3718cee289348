"""Data sets for tests of measurements."""

from typing import NamedTuple

import torch
from torch import Tensor


class Cloud(NamedTuple):
    """Features, labels and a classifier."""

    features: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor


def cloud(
    num_classes: int = 5,
    dim: int = 7,
    per_class: int = 9,
    *,
    noise: float = 0.5,
    offset: float = 0.0,
    balanced: bool = True,
    seed: int = 0,
) -> Cloud:
    """Return shuffled Gaussian clouds in float64 with samples of every class."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if balanced:
        labels = torch.arange(num_classes).repeat(per_class)
    else:
        sizes = [1 + (per_class * (c + 1)) // 3 for c in range(num_classes)]
        labels = torch.repeat_interleave(torch.arange(num_classes), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    means = normal(num_classes, dim) + offset
    features = means[labels] + noise * normal(len(labels), dim)
    weight = means - offset + 0.3 * normal(num_classes, dim)
    return Cloud(features, labels, weight, 0.5 * normal(num_classes))
