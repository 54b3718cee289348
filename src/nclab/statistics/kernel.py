"""The vector work on rows, compiled by numba (the extra `fast`): each row is read once.

What torch does in six passes over a block happens while a row is in the nearest cache. Sums may be
reordered, so results agree with those of torch to rounding, not to the bit.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
Array = Any


def _compiled(function: Function) -> Function:
    # nan and inf keep their meaning.
    freedoms = {"reassoc", "contract", "nsz"}
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath=freedoms)(function))


@_compiled
def add_rows(
    rows: Array,
    classes: Array,
    pivots: Array,
    residual_sum: Array,
    residual_square: Array,
    unit_sum: Array,
    zeros: Array,
    residual: Array,
) -> None:
    """Add (B, d) rows to the sums of `ClassMoments`; writes the residuals in float64."""
    for i in range(rows.shape[0]):
        c = classes[i]
        square, norm = 0.0, 0.0
        for k in range(rows.shape[1]):
            x = np.float64(rows[i, k])
            r = x - pivots[c, k]
            residual[i, k] = r
            residual_sum[c, k] += r
            square += r * r
            norm += x * x
        residual_square[c] += square
        if norm == 0.0:
            zeros[c] += 1
        else:
            scale = 1.0 / np.sqrt(norm)
            for k in range(rows.shape[1]):
                unit_sum[c, k] += rows[i, k] * scale


@_compiled
def look_at_rows(
    rows: Array,
    own: Array,
    means: Array,
    centre: Array,
    unit_sum: Array,
    centred: Array,
    spread: Array,
    reach: Array,
    norm: Array,
    along: Array,
) -> None:
    """What a second look needs of (B, d) rows h with class means m and the centre g.

    Adds (h - g)/|h - g| to `unit_sum`; writes h - g in float32, |h - m|, |h - g|, |h| and the
    inner product of h - g with g.
    """
    for i in range(rows.shape[0]):
        c = own[i]
        to_mean, to_centre, to_zero, inner = 0.0, 0.0, 0.0, 0.0
        for k in range(rows.shape[1]):
            x = np.float64(rows[i, k])
            r = x - means[c, k]
            z = x - centre[k]
            centred[i, k] = z
            to_mean += r * r
            to_centre += z * z
            to_zero += x * x
            inner += z * centre[k]
        spread[i] = np.sqrt(to_mean)
        reach[i] = np.sqrt(to_centre)
        norm[i] = np.sqrt(to_zero)
        along[i] = inner
        if to_centre > 0.0:
            scale = 1.0 / reach[i]
            for k in range(rows.shape[1]):
                unit_sum[c, k] += (rows[i, k] - centre[k]) * scale
