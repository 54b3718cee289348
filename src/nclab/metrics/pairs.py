"""Sweeps over all pairs of classes in tiles, so that no C x C array is ever stored.

For up to `MANY_CLASSES` classes all tiles are float64 products. For more classes, tiles off the
diagonal are float32 products with a known error bound. Pairs that this bound leaves undecided are
computed in float64; if there are many of them, the whole tile is.
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
"""Number of classes on each side of a tile: 2 MiB of float64."""
SMALL_TILE = 256
"""Side of a tile if there are only a few tiles, so that the diagonal ones waste less work."""
FEW = 4096
"""Number of undecided pairs of a tile up to which each is computed separately in float64."""
NEAR = 1e-4
"""Share of the squared norms below which a squared distance is computed from the difference."""
NEAR_IN_FLOAT32 = 0.1
"""The threshold `NEAR` for float32 products. Above it, rounding in float32 grows at most tenfold.
"""
SHORT = 2.0**-50
"""Share of the longest norm below which a norm is too short for products in float32."""
_NONE = torch.empty(0, 2, dtype=torch.int64)


@dataclass(frozen=True)
class PairTile:
    """The inner products of one tile of class pairs, on or above the diagonal."""

    rows: slice
    cols: slice
    inner: Tensor
    """(rows, cols) inner products, which reducers must not change."""

    @classmethod
    def of(cls, vectors: Tensor, rows: slice, cols: slice) -> "PairTile":
        """Return one tile of the inner products of (C, d) float64 vectors."""
        return cls(rows, cols, vectors[rows] @ vectors[cols].T)

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


@dataclass(frozen=True)
class ScreenedTile:
    """Float32 inner products of one tile off the diagonal, each with an error up to `rounding`.

    The vectors have norm 1 or 0.
    """

    rows: slice
    cols: slice
    scores: Tensor
    """(rows, cols) float32 inner products, which reducers must not change."""
    vectors: Tensor
    """(C, d) all vectors in float64."""
    scratch: Tensor
    """(rows, cols) float32 scratch memory for one reducer at a time."""

    @cached_property
    def largest(self) -> float:
        """The largest score."""
        return float(self.scores.amax())

    def exact(self) -> PairTile:
        """Return the tile in float64."""
        return PairTile.of(self.vectors, self.rows, self.cols)

    def above(self, limit: float) -> Tensor:
        """Return the (p, 2) positions of the scores above a limit."""
        # The largest score is at most the limit in most tiles; this costs only the maximum.
        return _NONE if self.largest <= limit else (self.scores > limit).nonzero()


class PairReducer(Protocol):
    """Computes a result from the tiles of all pairs, which it receives one by one."""

    def update(self, tile: PairTile) -> None:
        """Add the pairs of a tile of float64 products to the result."""

    def screen(self, tile: ScreenedTile) -> None:
        """Add a tile of float32 products; by default the tile is computed again in float64."""
        self.update(tile.exact())

    def finish(self, vectors: Tensor) -> None:
        """Complete the result after a sweep in float32; by default nothing is left to do."""
        return


def squared_distances(vectors: Tensor, tile: PairTile | ScreenedTile, positions: Tensor) -> Tensor:
    """Return the squared distances of the pairs at (p, 2) positions of a tile, from differences."""
    distances = []
    for part in positions.split(4096):
        left = vectors[part[:, 0] + tile.rows.start]
        distances.append((left - vectors[part[:, 1] + tile.cols.start]).square().sum(1))
    return torch.cat(distances)


def screens(vectors: Tensor) -> bool:
    """Whether pairs of these rows are computed in float32 first.

    This needs many rows and float32 products with a known error.
    """
    full_precision = (
        vectors.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
    )
    return full_precision and len(vectors) > blocks.MANY_CLASSES and vectors.shape[1] * UNIT < 0.01


def rounding(dim: int) -> float:
    """Return the largest error of the float32 inner product of two rows with norms up to 1.

    A dot product of d numbers in any order is off by d / (1 - d UNIT) units. Storing the two rows
    adds two units, and products too small for float32 add at most d TINY.

    >>> f"{rounding(768):.1e}"
    '5.1e-05'
    """
    return 1.1 * (dim + 8) * UNIT + dim * TINY


def tile_slices(size: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of the tiles that contain every pair once, with a progress bar."""
    side = TILE if size > 4 * TILE else min(TILE, SMALL_TILE)
    sides = [slice(edge, min(edge + side, size)) for edge in range(0, size, side)]
    tiles = [(rows, cols) for number, rows in enumerate(sides) for cols in sides[number:]]
    yield from track(tiles, "pairs of classes")


