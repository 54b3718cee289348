"""ResidualMoments: sums of predicted probabilities minus their targets, from one pass."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

MOST_CLASSES = 1000
"""Largest number of classes for which every pass keeps the C x C sums (8 MiB) by default.
The number of classes must also be at most the dimension. The sums cost C additions per sample, in
addition to the C d multiplications of its logits."""
MOST_SOFT = 128
"""Largest number of classes for which passes with soft labels keep their sums by default, because
the second moment costs C^2 numbers per sample."""
MOST_ASKED = 4096
"""Largest number of classes if the sums are requested explicitly (128 MiB each)."""


class SoftSums(NamedTuple):
    """Additional sums for soft labels, which differ from sample to sample."""

    moment: Tensor
    """(C, C) sum of (q - T)(q - T)^T."""
    entropies: Tensor
    """(2,) summed entropies of q and of T."""
    targets: Tensor
    """(C, C) row c: the sum of T over samples of class c."""
    squares: Tensor
    """(1,) sum of |T|^2, which shows whether T differs within classes."""
    hard_losses: Tensor
    """(C,) summed cross-entropy with the class itself."""


class ResidualMoments(NamedTuple):
    """Per-class sums of predicted probabilities q minus the one-hot label.

    >>> moments = ResidualMoments.empty(2, torch.device("cpu"), soft=False)
    >>> moments.sums.tolist(), moments.soft
    ([[0.0, 0.0], [0.0, 0.0]], None)
    """

    sums: Tensor
    """(C, C) row c: the sum of q - e_c over samples of class c."""
    soft: SoftSums | None

    @classmethod
    def empty(cls, size: int, device: torch.device, *, soft: bool) -> "ResidualMoments":
        """Return sums without any samples; `soft` adds the sums for soft labels."""
        shapes = ((size, size), (2,), (size, size), (1,), (size,))
        sums = torch.zeros(size, size, dtype=torch.float64, device=device)
        return cls(sums, SoftSums(*(sums.new_zeros(shape) for shape in shapes)) if soft else None)

    def add(
        self, powers: Tensor, classes: Tensor, lead: Tensor, losses: Tensor, targets: Tensor | None
    ) -> None:
        """Add a block of samples.

        Args:
            powers: (B, C) exp(z - m) with 0 at the label, for m the largest other logit. They are
                overwritten.
            lead: (B,) z_y - m.
            losses: (B,) cross-entropy with the label.
            targets: (B, C) soft labels.
        """
        residuals = powers.mul_((-lead - losses).exp_()[:, None])
        residuals.scatter_(1, classes[:, None], torch.expm1(-losses)[:, None])
        self.sums.index_add_(0, classes, residuals)
        if self.soft is None or targets is None:
            return
        q = residuals.scatter_add(1, classes[:, None], torch.ones_like(losses)[:, None])
        differences = q - targets
        self.soft.moment.addmm_(differences.T, differences)
        for index, distribution in enumerate((q, targets)):
            self.soft.entropies[index] -= torch.special.xlogy(distribution, distribution).sum()
        self.soft.targets.index_add_(0, classes, targets)
        self.soft.squares.add_(targets.square().sum())
        self.soft.hard_losses.index_add_(0, classes, losses)

    def tensors(self) -> dict[str, Tensor]:
        """Return all sums by name."""
        sums = {"residual_sums": self.sums}
        if self.soft is not None:
            sums |= {f"residual_{name}": value for name, value in self.soft._asdict().items()}
        return sums

    def merge(self, other: Mapping[str, Tensor]) -> None:
        """Add the `tensors` of another stream."""
        for name, sums in self.tensors().items():
            sums += other[name].to(sums.device)
