"""The statistics that metrics of one layer read, and results that several metrics share.

A metric is a plain function of statistics. Called alone, it computes everything it needs. Called
through a view, every function marked `shared` is computed once for all metrics. All pairs of
classes are visited in tiles of inner products, so that no C x C array is stored.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from nclab.errors import NclabWarning
from nclab.progress import track
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass
from nclab.statistics.blocks import norm, outside, power_of_two, row_norms, unit_rows

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")
TILE = 512
"""Number of classes on each side of a tile, which takes 2 MiB in float64."""
SMALL_TILE = 256
"""Side of a tile for up to 4 * TILE classes: small tiles waste less work below the diagonal."""
NEAR = 1e-4
"""Below this share of the sum of their squared norms, the squared distance of two means is computed
from their difference, not from their cosine."""
Classes = Tensor | None
"""(k,) the rows of the classifier that belong to the classes of the moments; None for all."""


@dataclass(frozen=True, eq=False)
class View:
    """The statistics of one layer; the fields have the names of the metrics' parameters.

    >>> from nclab.metrics import max_inter, nc3_frobenius
    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 5.0]], [0, 1])
    >>> view = View(moments, classes=(moments.counts > 0).nonzero().flatten())
    >>> view(max_inter), view.allows(nc3_frobenius)
    (0.8, False)
    """

    moments: ClassMoments
    """Moments of the k classes with samples."""
    classes: Tensor
    """(k,) the rows of the classifier that belong to these classes."""
    weight: Tensor | None = None
    """(C, d) classifier of all classes."""
    logits: LogitStatistics | None = None
    second_pass: SecondPass | None = None
    remarks: list[str] = field(default_factory=list)
    """Warnings of the metrics about their numbers."""
    _results: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)

    @property
    def statistics(self) -> ClassMoments:
        """The moments, for metrics whose parameter `statistics` can also be a `SecondPass`."""
        return self.moments

    def allows(self, metric: Callable[..., object]) -> bool:
        """Whether all statistics that the metric needs are available.

        If some classes have no samples, a metric of moments and classifier also needs the parameter
        `classes`, by which it selects the classifier rows of the other classes.
        """
        names = parameters(metric)
        if any(getattr(self, name) is None for name in names):
            return False
        complete = self.weight is None or len(self.weight) == len(self.classes)
        return complete or "classes" in names or not {"moments", "weight"} <= names

    def __call__(self, metric: Callable[..., Value]) -> Value:
        """Compute a metric from the statistics that its parameters name."""
        outer = _CURRENT.set(self)
        try:
            return metric(*(getattr(self, name) for name in parameters(metric)))
        finally:
            _CURRENT.reset(outer)


_CURRENT: ContextVar[View | None] = ContextVar("view", default=None)


@lru_cache
def parameters(metric: Callable[..., object]) -> Set[str]:
    """Return the names of a metric's parameters, which are fields of `View`, in their order."""
    return signature(metric).parameters.keys()


