"""Second passes over features, for quantities that need the class means first."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import (
    CPU_BLOCK,
    add_by_class,
    compiles,
    outside,
    product_blocks,
    row_norms,
    rows_to_read,
    unit_rows,
)
from nclab.statistics.checks import as_features, as_labels
from nclab.statistics.moments import ROUNDING, ClassMoments
from nclab.statistics.process_group import Group, ProcessGroup

NEAR = 1e6
"""A feature is near the global mean if its distance to it is at most NEAR times the rounding error
of the class means. Its direction from the global mean then has fewer than six correct digits."""
EPS = torch.finfo(torch.float64).eps
"""One unit in the last place of float64."""
ROWS_PER_CLASS = 8
"""With at least this many rows per class, `Centres.certain_radii` saves more time than it costs."""
CLASS_BLOCK = 256
"""Number of classes that are compared with all later classes at a time."""
DISTANCE_MARGIN, ANGLE_MARGIN = 1e-6, 1e-4
"""Safety margins that `Centres.certain_radii` subtracts from its radii, far above float64 rounding.
The first is a fraction of the distance between two means, the second an angle in radians."""
OTHER_DATA = 0.01
"""A second pass is rejected if its features differ from those of the first pass by more than this,
relative to their size."""


class Centres:
    """Class means and mean directions, prepared to find the nearest of them for feature rows."""

    def __init__(self, moments: ClassMoments) -> None:
        self.means = moments.means
        self.centre = moments.global_mean
        self.centred_means = moments.centred_means
        self.half_squares = 0.5 * moments.centred_means.square().sum(1)
        self.longest = float((2 * self.half_squares.max()).sqrt())
        units = moments.unit_means
        undirected = torch.linalg.vector_norm(units, dim=1, keepdim=True) <= ROUNDING
        self.directions = unit_rows(units.masked_fill(undirected, 0.0), zero=0.0)
        self.undirected = (~self.directions.any(1)).nonzero().flatten()
        self.coincide = not bool(moments.centred_means.any())

    def nearest_direction(self, block: Tensor) -> Tensor:
        """Return the (B,) indices of the mean directions nearest to float64 rows; -1 for zeros."""
        if outside(torch.linalg.vector_norm(block, dim=1)) is not None:
            block = unit_rows(block, zero=0.0)  # Products of tiny numbers would lose digits.
        scores = block @ self.directions.T
        if len(self.undirected):
            scores[:, self.undirected] = -torch.inf
        return scores.argmax(1).masked_fill_(~block.any(1), -1)

    def nearest_mean(self, block: Tensor) -> Tensor:
        """Return the (B,) indices of the class means nearest to float64 rows.

        Rows are compared with all means by inner products. If rounding could change the result for
        a row, its distances to the nearest means are computed from differences.
        """
        centred = block - self.centre
        # Distances from the centre of the means: an offset of all features costs no digits.
        scores = torch.addmm(-self.half_squares, centred, self.centred_means.T)
        best, nearest = scores.max(1)
        if self.coincide:
            return nearest
        reach = torch.linalg.vector_norm(centred, dim=1)
        error = 4 * block.shape[1] * EPS * self.longest * (reach + self.longest)
        runner_up = scores.scatter_(1, nearest[:, None], -torch.inf).amax(1)
        undecided = (runner_up >= best - error).nonzero().flatten()
        scores.scatter_(1, nearest[:, None], best[:, None])
        for rows in undecided.split(256):
            pairs = (scores[rows] >= (best - error)[rows, None]).nonzero()
            distances = scores.new_full((len(rows), scores.shape[1]), torch.inf)
            for part in pairs.split(4096):
                gaps = block[rows[part[:, 0]]] - self.means[part[:, 1]]
                distances[part[:, 0], part[:, 1]] = torch.linalg.vector_norm(gaps, dim=1)
            nearest[rows] = distances.argmin(1)
        return nearest

    def certain_radii(self, rows: int) -> Tensor:
        r"""Return (C,) radii around the class means within which the nearest mean is certain.

        A row closer to its class mean than the radius is nearest to this mean and to its direction,
        so that no product with all class means is needed. By the triangle inequality, half the
        distance to the nearest other mean is such a radius. For directions: with |h - m| < |m| the
        angle of h and m is at most asin(|h - m| / |m|), and h is nearest to the direction u_c if

        $$\arcsin\frac{|h-m|}{|m|} + \angle(m, u_c) < \tfrac12\min_j\angle(u_c, u_j)$$

        A radius of 0 proves nothing. All radii are 0 if computing them costs more than it saves for
        `rows` rows. Costs a float64 matrix product C x d x C.
        """
        size, dim = self.means.shape
        if self.coincide or rows < ROWS_PER_CLASS * size:
            return self.means.new_zeros(size)
        error = 4 * (dim + 16) * EPS
        scaled = self.centred_means / self.longest
        score = _largest_other_product(scaled, 0.5 * scaled.square().sum(1)) + error
        half_distance = 0.5 * self.longest * (-2 * score).clamp_min_(0.0).sqrt_()
        norms = torch.linalg.vector_norm(self.means, dim=1)
        by_mean = (1 - DISTANCE_MARGIN) * half_distance - 64 * EPS * norms.max()
        cosines = _largest_other_product(self.directions, torch.zeros_like(norms)) + error
        gaps = self.directions - self.means / norms.masked_fill(norms == 0, 1.0)[:, None]
        tilt = 2 * (0.5 * torch.linalg.vector_norm(gaps, dim=1)).clamp_max_(1.0).asin_()
        angle = 0.5 * cosines.clamp_(-1.0, 1.0).acos_() - tilt - ANGLE_MARGIN
        by_direction = norms * angle.clamp_min_(0.0).sin_()
        return torch.minimum(by_mean, by_direction).clamp_min_(0.0)


def _largest_other_product(rows: Tensor, offsets: Tensor) -> Tensor:
    """Return for each row r_i the largest <r_i, r_j> - o_i - o_j over all j != i.

    r are the (C, d) `rows` and o the (C,) `offsets`. With o = |r|^2 / 2 the result is minus half
    the squared distance to the nearest other row; with o = 0 it is the largest inner product.
    """
    largest = torch.full_like(offsets, -torch.inf)
    for start in range(0, len(rows), CLASS_BLOCK):
        block = slice(start, start + CLASS_BLOCK)
        products = torch.addmm(-offsets[start:], rows[block], rows[start:].T)
        products.sub_(offsets[block, None]).fill_diagonal_(-torch.inf)
        largest[block] = torch.maximum(largest[block], products.amax(1))
        largest[start:] = torch.maximum(largest[start:], products.amax(0))
    return largest


class _MeansPass:
    """Sums of a pass over features with fixed class means, which can be saved and merged."""

    _SUMS: ClassVar[tuple[str, ...]]
    """Names of the attributes with sums."""
    _TALLIES: ClassVar[tuple[str, ...]]
    """Names of the attributes with integer counts."""
    _means: Tensor
    """(k, d) the class means that the features are compared with."""

    def sums(self) -> dict[str, Tensor]:
        """Return copies of all sums, as plain tensors for `load_sums`."""
        sums = {name: getattr(self, name).clone() for name in self._SUMS}
        return {**sums, "tallies": self._tallies()}

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Replace all sums by the `sums` of another pass with the same class means."""
        for name in self._SUMS:
            getattr(self, name).copy_(state[name])
        self._set_tallies(state["tallies"])

    def merge(self, other: Self) -> None:
        """Add the sums of another pass with the same class means."""
        if not torch.equal(self._means, other._means.to(self._means.device)):
            raise DataError(
                "Expected second passes with the same class means, got different ones. "
                "Merge the moments of the first pass before the second pass."
            )
        for name in self._SUMS:
            sums = getattr(self, name)
            sums.add_(getattr(other, name).to(sums.device))
        for name in self._TALLIES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def all_reduce(self, group: Group = None) -> None:
        """Merge the passes of all processes of a torch.distributed group in each process.

        Every process must use the moments that `ClassMoments.all_reduce` returned. Costs two
        messages, the second with all sums.
        """
        processes = ProcessGroup(group)
        if processes.size == 1:
            return
        bits = int(self._means.sum().reshape(1).cpu().view(torch.int64))
        name = "second passes with the same class means"
        processes.gather_equal(name, [*self._means.shape, bits])
        tallies = self._tallies()
        processes.sum_({**{name: getattr(self, name) for name in self._SUMS}, "tallies": tallies})
        self._set_tallies(tallies)

    def _tallies(self) -> Tensor:
        return torch.tensor([getattr(self, name) for name in self._TALLIES])

    def _set_tallies(self, values: Tensor) -> None:
        # States of older versions lack the last tallies.
        for name, value in zip(self._TALLIES, values.tolist(), strict=False):
            setattr(self, name, value)