def reduce_pairs(vectors: Tensor, *reducers: PairReducer) -> None:
    """Pass every pair of rows once to each reducer.

    Costs half a C x C x d GEMM for any number of reducers. Memory: one tile. For more than
    `MANY_CLASSES` rows, which must then have norm 1 or 0, the GEMM is in float32 and needs
    C d float32 numbers.
    """
    if screens(vectors):
        _reduce_screened(vectors, reducers)
        return
    for rows, cols in tile_slices(len(vectors)):
        tile = PairTile.of(vectors, rows, cols)
        for reducer in reducers:
            reducer.update(tile)


def _reduce_screened(vectors: Tensor, reducers: tuple[PairReducer, ...]) -> None:
    """Pass the pairs of many rows to the reducers: float64 on the diagonal, float32 elsewhere."""
    short = vectors.float()
    scores, scratch = short.new_empty(2, TILE * TILE)
    for rows, cols in tile_slices(len(vectors)):
        if rows == cols:
            tile = PairTile.of(vectors, rows, cols)
            for reducer in reducers:
                reducer.update(tile)
            continue
        left, right = short[rows], short[cols]
        shape = len(left), len(right)
        product, free = (buffer[: shape[0] * shape[1]].view(shape) for buffer in (scores, scratch))
        torch.mm(left, right.T, out=product)
        screened = ScreenedTile(rows, cols, product, vectors, free)
        for reducer in reducers:
            reducer.screen(screened)
    for reducer in reducers:
        reducer.finish(vectors)


