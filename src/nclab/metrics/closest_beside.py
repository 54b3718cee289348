"""The closest pairs of rows, bounded by the products of other rows that are swept anyway."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.metrics.closest import SHOWN, ClosestPairs, Screen, exact_tile
from nclab.metrics.pairs import PairTile, ScreenedTile, rounding
from nclab.statistics.nearest import EPS, TINY, UNIT

SINGLY = 64
"""Pairs of a tile in doubt up to which each is taken alone in float64."""
OUTSIDE = 0.1
"""The least part of a unit vector outside B for rows to be compared with it."""
PART = 2048
"""Rows that are taken apart at a time."""


class ClosestBeside:
    r"""A reducer that finds the `closest_pairs` of rows u in tiles of products of unit vectors a.

    With $u_i = c + s v_i$ for the mean c of the rows and the largest norm s of what is left of
    them, any orthonormal columns B, and P the projection onto what is orthogonal to them,

    $$P v_i = \alpha_i P a_i + e_i,\qquad
      \langle v_i,v_j\rangle = \alpha_i\alpha_j\langle a_i,a_j\rangle
      + \langle B^Tv_i,B^Tv_j\rangle - \alpha_i\alpha_j\langle B^Ta_i,B^Ta_j\rangle + r_{ij}$$

    $$|r_{ij}| \le |\alpha_i P a_i||e_j| + |e_i||\alpha_j P a_j| + |e_i||e_j|$$

    so that a product of a bounds that of u. A tile whose bounds leave more than a few pairs in
    doubt has a product of its own, as in `closest_pairs`: the worst case is the price of both.

    Mean unit features are nearly multiples of class means, and e is small, where the norms within
    a class differ little or its features do. B spans their centre and that of the means: of rows
    that are multiples of the means e is 0.
    """

    def __init__(self, rows: Tensor, units: Tensor, centre: Tensor, count: int = SHOWN) -> None:
        """Of (C, d) rows, beside (C, d) units of norm 1 or 0, and a (d,) centre."""
        self.rows, self.found = rows, ClosestPairs(count)
        middle = rows.mean(0)
        pieces = list(zip(rows.split(PART), units.split(PART), strict=True))
        longest = largest = 0.0
        for own, _ in pieces:
            around = own - middle
            longest = max(longest, float(torch.linalg.vector_norm(around, dim=1).max()))
            largest = max(largest, float(torch.linalg.vector_norm(own, dim=1).max()))
        scale = longest or 1.0
        shared = torch.linalg.qr(torch.stack([centre, middle], 1)).Q  # (d, 2)
        terms = [
            _terms((own - middle) / scale, beside, shared, middle / scale) for own, beside in pieces
        ]
        slopes, left, right = (torch.cat(part) for part in zip(*terms, strict=True))
        self.square = scale * scale
        self.base = float(middle.square().sum()) / self.square
        steepest = float(slopes.abs().max())
        size = steepest**2 + max(float(part.square().sum(1).max()) for part in (left, right))
        # Storing and adding up the terms in float32, and the rounding of the float64 behind them.
        self.error = 2.2 * (left.shape[1] + 8) * (UNIT + TINY) * size
        self.error += 64 * rows.shape[1] * EPS * (largest / scale) ** 2 * (1 + steepest) ** 2
        self._slopes, self._left, self._right = slopes.float(), left.float(), right.float()

    def update(self, tile: PairTile) -> None:
        """Take in one tile of products in float64: the own ones are, too."""
        self.found.update(exact_tile(self.rows, tile.rows, tile.cols))

    def screen(self, tile: ScreenedTile) -> None:
        """Take in one tile in float32."""
        rows, cols = tile.rows, tile.cols
        bounds = torch.mul(tile.scores, self._slopes[cols], out=tile.scratch)
        bounds.mul_(self._slopes[rows, None]).addmm_(self._left[rows], self._right[cols].T)
        floor = self.found.floor / self.square - self.base - self.error
        if float(bounds.amax()) <= floor:
            return
        open_pairs = bounds > floor
        if int(open_pairs.count_nonzero()) > SINGLY:
            self._own_products.compare(rows, cols)
            return
        left, right = open_pairs.nonzero(as_tuple=True)
        left, right = left + rows.start, right + cols.start
        self.found.add(left, right, (self.rows[left] * self.rows[right]).sum(1))

    def finish(self, vectors: Tensor) -> None:
        """Nothing is left to do."""

    @cached_property
    def _own_products(self) -> Screen:
        return Screen(self.rows, self.found)


class _Terms(NamedTuple):
    """The numbers of (k,) rows that bound a product: slopes, and factors of what is added to it."""

    slopes: Tensor
    left: Tensor
    right: Tensor


def _terms(v: Tensor, a: Tensor, shared: Tensor, middle: Tensor) -> _Terms:
    r"""Of (k, d) rows v and unit vectors a around the (d, 2) columns B, and c/s.

    <v_i, v_j> + <v_i, c/s> + <v_j, c/s> is at most slope_i slope_j score + <left_i, right_j> for
    a score that is off by `rounding` at most.
    """
    v_shared, a_shared = v @ shared, a @ shared
    v_beside, a_beside = v - v_shared @ shared.T, a - a_shared @ shared.T
    squares = a_beside.square().sum(1)
    slopes = (v_beside * a_beside).sum(1) / squares
    slopes = torch.where(squares > OUTSIDE**2, slopes, 0.0)
    rest = torch.linalg.vector_norm(v_beside - slopes[:, None] * a_beside, dim=1)
    reach = slopes.abs() * squares.sqrt()
    lift, one = v @ middle, torch.ones_like(rest)
    a_shared *= slopes[:, None]
    doubt = rounding(v.shape[1]) * slopes.abs()
    left = [v_shared.T, -a_shared.T, lift, one, reach + rest, -reach, doubt]
    right = [v_shared.T, a_shared.T, one, lift, reach + rest, reach, slopes.abs()]
    return _Terms(slopes, *(torch.vstack(part).T.contiguous() for part in (left, right)))
