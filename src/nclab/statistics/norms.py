"""Norms and directions of rows whose squares float64 cannot hold."""

import math

import torch
from torch import Tensor

SAFE = 2.0**-450, 2.0**450
"""Norms in between are those of their squares; there 2^-1022, the least number with all its digits,
is nothing beside the square of any of them."""
VANISHES = 1e-290
"""Sums of squares up to this have lost digits, or all of them."""
FOURTH = 2.0**-200, 2.0**200
"""The same for fourth powers."""


def power_of_two(values: Tensor, safe: tuple[float, float] = SAFE) -> tuple[Tensor, float]:
    """The same numbers over a power of two that brings the largest near 1, and this power.

    Only where the largest is outside of what is safe: others stay as they are, over 1.

    >>> power_of_two(torch.tensor([3e-200, 0.0], dtype=torch.float64))[1] == 2.0**-662
    True
    """
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest == 0 or safe[0] < largest < safe[1]:
        return values, 1.0
    exponent = max(math.frexp(largest)[1], -1073)
    half = exponent // 2  # 2^1073 itself is no float64
    return values * 2.0**-half * 2.0 ** (half - exponent), math.ldexp(1.0, exponent)


def row_norms(rows: Tensor) -> Tensor:
    """(B,) norms of float64 rows, whatever their size.

    >>> row_norms(torch.tensor([[3e-200, 4e-200], [3.0, 4.0]], dtype=torch.float64)).tolist()
    [5e-200, 5.0]
    """
    norms = torch.linalg.vector_norm(rows, dim=1)
    extreme = outside(norms)
    if extreme is None:
        return norms
    part = rows[extreme]
    largest = part.abs().amax(1)
    scaled = part / largest.masked_fill(largest == 0, 1.0)[:, None]
    norms[extreme] = torch.linalg.vector_norm(scaled, dim=1) * largest
    return norms


def outside(norms: Tensor) -> Tensor | None:
    """(B,) which norms are not those of their squares; None, at little cost, if all are."""
    if not len(norms):
        return None
    least, most = torch.aminmax(norms)
    if least > SAFE[0] and most < SAFE[1]:
        return None
    return (norms <= SAFE[0]) | (norms >= SAFE[1])


def norm(values: Tensor) -> float:
    """Of all numbers of a tensor together, whatever their size.

    >>> norm(torch.tensor([[3e-200], [4e-200]], dtype=torch.float64))
    5e-200
    """
    scaled, unit = power_of_two(values)
    return float(torch.linalg.vector_norm(scaled)) * unit


def unit_rows(rows: Tensor, *, zero: float = math.nan) -> Tensor:
    """Rows scaled to norm one; rows of zeros are multiplied by `zero`."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    extreme = outside(norms[:, 0])
    if extreme is not None:
        rows = rows.clone()
        largest = rows[extreme].abs().amax(1, keepdim=True)
        rows[extreme] /= largest.masked_fill(largest == 0, 1.0)
        norms[extreme] = torch.linalg.vector_norm(rows[extreme], dim=1, keepdim=True)
    return rows * norms.reciprocal().masked_fill_(norms == 0, zero)
