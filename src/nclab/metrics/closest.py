"""The closest pairs of rows: by float64 products, of many rows by float32 ones and a proof."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.pairs import (
    FEW,
    TILE,
    PairTile,
    above_diagonal,
    reduce_pairs,
    rounding,
    screens,
    tile_places,
)
from nclab.statistics.nearest import EPS, UNIT

SHOWN = 10
"""So many pairs a measurement names."""


class RowPair(NamedTuple):
    """Two rows and their inner product."""

    row: int
    col: int
    value: float


@dataclass
class ClosestPairs:
    """The pairs with the largest inner products, largest first; of equal ones the first seen."""

    count: int = SHOWN
    pairs: list[RowPair] = field(default_factory=list)

    @property
    def floor(self) -> float:
        """A pair with no more than this is not among them."""
        return self.pairs[-1].value if len(self.pairs) == self.count else -torch.inf

    def add(self, rows: Tensor, cols: Tensor, values: Tensor) -> None:
        """Take in some pairs that were not seen before."""
        beyond = (values > self.floor).nonzero().flatten()
        if len(beyond) > self.count:
            least = values[beyond].topk(self.count).values[-1]
            beyond = beyond[values[beyond] >= least]
        found = zip(*(part[beyond].tolist() for part in (rows, cols, values)), strict=True)
        together = [*self.pairs, *(RowPair(*one) for one in found)]
        self.pairs = sorted(together, key=lambda pair: -pair.value)[: self.count]

    def update(self, tile: PairTile) -> None:
        """Take in one tile."""
        values = tile.upper(tile.inner).flatten()
        if len(values) == 0 or not float(values.max()) > self.floor:
            return
        places = torch.arange(len(values), device=values.device)
        if tile.rows == tile.cols:
            places = above_diagonal(len(tile.inner), values.device)
        width = tile.inner.shape[1]
        self.add(places // width + tile.rows.start, places % width + tile.cols.start, values)

    def screen(self, tile: object) -> None:
        """Not by itself: see `closest_pairs`."""
        raise NotImplementedError

    def finish(self, vectors: Tensor) -> None:
        """Nothing is left to do."""


def closest_pairs(rows: Tensor, count: int = SHOWN) -> ClosestPairs:
    r"""The pairs of (C, d) float64 rows with the largest inner products.

    Costs half a C x C x d GEMM. Of more than `MANY` rows it is in float32, and of the rows around
    their mean: with $u_i = c + v_i$

    $$\langle u_i,u_j\rangle = \langle v_i,v_j\rangle + \langle c,v_i\rangle
      + \langle c,v_j\rangle + |c|^2$$

    so that a common offset costs no digits. A pair whose score is below the last known one by more
    than the error of a score is none of the closest; the others are taken in float64.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    >>> [tuple(pair) for pair in closest_pairs(rows, 2).pairs]
    [(1, 2, 0.8), (0, 2, 0.6)]
    """
    found = ClosestPairs(count)
    if screens(rows):
        Screen(rows, found).sweep()
    else:
        reduce_pairs(rows, found)
    return found


class Screen:
    """Float32 scores of the pairs, and how far they may be off."""

    def __init__(self, rows: Tensor, found: ClosestPairs) -> None:
        self.rows, self.found = rows, found
        centre = rows.mean(0)
        self.short = torch.empty(rows.shape)
        lift = rows.new_empty(len(rows))
        longest = largest = 0.0
        for part in torch.arange(len(rows)).split(2048):
            at = slice(int(part[0]), int(part[-1]) + 1)
            around = rows[at] - centre
            lift[at] = around @ centre
            longest = max(longest, float(torch.linalg.vector_norm(around, dim=1).max()))
            largest = max(largest, float(torch.linalg.vector_norm(rows[at], dim=1).max()))
            self.short[at] = around
        scale = longest or 1.0
        self.short /= scale
        self.square = scale * scale
        self.lift = (lift / self.square).float()
        self.base = float(centre.square().sum()) / self.square
        # The product, three numbers of the size of a lift and two sums, and rounding in float64.
        lifted = float(self.lift.abs().max())
        own = 16 * rows.shape[1] * EPS * (largest / scale) ** 2
        self.error = rounding(rows.shape[1]) + 8 * UNIT * (1 + 2 * lifted) + own
        self._room = torch.empty(2, TILE * TILE)

    def sweep(self) -> None:
        """Go through all pairs."""
        for rows, cols in tile_places(len(self.rows)):
            if rows == cols:
                self.found.update(exact_tile(self.rows, rows, cols))
            else:
                self.compare(rows, cols)

    def compare(self, rows: slice, cols: slice) -> None:
        """Take in one tile off the diagonal."""
        left, right = self.short[rows], self.short[cols]
        shape = len(left), len(right)
        product, scores = (part[: shape[0] * shape[1]].view(shape) for part in self._room)
        torch.mm(left, right.T, out=product)
        torch.add(product, self.lift[cols], out=scores)
        best = scores.amax(1).add_(self.lift[rows])
        if float(best.max()) > self._floor():
            self._recheck(rows, cols, scores, best)

    def _floor(self) -> float:
        """Scores up to this are none of the closest."""
        return self.found.floor / self.square - self.base - self.error

    def _recheck(self, rows: slice, cols: slice, scores: Tensor, best: Tensor) -> None:
        """Take in float64 what may be among the closest."""
        open_rows = (best > self._floor()).nonzero().flatten()
        doubtful = scores[open_rows] + self.lift[rows][open_rows, None]
        at, right = (doubtful > self._floor()).nonzero(as_tuple=True)
        if len(at) > FEW:
            self.found.update(exact_tile(self.rows, rows, cols))
            return
        left, right = open_rows[at] + rows.start, right + cols.start
        self.found.add(left, right, (self.rows[left] * self.rows[right]).sum(1))


def exact_tile(vectors: Tensor, rows: slice, cols: slice) -> PairTile:
    """One tile of the inner products of (C, d) float64 rows."""
    return PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