class SecondPass(_MeansPass):
    """Sums of a second pass over features: centred directions, distances, nearest class means.

    Classes without samples in `moments` are skipped and are never the nearest class.

    Costs one read of the rows. Rows far from their class mean are compared with all class means, by
    two float64 matrix products (B x d x C); for rows within `Centres.certain_radii` the nearest
    mean is known without them. Memory: 4 C d numbers in addition to the moments.

    >>> moments = ClassMoments(num_classes=2, dim=2)
    >>> rows, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], [0, 0, 1]
    >>> moments.update(rows, labels)
    >>> second_pass = SecondPass(moments)
    >>> second_pass.update(rows, labels)
    >>> second_pass.nearest_correct.tolist()
    [2, 1]
    """

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

    def __init__(self, moments: ClassMoments) -> None:
        self.ignore_index = moments.ignore_index
        self.all_classes = moments.num_classes
        self.rows_seen = 0
        present, self.classes, self._slot = _present(moments)
        self.counts = torch.zeros_like(present.counts)
        self._means = present.means
        self._centres = Centres(present)
        self._expected = present.total
        self._radii: Tensor | None = None
        self._unit_sum = torch.zeros_like(present.means)
        self.spread_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|."""
        self.reach_sums = torch.zeros_like(present.variances)
        """(k,) sum of |h - global mean|."""
        self.spread_squares = torch.zeros_like(present.variances)
        """(k,) sum of |h - class mean|^2, which the first pass also knows."""
        self.zero_counts = torch.zeros_like(present.counts)
        """(k,) features equal to the global mean up to rounding: they have no centred direction."""
        self.least = ROUNDING * present.size
        """Distance to the global mean up to which a feature equals it up to rounding."""
        self.near_centre = 0
        """Number of features whose centred direction has fewer than six correct digits."""
        self.means_coincide = self._centres.coincide
        self.nearest_correct = torch.zeros_like(present.counts)
        """(k,) features whose nearest class mean is that of their label."""
        self.cosine_correct = torch.zeros_like(present.counts)
        """(k,) features whose nearest mean direction is that of their label."""
        self.nearest_agrees = self.cosine_agrees = self.predictions = 0

    def update(self, features: Any, labels: Any, predicted: Tensor | None = None) -> None:
        """Add a batch of the second pass.

        `predicted` holds the classifier's predicted class for every row.
        """
        features = as_features(features, dim=self._unit_sum.shape[1], first_row=self.rows_seen)
        labels = as_labels(
            labels, rows=len(features), ignore_index=self.ignore_index, num_classes=self.all_classes
        )
        if predicted is not None and len(predicted) != len(features):
            raise DataError(
                f"Expected {len(features)} predictions, got {len(predicted)}. "
                "Pass one predicted class for each row."
            )
        self.add_checked(features, labels, predicted)

    def add_checked(self, features: Tensor, labels: Tensor, predicted: Tensor | None) -> None:
        """Add a batch that `as_features` and `as_labels` have already checked."""
        device = self.counts.device
        labels = labels.to(device)
        rows = rows_to_read(labels, self.ignore_index)
        counted = labels if rows is None else labels[rows]
        slots = self._slot[counted]
        if (slots < 0).any():
            raise DataError(
                f"Expected only classes of the first pass, got a sample of class "
                f"{int(counted[slots < 0][0])}. Both passes must read the same data."
            )
        spread, reach, by_distance, by_angle = self._decide(features, labels, rows, slots)
        add_by_class(self.counts, slots)
        add_by_class(self.spread_sums, slots, spread)
        add_by_class(self.spread_squares, slots, spread.square())
        add_by_class(self.reach_sums, slots, reach)
        add_by_class(self.zero_counts, slots[reach <= self.least])
        self.near_centre += int((reach <= NEAR * self.least).sum())
        add_by_class(self.nearest_correct, slots[by_distance == slots])
        add_by_class(self.cosine_correct, slots[by_angle == slots])
        if predicted is not None:
            predicted = predicted.to(device) if rows is None else predicted.to(device)[rows]
            self.predictions += len(predicted)
            self.nearest_agrees += int((self.classes[by_distance] == predicted).sum())
            agrees = (self.classes[by_angle] == predicted) & (by_angle >= 0)
            self.cosine_agrees += int(agrees.sum())
        self.rows_seen += len(features)

    def _decide(
        self, features: Tensor, labels: Tensor, rows: Tensor | None, slots: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return for each row its distances to its class mean and to the global mean, and the slots
        of the nearest class mean and of the nearest mean direction.

        Also add the unit vectors from the global mean to the rows to `_unit_sum`.
        """
        device = self.counts.device
        if self._radii is None:
            self._radii = self._centres.certain_radii(self._expected)
        spread, reach = self._radii.new_empty(2, len(slots))
        by_distance, by_angle = slots.clone(), slots.clone()
        compiled = compiles(features, device)
        measure = self._measure_compiled if compiled else self._measure
        width = len(self.classes)
        step = max(128, CPU_BLOCK // max(width, features.shape[1]))
        start = 0
        for block, _ in product_blocks(
            features, labels, device, rows=rows, width=width, compiled=compiled
        ):
            part = slice(start, start + len(block))
            measure(block, slots[part], spread[part], reach[part])
            undecided = (spread[part] >= self._radii[slots[part]]).nonzero().flatten()
            for index in undecided.split(step):
                doubles = block[index].double()
                by_distance[start + index] = self._centres.nearest_mean(doubles)
                by_angle[start + index] = self._centres.nearest_direction(doubles)
            start += len(block)
        return spread, reach, by_distance, by_angle

    def _measure(self, block: Tensor, slots: Tensor, spread: Tensor, reach: Tensor) -> None:
        """Write the distances of rows to class means (`spread`) and to the global mean (`reach`).

        Also add the unit vectors from the global mean to the rows to `_unit_sum`.
        """
        centred = block - self._centres.centre
        reach.copy_(row_norms(centred))
        torch.linalg.vector_norm(block - self._centres.means[slots], dim=1, out=spread)
        unit = centred.div_(reach.masked_fill(reach <= self.least, torch.inf)[:, None])
        self._unit_sum.index_add_(0, slots, unit)

    def _measure_compiled(
        self, block: Tensor, slots: Tensor, spread: Tensor, reach: Tensor
    ) -> None:
        """Do the work of `_measure` in the compiled kernel."""
        from nclab.statistics.kernel import add_second_pass_rows

        inputs = (block, slots, self._centres.means, self._centres.centre, self._unit_sum)
        arguments: list[Any] = [tensor.numpy() for tensor in (*inputs, spread, reach)]
        add_second_pass_rows(*[*arguments, self.least])

    def require_same_data(self, moments: ClassMoments) -> None:
        """Raise if this pass has not read the same data as the first pass."""
        expected = moments.counts[self.classes]
        if not torch.equal(self.counts, expected):
            slot = int((self.counts != expected).nonzero()[0])
            raise DataError(
                f"Expected {int(expected.sum())} samples in the second pass, got "
                f"{int(self.counts.sum())} (class {int(self.classes[slot])}: "
                f"{int(self.counts[slot])} instead of {int(expected[slot])}). Pass the same data "
                "twice, or second_pass=False."
            )
        present = moments if len(expected) == self.all_classes else moments.select(self.classes)
        squares = present.variances * expected
        # Not tighter: in bfloat16, other batches alone change features by almost one per cent.
        moved = OTHER_DATA * row_norms(present.means).max() * expected.double().sqrt()
        slack = OTHER_DATA * squares + 2 * squares.sqrt() * moved + moved.square()
        if ((self.spread_squares - squares).abs() > slack).any():
            raise DataError(
                "Expected the same features in both passes, got different ones in the second. Turn "
                "off augmentation, enlarge cache_bytes, or pass second_pass=False."
            )

    @property
    def unit_means(self) -> Tensor:
        """(k, d) class means of the unit vectors of the features centred by the global mean."""
        return self._unit_sum / self.counts[:, None]


class ReferencePass(_MeansPass):
    """Distances of features to the class means of other data, such as a training set.

    Costs one float64 matrix product (B x d x C) for each batch. Memory: 2 C d numbers.

    Args:
        moments: the moments of the reference data.
        classes: (k,) the class of each row of `moments`; by default 0, 1, 2, ... Without it,
            classes of `moments` that have no samples are skipped.

    >>> moments = ClassMoments(num_classes=2, dim=1)
    >>> moments.update([[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1])
    >>> reference = ReferencePass(moments)
    >>> reference.add(torch.tensor([[2.0], [7.0]]), torch.tensor([0, 0]), None)
    >>> reference.nearest_correct.tolist(), reference.squares.tolist()
    ([1, 0], [37.0, 0.0])
    """

    _SUMS = (
        "counts",
        "nearest_correct",
        "squares",
        "cluster_counts",
        "cluster_sums",
        "cluster_squares",
    )
    _TALLIES = ("agrees", "predictions")

    def __init__(self, moments: ClassMoments, classes: Tensor | None = None) -> None:
        if moments.missing:
            classes = (moments.counts > 0).nonzero().flatten()
            moments = moments.select(classes)
        self.moments = moments
        self.classes = torch.arange(moments.num_classes) if classes is None else classes.clone()
        self.classes = self.classes.to(moments.device)
        self._centres = Centres(moments)
        self._means = moments.means
        self.counts = torch.zeros_like(moments.counts)
        """(k,) number of features of each class."""
        self.nearest_correct = torch.zeros_like(moments.counts)
        """(k,) features whose nearest reference mean is that of their label."""
        self.squares = torch.zeros_like(moments.variances)
        """(k,) sum of |h - reference mean of its class|²."""
        self.cluster_counts = torch.zeros_like(moments.counts)
        """(k,) number of features of any class nearest to each mean."""
        self.cluster_sums = torch.zeros_like(moments.means)
        """(k, d) sum of h - nearest mean."""
        self.cluster_squares = torch.zeros_like(moments.variances)
        """(k,) sum of |h - nearest mean|²."""
        self.agrees = self.predictions = 0
        self.means_coincide = self._centres.coincide

    def add(self, features: Tensor, labels: Tensor, predicted: Tensor | None) -> None:
        """Add a checked batch, with the classifier's predicted classes if they are known."""
        if features.shape[1] != self._means.shape[1]:
            raise DataError(
                f"Expected features of dimension {self._means.shape[1]}, as the reference has, got "
                f"{features.shape[1]}. Use the same layer for both."
            )
        device = self.counts.device
        predicted = None if predicted is None else predicted.to(device)
        start, size = 0, len(self.classes)
        for block, classes in product_blocks(features, labels.to(device), device, width=size):
            slots = torch.searchsorted(self.classes, classes).clamp_max(size - 1)
            if not torch.equal(self.classes[slots], classes):
                unknown = int(classes[self.classes[slots] != classes][0])
                raise DataError(
                    f"Expected classes that the reference has samples of, got class {unknown}. "
                    "Remove its samples, or measure without a reference."
                )
            stop = start + len(block)
            self._add_block(block, slots, None if predicted is None else predicted[start:stop])
            start = stop

    def _add_block(self, block: Tensor, slots: Tensor, predicted: Tensor | None) -> None:
        size = len(self.classes)
        nearest = self._centres.nearest_mean(block)
        self.counts += slots.bincount(minlength=size)
        self.nearest_correct += slots[nearest == slots].bincount(minlength=size)
        self.squares.index_add_(0, slots, (block - self._means[slots]).square().sum(1))
        self.cluster_counts += nearest.bincount(minlength=size)
        offsets = block - self._means[nearest]
        self.cluster_sums.index_add_(0, nearest, offsets)
        self.cluster_squares.index_add_(0, nearest, offsets.square().sum(1))
        if predicted is not None:
            self.predictions += len(predicted)
            self.agrees += int((self.classes[nearest] == predicted).sum())


def _present(moments: ClassMoments) -> tuple[ClassMoments, Tensor, Tensor]:
    """Return the moments of the k classes with samples, their (k,) numbers, and (C,) slots.

    The slot of a class is its position among these k classes, or -1 for a class without samples.
    """
    classes = (moments.counts > 0).nonzero().flatten()
    slots = torch.full_like(moments.counts, -1)
    slots[classes] = torch.arange(len(classes), device=moments.device)
    present = moments if len(classes) == moments.num_classes else moments.select(classes)
    return present, classes, slots
