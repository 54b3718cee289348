"""Residuals: what a classifier's probabilities are off their targets by, summed in one pass."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

MOST_CLASSES = 1000
"""Up to this many classes, and no more than dimensions, every pass keeps the C x C sums (8 MiB):
C numbers a sample beside the C d of its logits."""
MOST_SOFT = 128
"""The same where labels are soft, whose moment costs C^2 numbers a sample."""
MOST_ASKED = 4096
"""Up to this many where they are asked for (128 MiB each)."""


class SoftSums(NamedTuple):
    """What soft labels, which differ from sample to sample, need beside the sums by class."""

    moment: Tensor
    """(C, C) sum of (q - T)(q - T)^T."""
    entropies: Tensor
    """(2,) summed entropies of q and of T."""
    targets: Tensor
    """(C, C) sums of T by class in rows."""
    squares: Tensor
    """(1,) sum of |T|^2, which tells whether T differs within classes."""
    hard_losses: Tensor
    """(C,) summed cross-entropy with the class itself."""


class Residuals(NamedTuple):
    """Sums of a classifier's probabilities q less the class itself, by class.

    >>> empty = Residuals.empty(2, torch.device("cpu"), soft=False)
    >>> empty.sums.tolist(), empty.soft
    ([[0.0, 0.0], [0.0, 0.0]], None)
    """

    sums: Tensor
    """(C, C) row c: the sum over samples of class c of q - e_c."""
    soft: SoftSums | None

    @classmethod
    def empty(cls, size: int, device: torch.device, *, soft: bool) -> "Residuals":
        """Nothing so far."""
        shapes = ((size, size), (2,), (size, size), (1,), (size,))
        sums = torch.zeros(size, size, dtype=torch.float64, device=device)
        return cls(sums, SoftSums(*(sums.new_zeros(shape) for shape in shapes)) if soft else None)

    def add(
        self, powers: Tensor, classes: Tensor, lead: Tensor, losses: Tensor, targets: Tensor | None
    ) -> None:
        """Add a block: exp(z - m) with 0 at the label, z_y - m, and the loss with the label.

        Uses up the powers.
        """
        rest = powers.mul_((-lead - losses).exp_()[:, None])
        rest.scatter_(1, classes[:, None], torch.expm1(-losses)[:, None])
        self.sums.index_add_(0, classes, rest)
        if self.soft is None or targets is None:
            return
        q = rest.scatter_add(1, classes[:, None], torch.ones_like(losses)[:, None])
        off = q - targets
        self.soft.moment.addmm_(off.T, off)
        for place, own in enumerate((q, targets)):
            self.soft.entropies[place] -= torch.special.xlogy(own, own).sum()
        self.soft.targets.index_add_(0, classes, targets)
        self.soft.squares.add_(targets.square().sum())
        self.soft.hard_losses.index_add_(0, classes, losses)

    def tensors(self) -> dict[str, Tensor]:
        """All sums by name."""
        found = {"residual_sums": self.sums}
        if self.soft is not None:
            found |= {f"residual_{name}": one for name, one in self.soft._asdict().items()}
        return found

    def merge(self, other: Mapping[str, Tensor]) -> None:
        """Add the sums of another stream, as `tensors` gives them."""
        for name, own in self.tensors().items():
            own += other[name].to(own.device)
