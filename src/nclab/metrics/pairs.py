"""Sweeps over all pairs of classes in tiles, so that no C x C array is ever held."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from nclab.progress import track

TILE = 512
"""Classes on the side of a tile: 2 MiB of float64."""
SMALL_TILE = 256
"""The same where all pairs are only a few tiles, so that the diagonal ones waste less."""


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
        return values.flatten()[_above_diagonal(len(values), values.device)]


@lru_cache(maxsize=4)
def _above_diagonal(size: int, device: torch.device) -> Tensor:
    """Flat positions of the entries above the diagonal of a size x size tile."""
    rows, cols = torch.triu_indices(size, size, offset=1, device=device)
    return rows * size + cols


class PairReducer(Protocol):
    """Takes the tiles one by one and ends with its answer."""

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""


def reduce_pairs(vectors: Tensor, *reducers: PairReducer) -> None:
    """Show every pair of rows once to each reducer.

    Costs half a C x C x d GEMM however many reducers look on; memory one tile.
    """
    side = TILE if len(vectors) > 4 * TILE else min(TILE, SMALL_TILE)
    edges = range(0, len(vectors), side)
    sides = [slice(edge, min(edge + side, len(vectors))) for edge in edges]
    places = [(rows, cols) for number, rows in enumerate(sides) for cols in sides[number:]]
    for rows, cols in track(places, "pairs of classes"):
        tile = PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
        for reducer in reducers:
            reducer.update(tile)


@dataclass
class LargestPair:
    """The pair with the largest inner product."""

    value: float = -torch.inf
    pair: tuple[int, int] = (0, 1)

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        pairs = tile.upper(tile.inner).flatten()
        if len(pairs) == 0:
            return
        largest = float(pairs.max())
        if largest > self.value:
            place = int(pairs.argmax())
            if tile.rows == tile.cols:
                place = int(_above_diagonal(len(tile.inner), pairs.device)[place])
            row, col = divmod(place, tile.inner.shape[1])
            self.value = largest
            self.pair = (tile.rows.start + row, tile.cols.start + col)


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

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        squares = 2 - 2 * tile.inner
        near = squares < NEAR
        for part in near.nonzero().split(4096):
            left = self.units[part[:, 0] + tile.rows.start]
            gaps = left - self.units[part[:, 1] + tile.cols.start]
            squares[part[:, 0], part[:, 1]] = gaps.square().sum(1)
        self.deviation.update(PairTile(tile.rows, tile.cols, -0.5 * squares.log()))


NEAR = 1e-4
"""Squared distances below this share of the squared norms are taken from differences."""


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

    @property
    def mean(self) -> float:
        """The average over the pairs."""
        return self.total / self.pairs

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        ratio = tile.upper(self.tile_values(tile))
        self.total += float(ratio.sum())
        self.pairs += ratio.numel()

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
        variances = self.variances[tile.rows, None] + self.variances[None, tile.cols]
        return variances.div_(distances.mul_(2.0))

    def _exact_distances(self, places: Tensor, tile: PairTile) -> Tensor:
        found = []
        for part in places.split(4096):
            left = self.means[part[:, 0] + tile.rows.start]
            found.append((left - self.means[part[:, 1] + tile.cols.start]).square().sum(1))
        return torch.cat(found)
