"""SecondLook: what can only be seen once the class means are known."""

from typing import Any, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import row_blocks, rows_to_read
from nclab.statistics.checks import as_features, as_labels
from nclab.statistics.moments import ClassMoments


class SecondLook:
    """A second pass over the features: centred directions, distances, nearest class centres.

    Classes without samples in `moments` are left out: their centres do not compete.

    Costs two float64 GEMMs (B x d x C) a batch; memory 3 C d numbers beside the moments.

    >>> moments = ClassMoments(num_classes=2, dim=2)
    >>> rows, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], [0, 0, 1]
    >>> moments.update(rows, labels)
    >>> look = SecondLook(moments)
    >>> look.update(rows, labels)
    >>> look.nearest_correct.tolist()
    [2, 1]
    """

    def __init__(self, moments: ClassMoments) -> None:
        self.ignore_index = moments.ignore_index
        self.all_classes = moments.num_classes
        self.rows_seen = 0
        self.classes = (moments.counts > 0).nonzero().flatten()  # (k,) the classes that compete
        self._slot = torch.full_like(moments.counts, -1)
        self._slot[self.classes] = torch.arange(len(self.classes), device=moments.device)
        present = moments if len(self.classes) == self.all_classes else moments.select(self.classes)
        self.counts = torch.zeros_like(present.counts)
        self._means = present.means
        self._centre = present.global_mean
        self._centred_means = present.centred_means
        self._half_squares = 0.5 * present.centred_means.square().sum(1)
        self._directions = torch.nn.functional.normalize(present.unit_means, dim=1)
        self._unit_sum = torch.zeros_like(present.means)
        self.spread_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|."""
        self.reach_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - global mean|."""
        self.nearest_correct = torch.zeros_like(present.counts)
        self.cosine_correct = torch.zeros_like(present.counts)
        self.nearest_agrees = 0
        self.cosine_agrees = 0
        self.predictions = 0

    def update(self, features: Any, labels: Any, predicted: Tensor | None = None) -> None:
        """Look at a batch again; `predicted` are the classifier's decisions for all its rows."""
        features = as_features(features, dim=self._means.shape[1], first_row=self.rows_seen)
        labels = as_labels(
            labels, rows=len(features), ignore_index=self.ignore_index, num_classes=self.all_classes
        )
        if predicted is not None and len(predicted) != len(features):
            raise DataError(f"Expected {len(features)} predictions, got {len(predicted)}.")
        self.add_checked(features, labels, predicted)

    def add_checked(self, features: Tensor, labels: Tensor, predicted: Tensor | None) -> None:
        """`update` for a batch that has passed the checks."""
        device = self.counts.device
        labels = labels.to(device)
        rows = rows_to_read(labels, self.ignore_index)
        if predicted is not None:
            predicted = predicted.to(device)
            predicted = predicted if rows is None else predicted[rows]
        done = 0
        blocks = row_blocks(features, labels, device, rows=rows, width=len(self.classes))
        for block, classes in blocks:
            own = self._slot[classes]
            if (own < 0).any():
                unseen = int(classes[own < 0][0])
                raise DataError(
                    f"Expected only classes of the first pass, got a sample of class {unseen}. "
                    "Both passes must read the same data."
                )
            decided = None if predicted is None else predicted[done : done + len(own)]
            self._add_block(block, own, decided)
            done += len(own)
        self.rows_seen += len(features)

    def _add_block(self, block: Tensor, own: Tensor, decided: Tensor | None) -> None:
        size = len(self.classes)
        self.counts.add_(own.bincount(minlength=size))
        by_angle = (block @ self._directions.T).argmax(1)
        spread = torch.linalg.vector_norm(block - self._means[own], dim=1)
        self.spread_sums.index_add_(0, own, spread)
        # Distances are taken from the centre of the means: a common offset costs no digits.
        centred = block.sub_(self._centre)
        by_distance = torch.addmm(-self._half_squares, centred, self._centred_means.T).argmax(1)
        reach = torch.linalg.vector_norm(centred, dim=1)
        self.reach_sums.index_add_(0, own, reach)
        centred.div_(reach.masked_fill(reach == 0, 1.0)[:, None])
        self._unit_sum.index_add_(0, own, centred)
        self.nearest_correct.add_(own[by_distance == own].bincount(minlength=size))
        self.cosine_correct.add_(own[by_angle == own].bincount(minlength=size))
        if decided is not None:
            self.predictions += len(decided)
            self.nearest_agrees += int((self.classes[by_distance] == decided).sum())
            self.cosine_agrees += int((self.classes[by_angle] == decided).sum())

    @property
    def unit_means(self) -> Tensor:
        """(k, d) means of the unit vectors of the features centred by the global mean."""
        return self._unit_sum / self.counts[:, None]

    def merge(self, other: Self) -> None:
        """Add what another look with the same class means has seen."""
        if not torch.equal(self._means, other._means.to(self._means.device)):
            raise DataError("Expected second looks at the same class means. Merge moments first.")
        for name in _SUMS:
            getattr(self, name).add_(getattr(other, name).to(self.counts.device))
        for name in _TALLIES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SUMS = (
    "counts",
    "_unit_sum",
    "spread_sums",
    "reach_sums",
    "nearest_correct",
    "cosine_correct",
)
_TALLIES = ("nearest_agrees", "cosine_agrees", "predictions", "rows_seen")
