"""Sweeps over all pairs of classes in tiles, so that no C x C array is ever held.

Of up to `MANY` classes all tiles are products in float64. Of more, those off the diagonal are
products in float32, whose error is bounded; pairs that this bound leaves in doubt are taken in
float64, the whole tile where there are many of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nclab.compute import has_numba
from nclab.progress import track
from nclab.statistics import blocks
from nclab.statistics.blocks import SymmetricSum
from nclab.statistics.nearest import TINY, UNIT

TILE = 512
"""Classes on the side of a tile: 2 MiB of float64."""
SMALL_TILE = 256
"""The same where all pairs are only a few tiles, so that the diagonal ones waste less."""
FEW = 4096
"""Pairs of a tile in doubt up to which each is taken alone in float64."""


@dataclass(frozen=True)
class PairTile:
    """The inner products of one tile of class pairs, above the diagonal."""

    rows: slice
    cols: slice
    inner: Tensor
    """(rows, cols) inner products; scratch for nobody: reducers must not change it."""

    def upper(self, values: Tensor) -> Tensor:
        """The values of the pairs c < c' in this tile, each pair once."""
        if self.rows != self.cols:
            return values
        return values.flatten()[above_diagonal(len(values), values.device)]


@lru_cache(maxsize=4)
def above_diagonal(size: int, device: torch.device) -> Tensor:
    """Flat positions of the entries above the diagonal of a size x size tile."""
    rows, cols = torch.triu_indices(size, size, offset=1, device=device)
    return rows * size + cols


@dataclass(frozen=True)
class ScreenedTile:
    """The inner products of one tile off the diagonal in float32, each off by `rounding` at most.

    The rows they are of have norm 1, or are zero.
    """

    rows: slice
    cols: slice
    scores: Tensor
    """(rows, cols) in float32; not to be changed."""
    vectors: Tensor
    """(C, d) all rows in float64."""
    scratch: Tensor
    """(rows, cols) float32 room for one reducer at a time."""

    @cached_property
    def largest(self) -> float:
        """The largest of the scores."""
        return float(self.scores.amax())

    def exact(self) -> PairTile:
        """The same in float64."""
        return PairTile(self.rows, self.cols, self.vectors[self.rows] @ self.vectors[self.cols].T)

    def above(self, limit: float) -> tuple[Tensor, Tensor]:
        """Places in the tile of the scores above a limit; empty at little cost."""
        if self.largest <= limit:
            return _NOWHERE, _NOWHERE
        rows, cols = (self.scores > limit).nonzero(as_tuple=True)
        return rows, cols


_NOWHERE = torch.empty(0, dtype=torch.int64)


class PairReducer(Protocol):
    """Takes the tiles one by one and ends with its answer."""

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""

    def screen(self, tile: ScreenedTile) -> None:
        """Take in one tile in float32."""

    def finish(self, vectors: Tensor) -> None:
        """After a sweep in float32, with all rows."""


def screens(vectors: Tensor) -> bool:
    """Whether pairs of these rows are taken in float32 first: only where its error is known."""
    plain = vectors.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
    return plain and len(vectors) > blocks.MANY_CLASSES and vectors.shape[1] * UNIT < 0.01


def rounding(dim: int) -> float:
    """Largest error of the float32 inner product of two rows whose norms are 1 at most.

    A dot product of d numbers in any order is off by d / (1 - d UNIT) units, storing the two rows
    by two; what vanishes below float32 is d TINY at most.

    >>> f"{rounding(768):.1e}"
    '5.1e-05'
    """
    return 1.1 * (dim + 8) * UNIT + dim * TINY


