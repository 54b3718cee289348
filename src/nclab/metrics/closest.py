"""The closest pairs of rows; for many rows, float32 products with error bounds come first."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.pairs import (
    FEW,
    TILE,
    PairReducer,
    PairTile,
    ScreenedTile,
    above_diagonal,
    reduce_pairs,
    rounding,
    screens,
    tile_slices,
)
from nclab.statistics.nearest import EPS, TINY, UNIT

REPORTED = 10
"""Number of closest pairs that a measurement reports."""
SINGLE_PAIRS = 64
"""Number of undecided pairs of a tile up to which each pair is computed separately in float64."""
SHORTEST = 0.1
"""Smallest norm of the part of a unit vector outside B that is used for comparison."""
PART = 2048
"""Number of rows that are prepared at a time."""


class RowPair(NamedTuple):
    """Two rows and their inner product."""

    row: int
    col: int
    value: float


@dataclass
class ClosestPairs(PairReducer):
    """The pairs with the largest inner products, largest first; ties keep their order."""

    count: int = REPORTED
    pairs: list[RowPair] = field(default_factory=list)

    @property
    def threshold(self) -> float:
        """The inner product that a further pair must exceed."""
        return self.pairs[-1].value if len(self.pairs) == self.count else -torch.inf

    def add(self, rows: Tensor, cols: Tensor, values: Tensor) -> None:
        """Add pairs that were not added before."""
        candidates = (values > self.threshold).nonzero().flatten()
        if len(candidates) > self.count:
            smallest = values[candidates].topk(self.count).values[-1]
            candidates = candidates[values[candidates] >= smallest]
        columns = (tensor[candidates].tolist() for tensor in (rows, cols, values))
        pairs = [*self.pairs, *(RowPair(*pair) for pair in zip(*columns, strict=True))]
        self.pairs = sorted(pairs, key=lambda pair: -pair.value)[: self.count]

    def update(self, tile: PairTile) -> None:
        """Add the pairs of a tile of float64 products to the result."""
        values = tile.upper(tile.inner).flatten()
        if len(values) == 0 or not float(values.max()) > self.threshold:
            return
        positions = torch.arange(len(values), device=values.device)
        if tile.rows == tile.cols:
            positions = above_diagonal(len(tile.inner), values.device)
        width = tile.inner.shape[1]
        rows, cols = positions // width, positions % width
        self.add(rows + tile.rows.start, cols + tile.cols.start, values)


def closest_pairs(rows: Tensor, count: int = REPORTED) -> ClosestPairs:
    r"""Return the pairs of (C, d) float64 rows with the largest inner products.

    Costs half a C x C x d GEMM. For more than `MANY_CLASSES` rows the GEMM is in float32 and uses
    the rows minus their mean: with $u_i = c + v_i$

    $$\langle u_i,u_j\rangle = \langle v_i,v_j\rangle + \langle c,v_i\rangle
      + \langle c,v_j\rangle + |c|^2$$

    so that a common offset costs no digits. Pairs whose score is below the threshold by more than
    the error of a score are skipped; the others are computed in float64.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    >>> [tuple(pair) for pair in closest_pairs(rows, 2).pairs]
    [(1, 2, 0.8), (0, 2, 0.6)]
    """
    closest = ClosestPairs(count)
    if screens(rows):
        PairScores(rows, closest).sweep()
    else:
        reduce_pairs(rows, closest)
    return closest


class PairScores:
    """Float32 scores of the pairs of rows, with a bound on their error."""

    def __init__(self, rows: Tensor, closest: ClosestPairs) -> None:
        self.rows, self.closest = rows, closest
        centre = rows.mean(0)
        self.centred = torch.empty(rows.shape)
        lift = rows.new_empty(len(rows))
        longest = largest = 0.0
        for start in range(0, len(rows), PART):
            part = slice(start, start + PART)
            centred = rows[part] - centre
            lift[part] = centred @ centre
            longest = max(longest, float(torch.linalg.vector_norm(centred, dim=1).max()))
            largest = max(largest, float(torch.linalg.vector_norm(rows[part], dim=1).max()))
            self.centred[part] = centred
        scale = longest or 1.0
        self.centred /= scale
        self.square = scale * scale
        self.lift = (lift / self.square).float()
        self.base = float(centre.square().sum()) / self.square
        # The product, three numbers of the size of a lift and two sums, and rounding in float64.
        largest_lift = float(self.lift.abs().max())
        float64_error = 16 * rows.shape[1] * EPS * (largest / scale) ** 2
        self.error = rounding(rows.shape[1]) + 8 * UNIT * (1 + 2 * largest_lift) + float64_error
        self._scratch = torch.empty(2, TILE * TILE)

    def sweep(self) -> None:
        """Compare all pairs of rows."""
        for rows, cols in tile_slices(len(self.rows)):
            if rows == cols:
                self.closest.update(PairTile.of(self.rows, rows, cols))
            else:
                self.compare(rows, cols)

    def compare(self, rows: slice, cols: slice) -> None:
        """Compare the pairs of one tile off the diagonal."""
        left, right = self.centred[rows], self.centred[cols]
        shape = len(left), len(right)
        product, scores = (buffer[: shape[0] * shape[1]].view(shape) for buffer in self._scratch)
        torch.mm(left, right.T, out=product)
        torch.add(product, self.lift[cols], out=scores)
        best = scores.amax(1).add_(self.lift[rows])
        if float(best.max()) > self._threshold():
            self._recheck(rows, cols, scores, best)

    def _threshold(self) -> float:
        """Return the score up to which a pair is certainly not among the closest."""
        return self.closest.threshold / self.square - self.base - self.error

    def _recheck(self, rows: slice, cols: slice, scores: Tensor, best: Tensor) -> None:
        """Compute in float64 the pairs that may be among the closest."""
        candidates = (best > self._threshold()).nonzero().flatten()
        candidate_scores = scores[candidates] + self.lift[rows][candidates, None]
        index, right = (candidate_scores > self._threshold()).nonzero(as_tuple=True)
        if len(index) > FEW:
            self.closest.update(PairTile.of(self.rows, rows, cols))
            return
        left, right = candidates[index] + rows.start, right + cols.start
        self.closest.add(left, right, (self.rows[left] * self.rows[right]).sum(1))


class BoundedClosestPairs(PairReducer):
    r"""A reducer that finds the `closest_pairs` of rows u from tiles of products of unit vectors a.

    With $u_i = c + s v_i$ for the mean c of the rows and the largest norm s of the centred rows,
    any orthonormal columns B, and P the projection onto their orthogonal complement,

    $$P v_i = \alpha_i P a_i + e_i,\qquad
      \langle v_i,v_j\rangle = \alpha_i\alpha_j\langle a_i,a_j\rangle
      + \langle B^Tv_i,B^Tv_j\rangle - \alpha_i\alpha_j\langle B^Ta_i,B^Ta_j\rangle + r_{ij}$$

    $$|r_{ij}| \le |\alpha_i P a_i||e_j| + |e_i||\alpha_j P a_j| + |e_i||e_j|$$

    so that a product of a bounds the product of u. If the bounds of a tile leave more than a few
    pairs undecided, the tile is compared as in `closest_pairs`. In the worst case this costs two
    products for each tile.

    Mean unit features are nearly multiples of class means, and e is small, if norms or features
    differ little within a class. B spans the centre of the rows and that of the means: e is 0 for
    rows that are multiples of the means.
    """

    def __init__(self, rows: Tensor, units: Tensor, centre: Tensor, count: int = REPORTED) -> None:
        """Compare (C, d) rows, given (C, d) units of norm 1 or 0, and the (d,) centre of means."""
        self.rows, self.closest = rows, ClosestPairs(count)
        middle = rows.mean(0)
        parts = list(zip(rows.split(PART), units.split(PART), strict=True))
        longest = largest = 0.0
        for part, _ in parts:
            centred = part - middle
            longest = max(longest, float(torch.linalg.vector_norm(centred, dim=1).max()))
            largest = max(largest, float(torch.linalg.vector_norm(part, dim=1).max()))
        scale = longest or 1.0
        basis = torch.linalg.qr(torch.stack([centre, middle], 1)).Q  # (d, 2) B
        terms = [
            _bound_terms((part - middle) / scale, part_units, basis, middle / scale)
            for part, part_units in parts
        ]
        slopes, left, right = (torch.cat(tensors) for tensors in zip(*terms, strict=True))
        self.square = scale * scale
        self.base = float(middle.square().sum()) / self.square
        steepest = float(slopes.abs().max())
        size = steepest**2 + max(float(factor.square().sum(1).max()) for factor in (left, right))
        # Storing and summing the terms in float32, and the rounding of their float64 inputs.
        self.error = 2.2 * (left.shape[1] + 8) * (UNIT + TINY) * size
        self.error += 64 * rows.shape[1] * EPS * (largest / scale) ** 2 * (1 + steepest) ** 2
        self._slopes, self._left, self._right = slopes.float(), left.float(), right.float()

    def update(self, tile: PairTile) -> None:
        """Add a tile of float64 products; the products of the rows are also computed in float64."""
        self.closest.update(PairTile.of(self.rows, tile.rows, tile.cols))

    def screen(self, tile: ScreenedTile) -> None:
        """Add the pairs of a tile of float32 products to the result."""
        rows, cols = tile.rows, tile.cols
        bounds = torch.mul(tile.scores, self._slopes[cols], out=tile.scratch)
        bounds.mul_(self._slopes[rows, None]).addmm_(self._left[rows], self._right[cols].T)
        threshold = self.closest.threshold / self.square - self.base - self.error
        if float(bounds.amax()) <= threshold:
            return
        candidates = bounds > threshold
        if int(candidates.count_nonzero()) > SINGLE_PAIRS:
            self._row_products.compare(rows, cols)
            return
        left, right = candidates.nonzero(as_tuple=True)
        left, right = left + rows.start, right + cols.start
        self.closest.add(left, right, (self.rows[left] * self.rows[right]).sum(1))

    @cached_property
    def _row_products(self) -> PairScores:
        return PairScores(self.rows, self.closest)


def _bound_terms(v: Tensor, a: Tensor, basis: Tensor, middle: Tensor) -> tuple[Tensor, ...]:
    r"""Return slope, left, right of (k, d) rows v and unit vectors a, for (d, 2) columns B and c/s.

    <v_i, v_j> + <v_i, c/s> + <v_j, c/s> is at most slope_i slope_j score + <left_i, right_j> for
    a score with an error of at most `rounding`.
    """
    v_basis, a_basis = v @ basis, a @ basis
    v_outside, a_outside = v - v_basis @ basis.T, a - a_basis @ basis.T
    squares = a_outside.square().sum(1)
    slopes = (v_outside * a_outside).sum(1) / squares
    slopes = torch.where(squares > SHORTEST**2, slopes, 0.0)
    remainder = torch.linalg.vector_norm(v_outside - slopes[:, None] * a_outside, dim=1)  # |e_i|
    reach = slopes.abs() * squares.sqrt()
    lift, ones = v @ middle, torch.ones_like(remainder)
    a_basis *= slopes[:, None]
    error = rounding(v.shape[1]) * slopes.abs()
    left = [v_basis.T, -a_basis.T, lift, ones, reach + remainder, -reach, error]
    right = [v_basis.T, a_basis.T, ones, lift, reach + remainder, reach, slopes.abs()]
    return slopes, *(torch.vstack(factor).T.contiguous() for factor in (left, right))
