"""DirectionalSpread: how far each class varies along the way to every other class."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import product_blocks, rows_to_read
from nclab.statistics.checks import as_features, as_labels
from nclab.statistics.moments import ClassMoments
from nclab.statistics.norms import FOURTH, power_of_two
from nclab.statistics.ranks import Group, Ranks, sum_looks


class DirectionalSpread:
    r"""For every ordered pair of classes the mean square of $\langle h-\mu_i,\mu_j-\mu_i\rangle$.

    A second pass over the features, once the class means are known. Classes without samples in
    `moments` are left out. Costs a float64 GEMM B x d x C a batch; memory C^2 numbers.

    >>> moments = ClassMoments(num_classes=2, dim=2)
    >>> rows, labels = [[1.0, 5.0], [3.0, -5.0], [0.0, 0.0]], [0, 0, 1]
    >>> moments.update(rows, labels)
    >>> spread = DirectionalSpread(moments)
    >>> spread.update(rows, labels)
    >>> spread.mean_squares.tolist()
    [[0.0, 4.0], [0.0, 0.0]]
    """

    def __init__(self, moments: ClassMoments) -> None:
        self.ignore_index = moments.ignore_index
        self.all_classes = moments.num_classes
        classes = (moments.counts > 0).nonzero().flatten()
        present = moments if len(classes) == self.all_classes else moments.select(classes)
        self._slot = torch.full_like(moments.counts, -1)
        self._slot[classes] = torch.arange(len(classes), device=moments.device)
        self.means = present.means
        """(k, d) of the classes with samples."""
        self.counts = torch.zeros_like(present.counts)
        self.centred_means = present.centred_means
        self._squares = present.means.new_zeros(len(classes), len(classes))
        _, self.scale = power_of_two(present.centred_means, FOURTH)
        """A power of two, 1 unless features are extreme: squares are over its fourth power."""

    def update(self, features: Any, labels: Any) -> None:
        """Look at a batch again."""
        rows = as_features(features, dim=self.means.shape[1])
        classes = as_labels(
            labels, rows=len(rows), ignore_index=self.ignore_index, num_classes=self.all_classes
        )
        self.add_checked(rows, classes)

    def add_checked(self, features: Tensor, labels: Tensor) -> None:
        """`update` for a batch that has passed the checks."""
        device = self.counts.device
        labels = labels.to(device)
        rows = rows_to_read(labels, self.ignore_index)
        for block, classes in product_blocks(
            features, labels, device, rows=rows, width=len(self._squares)
        ):
            own = self._slot[classes]
            self.counts += own.bincount(minlength=len(self.counts))
            offsets = block.sub_(self.means[own]).div_(self.scale)
            along = offsets @ (self.centred_means / self.scale).T  # (B, k)
            along -= along.gather(1, own[:, None])
            self._squares.index_add_(0, own, along.square_())

    def sums(self) -> dict[str, Tensor]:
        """All that was added up; `load_sums` of one with the same class means."""
        return {"counts": self.counts.clone(), "squares": self._squares.clone()}

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `sums` of another with the same class means gave."""
        self.counts.copy_(state["counts"])
        self._squares.copy_(state["squares"])

    def merge(self, other: Self) -> None:
        """Add what another with the same class means has seen."""
        if not torch.equal(self.means, other.means.to(self.means.device)):
            raise DataError("Expected spreads around the same class means. Merge moments first.")
        self.counts += other.counts.to(self.counts.device)
        self._squares += other._squares.to(self.counts.device)

    def all_reduce(self, group: Group = None) -> None:
        """What all processes of a torch.distributed group have seen, in each of them."""
        sums = {"counts": self.counts, "squares": self._squares}
        sum_looks(Ranks(group), "spreads", sums, self.means)

    @property
    def mean_squares(self) -> Tensor:
        """(k, k) by class and direction, zero on the diagonal; in units of `scale` ** 4."""
        return self._squares / self.counts[:, None]