def shared(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Decorate a function so that all metrics of a view share one result for equal arguments.

    Use it for functions that cost a matrix product or a pass over C x d numbers.
    """

    @wraps(function)
    def once(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        view = _CURRENT.get()
        if view is None or kwargs:
            return function(*args, **kwargs)
        key = (function, *map(id, args))
        if key not in view._results:
            # Keep the arguments, so that no other object can reuse their ids.
            view._results[key] = args, function(*args, **kwargs)
        result: Value = view._results[key][1]
        return result

    return once


def remark(text: str | None) -> None:
    """Report a warning about the value of a metric; None reports nothing.

    A measurement collects the warnings of its metrics; a metric called alone issues them.
    """
    view = _CURRENT.get()
    if text is not None and view is not None:
        view.remarks.append(text)
    elif text is not None:
        warnings.warn(text, NclabWarning, stacklevel=3)


# Pairs of classes


@dataclass(frozen=True)
class PairTile:
    """The inner products of one tile of class pairs, on or above the diagonal."""

    rows: slice
    cols: slice
    inner: Tensor
    """(rows, cols) inner products, which reducers must not change."""

    def upper(self, values: Tensor) -> Tensor:
        """Return the values of the pairs c < c' in this tile, each pair once."""
        if self.rows != self.cols:
            return values
        return values.flatten()[above_diagonal(len(values), values.device)]


@lru_cache(maxsize=4)
def above_diagonal(size: int, device: torch.device) -> Tensor:
    """Return the flat positions of the entries above the diagonal of a size x size tile."""
    rows, cols = torch.triu_indices(size, size, offset=1, device=device)
    return rows * size + cols


class PairReducer(Protocol):
    """Computes a result from the tiles of all pairs, which it receives one by one."""

    def update(self, tile: PairTile) -> None:
        """Add the pairs in one tile (a block of the matrix of inner products) to the result."""


def tile_slices(size: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of the tiles that contain every pair once, with a progress bar."""
    side = TILE if size > 4 * TILE else min(TILE, SMALL_TILE)
    sides = [slice(edge, min(edge + side, size)) for edge in range(0, size, side)]
    tiles = [(rows, cols) for number, rows in enumerate(sides) for cols in sides[number:]]
    yield from track(tiles, "pairs of classes")


def reduce_pairs(vectors: Tensor, *reducers: PairReducer) -> None:
    """Pass every pair of (C, d) float64 rows once to each reducer.

    Costs half a C x C x d matrix product for any number of reducers. Memory: one tile.
    """
    for rows, cols in tile_slices(len(vectors)):
        tile = PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
        for reducer in reducers:
            reducer.update(tile)


@dataclass
class Deviation(PairReducer):
    """Statistics, over all pairs of rows, of the pair's inner product minus `ideal`.

    These are the mean, the mean absolute value and the standard deviation.
    """

    ideal: float
    pairs: int = 0
    absolute_sum: float = 0.0
    mean: float = 0.0
    centred_squares: float = 0.0

    def update(self, tile: PairTile) -> None:
        """Add a tile: merge its mean and variance with those of the earlier tiles."""
        deviation = tile.upper(tile.inner - self.ideal)
        count = deviation.numel()
        if count == 0:
            return
        variance, mean = (float(x) for x in torch.var_mean(deviation, correction=0))
        total = self.pairs + count
        step = mean - self.mean
        self.centred_squares += count * variance + step * step * self.pairs * count / total
        self.mean += step * count / total
        self.pairs = total
        self.absolute_sum += float(deviation.abs_().sum())

    @property
    def mean_absolute(self) -> float:
        """Mean of |inner - ideal| over all pairs."""
        return self.absolute_sum / self.pairs

    @property
    def standard_deviation(self) -> float:
        """Population standard deviation of the inner products."""
        return (self.centred_squares / self.pairs) ** 0.5


@dataclass
class NormalisedVariance(PairReducer):
    """Sum of (v_c + v_c') / (2 |m_c - m_c'|^2) over all pairs, from unit vectors and norms."""

    norms: Tensor
    """(C,) norms of the centred means; the tiles contain their cosines."""
    means: Tensor
    """(C, d) the uncentred means, for pairs too close to compute their distance from the cosine."""
    variances: Tensor
    """(C,) v_c, the variances of the classes."""
    total: float = 0.0
    pairs: int = 0
    closest: float = math.inf
    """Smallest squared distance between two class means."""

    @property
    def mean(self) -> float:
        """Mean over all pairs."""
        return self.total / self.pairs

    def update(self, tile: PairTile) -> None:
        """Add the pairs in one tile (a block of the matrix of inner products) to the result."""
        ratio = tile.upper(self.tile_values(tile))
        self.total += float(ratio.sum())
        self.pairs += ratio.numel()

    def tile_values(self, tile: PairTile) -> Tensor:
        """Return the (rows, cols) value of every pair; `tile.inner` are cosines of the means."""
        left, right = self.norms[tile.rows, None], self.norms[None, tile.cols]
        squares = left.square() + right.square()
        distances = torch.addcmul(squares, tile.inner * left, right, value=-2.0)
        near = distances < NEAR * squares
        if tile.rows == tile.cols:
            near.fill_diagonal_(False)
        if near.any():
            distances[near] = self._squared_distances(tile, near.nonzero())
        pair_distances = tile.upper(distances)
        if pair_distances.numel():
            self.closest = min(self.closest, float(pair_distances.min()))
        variances = self.variances[tile.rows, None] + self.variances[None, tile.cols]
        return variances.div_(distances.mul_(2.0))

    def _squared_distances(self, tile: PairTile, positions: Tensor) -> Tensor:
        """Return the (p,) squared distances of p pairs of means at (p, 2) positions in the tile."""
        distances = []
        for part in positions.split(4096):
            left = self.means[part[:, 0] + tile.rows.start]
            distances.append((left - self.means[part[:, 1] + tile.cols.start]).square().sum(1))
        return torch.cat(distances)


class MeanPairs(NamedTuple):
    """Results of one sweep over all pairs of centred class means."""

    angles: Deviation
    """Deviations of the cosines from that of a simplex ETF; nan if a mean has no direction."""
    distances: NormalisedVariance


@shared
def mean_pairs(moments: ClassMoments) -> MeanPairs:
    """Return angles and distances of the centred class means.

    Costs half a C x C x d matrix product, in tiles.
    """
    distances = NormalisedVariance(mean_norms(moments), moments.means, moments.variances)
    directed = bool(distances.norms.all())
    angles = Deviation(simplex_cosine(moments.num_classes) if directed else math.nan)
    reduce_pairs(unit_rows(moments.centred_means, zero=0.0), angles, distances)
    return MeanPairs(angles, distances)


@shared
def mean_norms(moments: ClassMoments) -> Tensor:
    """Return the (C,) norms of the centred class means."""
    return row_norms(moments.centred_means)


@shared
def scaled_rows(weight: Tensor) -> Tensor:
    """Return the (C, d) classifier rows in float64, divided by a power of two if necessary.

    The division keeps the squares of extreme numbers within the range of float64.
    """
    return power_of_two(weight.double())[0]


@shared
def centred_rows(weight: Tensor) -> Tensor:
    """Return the (C, d) `scaled_rows` minus their mean; rows that are rounding errors become 0."""
    rows = scaled_rows(weight)
    centred = rows - rows.mean(0)
    rounding = 16 * torch.finfo(torch.float64).eps * row_norms(rows).max()
    centred[row_norms(centred) <= rounding] = 0.0
    return centred


@shared
def weight_angles(weight: Tensor) -> Deviation:
    """Return the deviations of centred classifier rows' cosines from that of a simplex ETF."""
    return cosine_deviation(centred_rows(weight))


@shared
def weight_norm(weight: Tensor) -> float:
    """Return the Frobenius norm of the classifier."""
    return norm(weight.double())


def of_classes(rows: Tensor, classes: Classes) -> Tensor:
    """Return the classifier rows of the given classes, or all rows."""
    return rows if classes is None else rows[classes]


def cosine_deviation(rows: Tensor) -> Deviation:
    """Return the deviations of pairwise cosines of rows from -1/(C - 1); nan if a row is zero.

    Costs half a C x C x d matrix product, in tiles.
    """
    deviation = Deviation(simplex_cosine(len(rows)))
    reduce_pairs(unit_rows(rows), deviation)
    return deviation


def simplex_cosine(num_classes: int) -> float:
    """Return the cosine of two vectors of a simplex ETF."""
    return -1.0 / (num_classes - 1)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return (C,) cosines of row c of `left` and row c of `right`; nan if one of them is zero."""
    norms = [torch.linalg.vector_norm(rows, dim=1) for rows in (left, right)]
    if all(outside(values) is None for values in norms):
        return (left * right).sum(1) / (norms[0] * norms[1])
    return (unit_rows(left) * unit_rows(right)).sum(1)