@dataclass
class Deviation(PairReducer):
    """Mean, mean absolute value and spread of inner product - `ideal` over all pairs."""

    ideal: float
    pairs: int = 0
    absolute_sum: float = 0.0
    mean: float = 0.0
    centred_squares: float = 0.0

    def update(self, tile: PairTile) -> None:
        """Add a tile; its centred moments are merged with those of the earlier tiles."""
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

    def screen(self, tile: ScreenedTile) -> None:
        """Add a float32 tile to the mean absolute value; `finish` computes the other results."""
        if has_numba():
            from nclab.statistics.kernel import absolute_sums

            sums = tile.scores.new_empty(len(tile.scores))
            absolute_sums(tile.scores.numpy(), np.float32(self.ideal), sums.numpy())
        else:
            sums = torch.sub(tile.scores, self.ideal, out=tile.scratch).abs_().sum(1)
        self.absolute_sum += float(sums.double().sum())
        self.pairs += tile.scores.numel()

    def finish(self, vectors: Tensor) -> None:
        """Compute mean and standard deviation over all pairs from the d x d Gram matrix.

        More vectors than dimensions are far from equal angles, so no digits are lost.
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
        if math.isnan(self.mean):  # A row has no direction; a compiled sum may miss this.
            self.absolute_sum = self.centred_squares = math.nan

    @property
    def mean_absolute(self) -> float:
        """Mean of |inner - ideal| over all pairs."""
        return self.absolute_sum / self.pairs

    @property
    def standard_deviation(self) -> float:
        """Population standard deviation of the inner products."""
        return (self.centred_squares / self.pairs) ** 0.5


@dataclass
class LogDistance(PairReducer):
    """Mean and spread of log 1/|u - v| over all pairs of unit vectors."""

    units: Tensor
    """(C, d) the vectors, for pairs too close to compute their distance from the inner product."""
    deviation: Deviation = field(default_factory=lambda: Deviation(0.0))
    largest: float = -math.inf
    """The largest logarithm, that of the closest pair."""

    def update(self, tile: PairTile) -> None:
        """Add the pairs of a tile of float64 products to the result."""
        squares = 2 - 2 * tile.inner
        near = squares < NEAR
        if near.any():
            squares[near] = squared_distances(self.units, tile, near.nonzero())
        self._add(PairTile(tile.rows, tile.cols, -0.5 * squares.log()))

    def screen(self, tile: ScreenedTile) -> None:
        """Add the pairs of a tile of float32 products to the result."""
        near = tile.above(1 - NEAR_IN_FLOAT32)
        if len(near) > FEW:
            self.update(tile.exact())
            return
        squares = torch.mul(tile.scores, -2.0, out=tile.scratch).add_(2.0)
        rows, cols = near.T
        squares[rows, cols] = 1.0
        logarithms = squares.log_().double()
        logarithms[rows, cols] = squared_distances(self.units, tile, near).log()
        self._add(PairTile(tile.rows, tile.cols, logarithms.mul_(-0.5)))

    def _add(self, logarithms: PairTile) -> None:
        values = logarithms.upper(logarithms.inner)
        if values.numel():
            self.largest = max(self.largest, float(values.max()))
        self.deviation.update(logarithms)


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
    """Smallest squared distance of two means; not computed for more than `MANY_CLASSES`."""

    @property
    def mean(self) -> float:
        """Mean over all pairs."""
        return self.total / self.pairs

    def update(self, tile: PairTile) -> None:
        """Add the pairs of a tile of float64 products to the result."""
        ratio = tile.upper(self.tile_values(tile))
        self.total += float(ratio.sum())
        self.pairs += ratio.numel()

    @cached_property
    def _scaled(self) -> tuple[float, Tensor, Tensor]:
        """The longest norm, (C,) norms divided by it in float32, and a mask of too short norms."""
        longest = float(self.norms.max()) or 1.0
        scaled = self.norms / longest
        return longest, scaled.float(), scaled < SHORT

    def screen(self, tile: ScreenedTile) -> None:
        """Add a float32 tile; variances and small distances are computed in float64."""
        longest, norms, short = self._scaled
        near = tile.above(1 - NEAR_IN_FLOAT32)
        if len(near) > FEW or (bool(short[tile.rows].any()) and bool(short[tile.cols].any())):
            self.update(tile.exact())
            return
        left, right = norms[tile.rows], norms[tile.cols]
        variances = self.variances[tile.rows], self.variances[tile.cols]
        if len(near) == 0 and has_numba():
            from nclab.statistics.kernel import inverse_squares

            sums = torch.empty_like(left), torch.zeros_like(right)
            inverse_squares(*(part.numpy() for part in (tile.scores, left, right, *sums)))
        else:
            squares = torch.mul(tile.scores, right, out=tile.scratch).mul_(-2 * left[:, None])
            inverse = squares.add_(left.square()[:, None]).add_(right.square()).reciprocal_()
            rows, cols = near.T
            inverse[rows, cols] = 0.0
            sums = inverse.sum(1), inverse.sum(0)
            pair_variances = variances[0][rows] + variances[1][cols]
            ratios = pair_variances / squared_distances(self.means, tile, near)
            self.total += 0.5 * float(ratios.sum())
        both = sum(float(v @ total.double()) for v, total in zip(variances, sums, strict=True))
        self.total += 0.5 * both / longest / longest
        self.pairs += tile.scores.numel()

    def tile_values(self, tile: PairTile) -> Tensor:
        """Return the (rows, cols) value of every pair; `tile.inner` are cosines of the means."""
        left, right = self.norms[tile.rows, None], self.norms[None, tile.cols]
        squares = left.square() + right.square()
        distances = torch.addcmul(squares, tile.inner * left, right, value=-2.0)
        near = distances < NEAR * squares
        if tile.rows == tile.cols:
            near.fill_diagonal_(False)
        if near.any():
            distances[near] = squared_distances(self.means, tile, near.nonzero())
        pair_distances = tile.upper(distances)
        if pair_distances.numel():
            self.closest = min(self.closest, float(pair_distances.min()))
        variances = self.variances[tile.rows, None] + self.variances[None, tile.cols]
        return variances.div_(distances.mul_(2.0))
