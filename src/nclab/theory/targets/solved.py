"""Solved: an optimum before the two weight decays share it out between weights and features."""

from typing import NamedTuple

import torch
from torch import Tensor

CLOSED = "closed form"


class Solved(NamedTuple):
    """Logits of an optimum with its loss, Grams and proof."""

    logits: Tensor
    """(C, C) without bias; columns are classes."""
    bias: Tensor
    """(C,)."""
    loss: float
    penalty: float
    """Of weights, features and bias together."""
    left: Tensor
    """(C, C) Gram of the classifier when both weight decays are equal."""
    right: Tensor
    """(C, C) Gram of the features that it reads, likewise."""
    lower: float | None
    """Proved of the objective; None without a proof."""
    proof: str
    geometry: str
    source: str
    norm: float
    """|W| |H|, H weighted by D."""
    weight: float
    """t."""
    notes: tuple[str, ...] = ()


def shared_out(logits: Tensor, metric: Tensor, factors: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    r"""Grams of the last factor and of the product of the others, and singular values.

    With $M D^{1/2} = U\Sigma V^\top$ all factors have singular values $\Sigma^{1/F}$.
    """
    roots = metric.sqrt()
    left, values, right = torch.linalg.svd(logits * roots)
    outer = values ** (2 / factors)
    inner = values ** (2 - 2 / factors)
    grams = (left * outer) @ left.T, (right.T * inner) @ right / torch.outer(roots, roots)
    return *grams, values
