"""sure_radii: how near to its class mean a row must be for nothing else to be nearer."""

import torch
from torch import Tensor

from nclab.statistics.nearest import EPS, SCREENED, TINY, UNIT, Centres

ENOUGH = 8
"""Rows a class from which on the products of all pairs of classes are worth their price."""
BLOCK = 512
"""Classes that are compared with all later ones at a time."""
MARGIN, ANGLE = 1e-6, 1e-4
"""Taken off distances and, in radians, off angles; beside them the rounding of float64 is none."""


def sure_radii(centres: Centres, rows: int) -> Tensor:
    r"""(C,) rows within this distance of their class mean are nearest to its mean and direction.

    Half the way to the nearest other mean, by the triangle inequality. For directions: with
    |h - m| < |m| the angle of h and m is at most asin(|h - m| / |m|), and h is nearest to u_c if
    its angle with it is less than half of that between u_c and the nearest other direction:

    $$\arcsin\frac{|h-m|}{|m|} + \angle(m, u_c) < \tfrac12\min_j\angle(u_c, u_j)$$

    Inner products are taken in float32 and moved to the safe side by a bound on their error.
    0 says nothing, and is all that is said where looking is not worth its price for so many rows.

    Costs a float32 GEMM C x d x C, as half of two.
    """
    size, dim = centres.means.shape
    if not centres.may_screen() or rows < ENOUGH * size or rows * dim * size < SCREENED:
        return centres.means.new_zeros(size)
    # d products and their sums, storing both factors and the offsets, two more sums of size 2.
    error = 1.1 * (dim + 16) * UNIT + dim * TINY
    scaled = centres.centred_means / centres.longest
    close = _largest_beside(scaled, 0.5 * scaled.square().sum(1)) + error  # >= -distance^2 / 2
    half_way = 0.5 * centres.longest * (-2 * close).clamp_min_(0.0).sqrt_()
    norms = torch.linalg.vector_norm(centres.means, dim=1)
    by_mean = (1 - MARGIN) * half_way - 64 * EPS * norms.max()
    cosines = _largest_beside(centres.directions, torch.zeros_like(norms)) + error
    gaps = centres.directions - torch.nn.functional.normalize(centres.means, dim=1)
    tilt = 2 * (0.5 * torch.linalg.vector_norm(gaps, dim=1)).clamp_max_(1.0).asin_()
    room = (0.5 * cosines.clamp_(-1.0, 1.0).acos_() - tilt - ANGLE).clamp_min_(0.0)
    return torch.minimum(by_mean, norms * room.sin_()).clamp_min_(0.0)


def _largest_beside(rows: Tensor, offsets: Tensor) -> Tensor:
    """(C,) the largest <r_i, r_j> - o_i - o_j of each i over all other j, from float32."""
    rows, offsets = rows.float(), offsets.float()
    largest = torch.full_like(offsets, -torch.inf)
    for start in range(0, len(rows), BLOCK):
        own = slice(start, start + BLOCK)
        pairs = torch.addmm(-offsets[start:], rows[own], rows[start:].T)
        pairs.sub_(offsets[own, None]).fill_diagonal_(-torch.inf)
        largest[own] = torch.maximum(largest[own], pairs.amax(1))
        largest[start:] = torch.maximum(largest[start:], pairs.amax(0))
    return largest.double()
