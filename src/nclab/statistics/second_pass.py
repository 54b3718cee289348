"""SecondPass: what can only be seen once the class means are known."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.balls import sure_radii
from nclab.statistics.blocks import add_by_class, compiles, product_blocks, rows_to_read
from nclab.statistics.checks import as_features, as_labels
from nclab.statistics.moments import ClassMoments
from nclab.statistics.nearest import Centres, Seen
from nclab.statistics.norms import row_norms
from nclab.statistics.ranks import Group, Ranks, sum_looks
from nclab.statistics.sums import ROUNDING

NEAR = 1e6
"""Times the rounding of the class means: so far from the centre a direction has six digits."""
OTHER_DATA = 0.01
"""Relative change of the features from which on a second pass has seen other data."""


class SecondPass:
    """A second pass over the features: centred directions, distances, nearest class centres.

    Classes without samples in `moments` are left out: their centres do not compete.

    Costs one read of the rows. Those not sure by their distance alone (see `balls.py`) cost a
    float32 GEMM (B x d x C), a second one where not nearest to their own direction, and float64
    ones where float32 cannot decide (see `nearest.py`). Memory 4 C d numbers beside the moments.

    >>> moments = ClassMoments(num_classes=2, dim=2)
    >>> rows, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], [0, 0, 1]
    >>> moments.update(rows, labels)
    >>> look = SecondPass(moments)
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
        self._centres = Centres(present)
        self._expected = present.total
        self._radii: Tensor | None = None
        self._unit_sum = torch.zeros_like(present.means)
        self.spread_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|."""
        self.reach_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - global mean|."""
        self.spread_squares = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|^2, which the first pass has seen too."""
        self.zero_counts = torch.zeros_like(present.counts)
        """(k,) features on the global mean, up to rounding, and so without a centred direction."""
        self.least = ROUNDING * present.size
        """Features so near to the global mean are on it, up to rounding."""
        self.near_centre = 0
        """Features whose centred direction is right to less than six digits."""
        self.means_coincide = self._centres.coincide
        self.nearest_correct = torch.zeros_like(present.counts)
        self.cosine_correct = torch.zeros_like(present.counts)
        self.nearest_agrees = self.cosine_agrees = self.predictions = 0

    def update(self, features: Any, labels: Any, predicted: Tensor | None = None) -> None:
        """Look at a batch again; `predicted` are the classifier's decisions for all its rows."""
        features = as_features(features, dim=self._unit_sum.shape[1], first_row=self.rows_seen)
        labels = as_labels(
            labels, rows=len(features), ignore_index=self.ignore_index, num_classes=self.all_classes
        )
        if predicted is not None and len(predicted) != len(features):
            raise DataError(f"Expected {len(features)} predictions, got {len(predicted)}.")
        self.add_checked(features, labels, predicted)

    def add_checked(self, features: Tensor, labels: Tensor, predicted: Tensor | None) -> None:
        """`update` for a batch that has passed the checks."""
        device, size = self.counts.device, len(self.classes)
        labels = labels.to(device)
        rows = rows_to_read(labels, self.ignore_index)
        counted = labels if rows is None else labels[rows]
        own = self._slot[counted]
        if (own < 0).any():
            raise DataError(
                f"Expected only classes of the first pass, got a sample of class "
                f"{int(counted[own < 0][0])}. Both passes must read the same data."
            )
        if self._radii is None:
            self._radii = sure_radii(self._centres, self._expected)
        spread, reach = self._radii.new_empty(2, len(own))
        by_distance, by_angle = own.clone(), own.clone()
        compiled = compiles(features, device)
        see = self._see_compiled if compiled else self._see
        done = 0
        for block, _ in product_blocks(
            features, labels, device, rows=rows, width=size, compiled=compiled
        ):
            part = slice(done, done + len(block))
            done = part.stop
            see(block, own[part], spread[part], reach[part])
            unsure = spread[part] >= self._radii[own[part]]
            if not unsure.any():
                continue
            if not unsure.all():
                block, part = block[unsure], unsure.nonzero().flatten().add_(part.start)
            seen = Seen.beside(self._centres.centre, block, reach[part], compiled=compiled)
            nearest = self._centres.nearest(seen, own[part], compiled=compiled)
            by_distance[part], by_angle[part] = nearest
        add_by_class(self.counts, own)
        add_by_class(self.spread_sums, own, spread)
        add_by_class(self.spread_squares, own, spread.square())
        add_by_class(self.reach_sums, own, reach)
        add_by_class(self.zero_counts, own[reach <= self.least])
        self.near_centre += int((reach <= NEAR * self.least).sum())
        add_by_class(self.nearest_correct, own[by_distance == own])
        add_by_class(self.cosine_correct, own[by_angle == own])
        if predicted is not None:
            decided = predicted.to(device) if rows is None else predicted.to(device)[rows]
            self.predictions += len(decided)
            self.nearest_agrees += int((self.classes[by_distance] == decided).sum())
            alike = (self.classes[by_angle] == decided) & (by_angle >= 0)
            self.cosine_agrees += int(alike.sum())
        self.rows_seen += len(features)

    def _see(self, block: Tensor, own: Tensor, spread: Tensor, reach: Tensor) -> None:
        """Write the distances of rows to the means of their classes and to the centre.

        Adds up their centred directions.
        """
        centred = block - self._centres.centre
        reach.copy_(row_norms(centred))
        torch.linalg.vector_norm(block - self._centres.means[own], dim=1, out=spread)
        unit = centred.div_(reach.masked_fill(reach <= self.least, torch.inf)[:, None])
        self._unit_sum.index_add_(0, own, unit)

    def _see_compiled(self, block: Tensor, own: Tensor, spread: Tensor, reach: Tensor) -> None:
        """`_see` in compiled form."""
        from nclab.statistics.kernel import look_at_rows

        given = (block, own, self._centres.means, self._centres.centre, self._unit_sum)
        arrays: list[Any] = [part.numpy() for part in (*given, spread, reach)]
        look_at_rows(*[*arrays, self.least])

    def require_same_data(self, moments: ClassMoments) -> None:
        """Refuse a second pass that has not seen what the first one has."""
        seen, expected = self.counts, moments.counts[self.classes]
        if not torch.equal(seen, expected):
            place = int((seen != expected).nonzero()[0])
            raise DataError(
                f"Expected {int(expected.sum())} samples in the second pass, got "
                f"{int(seen.sum())} (of class {int(self.classes[place])} {int(seen[place])} for "
                f"{int(expected[place])}). Pass the same data twice, or second_pass=False."
            )
        present = moments if len(seen) == self.all_classes else moments.select(self.classes)
        squares = present.variances * expected
        # Not tighter: in bfloat16 another batching alone moves features by almost a per cent.
        moved = OTHER_DATA * present.largest_mean_norm * expected.double().sqrt()
        slack = OTHER_DATA * squares + 2 * squares.sqrt() * moved + moved.square()
        if ((self.spread_squares - squares).abs() > slack).any():
            raise DataError(
                "Expected the same features in both passes, got others in the second. Turn off "
                "augmentation, enlarge cache_bytes, or pass second_pass=False."
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
        # Sums of older versions do not know the last of them.
        for name, value in zip(_TALLIES, state["tallies"].tolist(), strict=False):
            setattr(self, name, value)

    def merge(self, other: Self) -> None:
        """Add what another look with the same class means has seen."""
        means = self._centres.means
        if not torch.equal(means, other._centres.means.to(means.device)):
            raise DataError("Expected second passes at the same class means. Merge moments first.")
        for name in _SUMS:
            getattr(self, name).add_(getattr(other, name).to(self.counts.device))
        for name in _TALLIES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def all_reduce(self, group: Group = None) -> None:
        """What all processes of a torch.distributed group have seen, in each of them.

        Every one looked with the moments that `ClassMoments.all_reduce` gave. Costs two messages
        of k d + 7 k numbers together.
        """
        ranks, tallies = Ranks(group), torch.tensor([getattr(self, name) for name in _TALLIES])
        sums = {name: getattr(self, name) for name in _SUMS}
        sum_looks(ranks, "second passes", {**sums, "tallies": tallies}, self._centres.means)
        for name, value in zip(_TALLIES, tallies.tolist(), strict=True):
            setattr(self, name, value)


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
_TALLIES = ("nearest_agrees", "cosine_agrees", "predictions", "rows_seen", "near_centre")
