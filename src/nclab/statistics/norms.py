"""Norms and directions of rows, correct even where float64 cannot hold the squared entries."""

import math

import torch
from torch import Tensor

SAFE = 2.0**-450, 2.0**450
"""Norms between these bounds are computed from squares without underflow or overflow.
The smallest normal float64, 2^-1022, is negligible against the square of such a norm."""
VANISHES = 1e-290
"""Sums of squares up to this value have lost some or all of their digits."""
FOURTH = 2.0**-200, 2.0**200
"""Bounds like `SAFE` for computations with fourth powers."""


def power_of_two(values: Tensor, safe: tuple[float, float] = SAFE) -> tuple[Tensor, float]:
    """Return the values divided by a power of two, and this power.

    The power brings the largest absolute value near 1. It is 1, and the values stay unchanged, if
    the largest absolute value lies within the bounds `safe`.

    >>> power_of_two(torch.tensor([3e-200, 0.0], dtype=torch.float64))[1] == 2.0**-662
    True
    """
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest == 0 or safe[0] < largest < safe[1]:
        return values, 1.0
    exponent = max(math.frexp(largest)[1], -1073)
    half = exponent // 2  # Two factors, because 2^1073 itself overflows.
    return values * 2.0**-half * 2.0 ** (half - exponent), math.ldexp(1.0, exponent)


def row_norms(rows: Tensor) -> Tensor:
    """Return the (B,) norms of float64 rows of any magnitude.

    >>> row_norms(torch.tensor([[3e-200, 4e-200], [3.0, 4.0]], dtype=torch.float64)).tolist()
    [5e-200, 5.0]
    """
    norms = torch.linalg.vector_norm(rows, dim=1)
    extreme = outside(norms)
    if extreme is None:
        return norms
    extreme_rows = rows[extreme]
    largest = extreme_rows.abs().amax(1)
    scaled = extreme_rows / largest.masked_fill(largest == 0, 1.0)[:, None]
    norms[extreme] = torch.linalg.vector_norm(scaled, dim=1) * largest
    return norms


def outside(norms: Tensor) -> Tensor | None:
    """Return a (B,) mask of the norms outside the bounds `SAFE`, or None if there are none."""
    if not len(norms):
        return None
    smallest, largest = torch.aminmax(norms)
    if smallest > SAFE[0] and largest < SAFE[1]:
        return None
    return (norms <= SAFE[0]) | (norms >= SAFE[1])


def norm(values: Tensor) -> float:
    """Return the Frobenius norm of a tensor with entries of any magnitude.

    >>> norm(torch.tensor([[3e-200], [4e-200]], dtype=torch.float64))
    5e-200
    """
    scaled, unit = power_of_two(values)
    return float(torch.linalg.vector_norm(scaled)) * unit


def unit_rows(rows: Tensor, *, zero: float = math.nan) -> Tensor:
    """Return the rows scaled to norm one; rows of zeros are multiplied by `zero`."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    extreme = outside(norms[:, 0])
    if extreme is not None:
        rows = rows.clone()
        largest = rows[extreme].abs().amax(1, keepdim=True)
        rows[extreme] /= largest.masked_fill(largest == 0, 1.0)
        norms[extreme] = torch.linalg.vector_norm(rows[extreme], dim=1, keepdim=True)
    return rows * norms.reciprocal().masked_fill_(norms == 0, zero)
