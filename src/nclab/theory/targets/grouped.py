"""Classes in groups of equal counts: a program of groups, and which class is in which."""

from typing import Any

import torch
from torch import Tensor

from nclab.theory.targets.program import Program, symmetric


def program_of(
    counts: Tensor, weight: float, *, metric: Tensor | None = None, **options: Any
) -> tuple[Program, Tensor]:
    """The program of symmetric targets, and (C,) the group of each class.

    >>> program, place = program_of(torch.tensor([5.0, 9.0, 5.0]), 0.1)
    >>> program.sizes.tolist(), place.tolist()
    ([1.0, 2.0], [1, 0, 1])
    """
    distinct, place, sizes = (-counts).unique(return_inverse=True, return_counts=True)
    mean = None
    if metric is not None:
        mean = torch.zeros_like(distinct).index_add(0, place, metric) / sizes
    return symmetric(-distinct, sizes.double(), weight, metric=mean, **options), place
