"""ReferencePass: features seen from the class means of other data, as test from train."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import product_blocks
from nclab.statistics.moments import ClassMoments
from nclab.statistics.nearest import Centres
from nclab.statistics.ranks import Group, Ranks, sum_looks


class ReferencePass:
    """Distances to the class means of a reference, and which of them is nearest.

    Costs one float64 GEMM (B x d x C) a batch; memory 2 C d numbers.

    Args:
        moments: of the reference, every class with samples.
        classes: (k,) which class each of its rows is; by default 0, 1, 2, ...

    >>> moments = ClassMoments(num_classes=2, dim=1)
    >>> moments.update([[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1])
    >>> look = ReferencePass(moments)
    >>> look.add(torch.tensor([[2.0], [7.0]]), torch.tensor([0, 0]), None)
    >>> look.nearest_correct.tolist(), look.squares.tolist()
    ([1, 0], [37.0, 0.0])
    """

    def __init__(self, moments: ClassMoments, classes: Tensor | None = None) -> None:
        if moments.missing:
            classes = (moments.counts > 0).nonzero().flatten()
            moments = moments.select(classes)
        here = moments.device
        self.moments = moments
        self.classes = torch.arange(moments.num_classes) if classes is None else classes.clone()
        self.classes = self.classes.to(here)
        self._centres = Centres(moments)
        self._means = moments.means
        self.counts = torch.zeros_like(moments.counts)
        """(k,) features of every class of the reference."""
        self.nearest_correct = torch.zeros_like(moments.counts)
        self.squares = torch.zeros_like(moments.variances)
        """(k,) sum of |h - mean of its class in the reference|²."""
        self.cluster_counts = torch.zeros_like(moments.counts)
        """(k,) features nearest to each mean, of whatever class."""
        self.cluster_sums = torch.zeros_like(moments.means)
        """(k, d) sum of h - nearest mean."""
        self.cluster_squares = torch.zeros_like(moments.variances)
        self.agrees = self.predictions = 0

    def add(self, features: Tensor, labels: Tensor, predicted: Tensor | None) -> None:
        """Look at a batch that has passed the checks, with the classifier's decisions if known."""
        if features.shape[1] != self._means.shape[1]:
            raise DataError(
                f"Expected features of dimension {self._means.shape[1]}, as the reference has, got "
                f"{features.shape[1]}."
            )
        device = self.counts.device
        predicted = None if predicted is None else predicted.to(device)
        done, size = 0, len(self.classes)
        for block, classes in product_blocks(features, labels.to(device), device, width=size):
            place = torch.searchsorted(self.classes, classes).clamp_max(size - 1)
            if not torch.equal(self.classes[place], classes):
                unknown = int(classes[self.classes[place] != classes][0])
                raise DataError(
                    f"Expected classes that the reference has samples of, got class {unknown}. "
                    "Leave its samples out, or measure without a reference."
                )
            decided = None if predicted is None else predicted[done : done + len(block)]
            self._add_block(block, place, decided)
            done += len(block)

    def _add_block(self, block: Tensor, own: Tensor, decided: Tensor | None) -> None:
        size = len(self.classes)
        nearest = self._centres.nearest_mean(block)
        self.counts += own.bincount(minlength=size)
        self.nearest_correct += own[nearest == own].bincount(minlength=size)
        self.squares.index_add_(0, own, (block - self._means[own]).square().sum(1))
        self.cluster_counts += nearest.bincount(minlength=size)
        apart = block - self._means[nearest]
        self.cluster_sums.index_add_(0, nearest, apart)
        self.cluster_squares.index_add_(0, nearest, apart.square().sum(1))
        if decided is not None:
            self.predictions += len(decided)
            self.agrees += int((self.classes[nearest] == decided).sum())

    @property
    def means_coincide(self) -> bool:
        """Whether the reference's features do not tell its classes apart."""
        return self._centres.coincide

    def sums(self) -> dict[str, Tensor]:
        """All that was added up, as plain tensors; `load_sums` of a look at the same means."""
        tallies = torch.tensor([self.agrees, self.predictions])
        return {**{name: getattr(self, name).clone() for name in _SUMS}, "tallies": tallies}

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `sums` of another look at the same class means gave."""
        for name in _SUMS:
            getattr(self, name).copy_(state[name])
        self.agrees, self.predictions = state["tallies"].tolist()

    def merge(self, other: Self) -> None:
        """Add what another look at the same class means has seen."""
        if not torch.equal(self._means, other._means.to(self._means.device)):
            raise DataError("Expected looks at the same reference, got others.")
        for name in _SUMS:
            getattr(self, name).add_(getattr(other, name).to(self.counts.device))
        self.agrees += other.agrees
        self.predictions += other.predictions

    def all_reduce(self, group: Group = None) -> None:
        """What all processes of a torch.distributed group have seen, in each of them."""
        tallies = torch.tensor([self.agrees, self.predictions])
        sums = {**{name: getattr(self, name) for name in _SUMS}, "tallies": tallies}
        sum_looks(Ranks(group), "looks", sums, self._means)
        self.agrees, self.predictions = tallies.tolist()


_SUMS = (
    "counts",
    "nearest_correct",
    "squares",
    "cluster_counts",
    "cluster_sums",
    "cluster_squares",
)
