"""SecondLook: what can only be seen once the class means are known."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import row_blocks, rows_to_read
from nclab.statistics.checks import as_features, as_labels
from nclab.statistics.moments import ClassMoments

OTHER_DATA = 0.01
"""Relative change of the features from which on a second pass has seen other data."""


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
        self._undirected = (~self._directions.any(1)).nonzero().flatten()
        self._unit_sum = torch.zeros_like(present.means)
        self.spread_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|."""
        self.reach_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - global mean|."""
        self.spread_squares = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|^2, which the first pass has seen too."""
        self.zero_counts = torch.zeros_like(present.counts)
        """(k,) features that lie on the global mean and so have no centred direction."""
        self.means_coincide = not bool(present.centred_means.any())
        self.nearest_correct = torch.zeros_like(present.counts)
        self.cosine_correct = torch.zeros_like(present.counts)
        self.nearest_agrees = self.cosine_agrees = self.predictions = 0

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
        spread = torch.linalg.vector_norm(block - self._means[own], dim=1)
        self.spread_sums.index_add_(0, own, spread)
        self.spread_squares.index_add_(0, own, spread.square_())
        by_angle = self._nearest_direction(block)
        # Distances are taken from the centre of the means: a common offset costs no digits.
        centred = block - self._centre
        reach = torch.linalg.vector_norm(centred, dim=1)
        by_distance = self._nearest_mean(block, centred, reach)
        self.reach_sums.index_add_(0, own, reach)
        zero = reach == 0
        self.zero_counts.add_(own[zero].bincount(minlength=size))
        self._unit_sum.index_add_(0, own, centred.div_(reach.masked_fill(zero, 1.0)[:, None]))
        self.nearest_correct.add_(own[by_distance == own].bincount(minlength=size))
        self.cosine_correct.add_(own[by_angle == own].bincount(minlength=size))
        if decided is not None:
            self.predictions += len(decided)
            self.nearest_agrees += int((self.classes[by_distance] == decided).sum())
            alike = (self.classes[by_angle] == decided) & (by_angle >= 0)
            self.cosine_agrees += int(alike.sum())

    def nearest_mean(self, block: Tensor) -> Tensor:
        """The place in `classes` of the class mean that is nearest to each float64 row."""
        centred = block - self._centre
        return self._nearest_mean(block, centred, torch.linalg.vector_norm(centred, dim=1))

    def _nearest_direction(self, block: Tensor) -> Tensor:
        """The class whose mean direction is nearest; -1 for a zero vector, which has none."""
        scores = block @ self._directions.T
        if len(self._undirected):
            scores[:, self._undirected] = -torch.inf
        return scores.argmax(1).masked_fill_(~block.any(1), -1)

    def _nearest_mean(self, block: Tensor, centred: Tensor, reach: Tensor) -> Tensor:
        """The class whose mean is nearest, by inner products where they are sure of it.

        Where the best scores are closer than rounding can tell, by the distances themselves.
        """
        scores = torch.addmm(-self._half_squares, centred, self._centred_means.T)
        best, nearest = scores.max(1)
        if self.means_coincide:
            return nearest
        longest = float((2 * self._half_squares.max()).sqrt())
        doubt = 4 * block.shape[1] * torch.finfo(torch.float64).eps * longest * (reach + longest)
        runner_up = scores.scatter_(1, nearest[:, None], -torch.inf).amax(1)
        unsure = (runner_up >= best - doubt).nonzero().flatten()
        scores.scatter_(1, nearest[:, None], best[:, None])
        for rows in unsure.split(256):
            pairs = (scores[rows] >= (best - doubt)[rows, None]).nonzero()
            distances = scores.new_full((len(rows), scores.shape[1]), torch.inf)
            for part in pairs.split(4096):
                gaps = block[rows[part[:, 0]]] - self._means[part[:, 1]]
                distances[part[:, 0], part[:, 1]] = torch.linalg.vector_norm(gaps, dim=1)
            nearest[rows] = distances.argmin(1)
        return nearest

    def require_same_data(self, moments: ClassMoments) -> None:
        """Refuse a second pass that has not seen what the first one has."""
        seen, expected = self.counts, moments.counts[self.classes]
        if not torch.equal(seen, expected):
            place = int((seen != expected).nonzero()[0])
            raise DataError(
                f"Expected {int(expected.sum())} samples in the second pass, got "
                f"{int(seen.sum())} (of class {int(self.classes[place])} {int(seen[place])} for "
                f"{int(expected[place])}). Pass the same data twice, or second_look=False."
            )
        present = moments if len(seen) == self.all_classes else moments.select(self.classes)
        squares = present.variances * expected
        # Not tighter: in bfloat16 another batching alone moves features by almost a per cent.
        moved = OTHER_DATA * present.largest_mean_norm * expected.double().sqrt()
        slack = OTHER_DATA * squares + 2 * squares.sqrt() * moved + moved.square()
        if ((self.spread_squares - squares).abs() > slack).any():
            raise DataError(
                "Expected the same features in both passes, got others in the second. Turn off "
                "augmentation, enlarge cache_bytes, or pass second_look=False."
            )

    @property
    def unit_means(self) -> Tensor:
        """(k, d) means of the unit vectors of the features centred by the global mean."""
        return self._unit_sum / self.counts[:, None]

    def sums(self) -> dict[str, Tensor]:
        """All that was added up, as plain tensors; `load_sums` of a look at the same means."""
        tallies = torch.tensor([getattr(self, name) for name in _TALLIES])
        return {**{name: getattr(self, name).clone() for name in _SUMS}, "tallies": tallies}

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `sums` of another look at the same class means gave."""
        for name in _SUMS:
            getattr(self, name).copy_(state[name])
        for name, value in zip(_TALLIES, state["tallies"].tolist(), strict=True):
            setattr(self, name, value)

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
    "spread_squares",
    "reach_sums",
    "zero_counts",
    "nearest_correct",
    "cosine_correct",
)
_TALLIES = ("nearest_agrees", "cosine_agrees", "predictions", "rows_seen")