def tile_places(size: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles that hold every pair once, with a bar."""
    side = TILE if size > 4 * TILE else min(TILE, SMALL_TILE)
    sides = [slice(edge, min(edge + side, size)) for edge in range(0, size, side)]
    places = [(rows, cols) for number, rows in enumerate(sides) for cols in sides[number:]]
    yield from track(places, "pairs of classes")


def reduce_pairs(vectors: Tensor, *reducers: PairReducer) -> None:
    """Show every pair of rows once to each reducer.

    Costs half a C x C x d GEMM however many reducers look on; memory one tile. Of more than `MANY`
    rows, whose norms must then be 1 or 0, the GEMM is in float32; memory C d float32 numbers.
    """
    if screens(vectors):
        _reduce_screened(vectors, reducers)
        return
    for rows, cols in tile_places(len(vectors)):
        tile = PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
        for reducer in reducers:
            reducer.update(tile)


def _reduce_screened(vectors: Tensor, reducers: tuple[PairReducer, ...]) -> None:
    """`reduce_pairs` in float32, but for the tiles on the diagonal."""
    short = vectors.float()
    scores, scratch = short.new_empty(2, TILE * TILE)
    for rows, cols in tile_places(len(vectors)):
        if rows == cols:
            tile = PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
            for reducer in reducers:
                reducer.update(tile)
            continue
        left, right = short[rows], short[cols]
        shape = len(left), len(right)
        own, room = (part[: shape[0] * shape[1]].view(shape) for part in (scores, scratch))
        torch.mm(left, right.T, out=own)
        screened = ScreenedTile(rows, cols, own, vectors, room)
        for reducer in reducers:
            reducer.screen(screened)
    for reducer in reducers:
        reducer.finish(vectors)


@dataclass
class Deviation:
    """Mean, mean absolute value and spread of inner product - `ideal` over all pairs."""

    ideal: float
    pairs: int = 0
    absolute_sum: float = 0.0
    mean: float = 0.0
    centred_squares: float = 0.0

    def update(self, tile: PairTile) -> None:
        """Take in one tile, merging its centred moments into those before it."""
        deviation = tile.upper(tile.inner - self.ideal)
        count = deviation.numel()
        if count == 0:
            return
        variance, mean = (float(x) for x in torch.var_mean(deviation, correction=0))
        together = self.pairs + count
        step = mean - self.mean
        self.centred_squares += count * variance + step * step * self.pairs * count / together
        self.mean += step * count / together
        self.pairs = together
        self.absolute_sum += float(deviation.abs_().sum())

    def screen(self, tile: ScreenedTile) -> None:
        """Take in one tile in float32: of the mean absolute value only."""
        if has_numba():
            from nclab.statistics.kernel import absolute_sums

            sums = tile.scores.new_empty(len(tile.scores))
            absolute_sums(tile.scores.numpy(), np.float32(self.ideal), sums.numpy())
        else:
            sums = torch.sub(tile.scores, self.ideal, out=tile.scratch).abs_().sum(1)
        self.absolute_sum += float(sums.double().sum())
        self.pairs += tile.scores.numel()

    def finish(self, vectors: Tensor) -> None:
        """Mean and spread of all pairs without a sweep, through the d x d Gram matrix.

        With more vectors than dimensions they are far from equal angles, and no digits are lost.
        """
        size = len(vectors)
        pairs = size * (size - 1)
        gram = SymmetricSum(vectors.new_zeros(vectors.shape[1], vectors.shape[1]))
        gram.add(vectors)
        squares = torch.linalg.vector_norm(vectors, dim=1).square_()
        mean = float(vectors.sum(0).square().sum() - squares.sum()) / pairs
        mean_square = float(gram.full().square().sum() - squares.square().sum()) / pairs
        self.mean = mean - self.ideal
        self.centred_squares = self.pairs * max(mean_square - mean * mean, 0.0)
        if math.isnan(self.mean):  # a row has no direction, which a compiled sum may not see
            self.absolute_sum = self.centred_squares = math.nan

    @property
    def mean_absolute(self) -> float:
        """Avg |inner - ideal|."""
        return self.absolute_sum / self.pairs

    @property
    def standard_deviation(self) -> float:
        """Population standard deviation of the inner products."""
        return (self.centred_squares / self.pairs) ** 0.5


@dataclass
class LogDistance:
    """How log 1/|u - v| of unit vectors lies around its mean over all pairs."""

    units: Tensor
    """(C, d) the vectors, for pairs too close for their inner product."""
    deviation: Deviation = field(default_factory=lambda: Deviation(0.0))
    farthest: float = -math.inf
    """The largest logarithm: that of the closest pair."""

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        squares = 2 - 2 * tile.inner
        near = squares < NEAR
        for part in near.nonzero().split(4096):
            left = self.units[part[:, 0] + tile.rows.start]
            gaps = left - self.units[part[:, 1] + tile.cols.start]
            squares[part[:, 0], part[:, 1]] = gaps.square().sum(1)
        self._take(PairTile(tile.rows, tile.cols, -0.5 * squares.log()))

    def screen(self, tile: ScreenedTile) -> None:
        """Take in one tile in float32."""
        rows, cols = tile.above(1 - NEAR_IN_FLOAT32)
        if len(rows) > FEW:
            self.update(tile.exact())
            return
        squares = torch.mul(tile.scores, -2.0, out=tile.scratch).add_(2.0)
        if len(rows):
            left = self.units[rows + tile.rows.start]
            gaps = left - self.units[cols + tile.cols.start]
            squares[rows, cols] = 1.0
            logarithms = squares.log_().double()
            logarithms[rows, cols] = gaps.square().sum(1).log()
        else:
            logarithms = squares.log_().double()
        self._take(PairTile(tile.rows, tile.cols, logarithms.mul_(-0.5)))

    def _take(self, logarithms: PairTile) -> None:
        found = logarithms.upper(logarithms.inner)
        if found.numel():
            self.farthest = max(self.farthest, float(found.max()))
        self.deviation.update(logarithms)

    def finish(self, vectors: Tensor) -> None:
        """Nothing is left to do."""


NEAR = 1e-4
"""Squared distances below this share of the squared norms are taken from differences."""
NEAR_IN_FLOAT32 = 0.1
"""The same for float32 products: so far from them no pair is off by more than ten times their
error."""
SHORT = 2.0**-50
"""Norms below this share of the longest are no norms to multiply by in float32."""


@dataclass
class NormalisedVariance:
    """Sum of (v_c + v_c') / (2 |m_c - m_c'|^2) over all pairs, from unit vectors and norms."""

    norms: Tensor
    """(C,) norms of the centred means, of which the tiles hold the cosines."""
    means: Tensor
    """(C, d) the means as they are, for pairs too close for their inner product."""
    variances: Tensor
    """(C,) v_c."""
    total: float = 0.0
    pairs: int = 0
    closest: float = math.inf
    """The smallest squared distance of two means; of more than `MANY` it is not looked for."""

    @property
    def mean(self) -> float:
        """The average over the pairs."""
        return self.total / self.pairs

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        ratio = tile.upper(self.tile_values(tile))
        self.total += float(ratio.sum())
        self.pairs += ratio.numel()

    @cached_property
    def _scaled(self) -> tuple[float, Tensor, Tensor]:
        """The longest norm, (C,) norms over it in float32, and which are too short for that."""
        longest = float(self.norms.max()) or 1.0
        scaled = self.norms / longest
        return longest, scaled.float(), scaled < SHORT

    def screen(self, tile: ScreenedTile) -> None:
        """Take in one tile in float32: distances there, near ones and variances in float64."""
        longest, norms, short = self._scaled
        rows, cols = tile.above(1 - NEAR_IN_FLOAT32)
        if len(rows) > FEW or (bool(short[tile.rows].any()) and bool(short[tile.cols].any())):
            self.update(tile.exact())
            return
        left, right = norms[tile.rows], norms[tile.cols]
        ends = self.variances[tile.rows], self.variances[tile.cols]
        if len(rows) == 0 and has_numba():
            from nclab.statistics.kernel import inverse_squares

            sums = torch.empty_like(left), torch.zeros_like(right)
            inverse_squares(*(part.numpy() for part in (tile.scores, left, right, *sums)))
        else:
            squares = torch.mul(tile.scores, right, out=tile.scratch).mul_(-2 * left[:, None])
            inverse = squares.add_(left.square()[:, None]).add_(right.square()).reciprocal_()
            inverse[rows, cols] = 0.0
            sums = inverse.sum(1), inverse.sum(0)
            gaps = self.means[rows + tile.rows.start] - self.means[cols + tile.cols.start]
            near = (ends[0][rows] + ends[1][cols]) / gaps.square().sum(1)
            self.total += 0.5 * float(near.sum())
        both = sum(float(v @ total.double()) for v, total in zip(ends, sums, strict=True))
        self.total += 0.5 * both / longest / longest
        self.pairs += tile.scores.numel()

    def finish(self, vectors: Tensor) -> None:
        """Nothing is left to do."""

    def tile_values(self, tile: PairTile) -> Tensor:
        """(rows, cols) the value of every pair; `tile.inner` holds cosines of the means."""
        left, right = self.norms[tile.rows, None], self.norms[None, tile.cols]
        squares = left.square() + right.square()
        distances = torch.addcmul(squares, tile.inner * left, right, value=-2.0)
        near = distances < NEAR * squares
        if tile.rows == tile.cols:
            near.fill_diagonal_(False)
        if near.any():
            distances[near] = self._exact_distances(near.nonzero(), tile)
        apart = tile.upper(distances)
        if apart.numel():
            self.closest = min(self.closest, float(apart.min()))
        variances = self.variances[tile.rows, None] + self.variances[None, tile.cols]
        return variances.div_(distances.mul_(2.0))

    def _exact_distances(self, places: Tensor, tile: PairTile) -> Tensor:
        found = []
        for part in places.split(4096):
            left = self.means[part[:, 0] + tile.rows.start]
            found.append((left - self.means[part[:, 1] + tile.cols.start]).square().sum(1))
        return torch.cat(found)
