"""The vector work on rows, compiled by numba (the extra `fast`): each row is read once.

What torch does in six passes over a block happens while a row is in the nearest cache. Sums may be
reordered, so results agree with those of torch to rounding, not to the bit.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from nclab.statistics.norms import SAFE

VANISHES = SAFE[0] ** 2
Function = TypeVar("Function", bound=Callable[..., Any])
Array = Any


def _compiled(function: Function) -> Function:
    # Infinity keeps its meaning; nothing here meets a nan whose result would be used.
    freedoms = {"reassoc", "contract", "nsz", "nnan"}
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
    scales = np.empty(rows.shape[0])
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
        scales[i] = 1.0 / np.sqrt(norm) if norm > VANISHES else 0.0
        if norm <= VANISHES:  # Zeros, or numbers whose squares are none.
            largest, norm = 0.0, 0.0
            for k in range(rows.shape[1]):
                largest = max(largest, abs(np.float64(rows[i, k])))
            zeros[c] += largest == 0.0
            for k in range(rows.shape[1] if largest > 0.0 else 0):
                norm += (rows[i, k] / largest) ** 2
            for k in range(rows.shape[1] if largest > 0.0 else 0):
                unit_sum[c, k] += rows[i, k] / largest / np.sqrt(norm)
    # In a loop of its own the scale stays a factor, where the compiler would divide every number.
    for i in range(rows.shape[0]):
        c, scale = classes[i], scales[i]
        for k in range(rows.shape[1]):
            unit_sum[c, k] += rows[i, k] * scale


@_compiled
def look_at_rows(
    rows: Array,
    own: Array,
    means: Array,
    centre: Array,
    unit_sum: Array,
    spread: Array,
    reach: Array,
    least: float,
) -> None:
    """What a second pass needs of (B, d) rows h with class means m and the centre g.

    Adds (h - g)/|h - g| to `unit_sum` where |h - g| is above `least`; writes |h - m| and |h - g|.
    """
    scales = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        c = own[i]
        to_mean, to_centre = 0.0, 0.0
        for k in range(rows.shape[1]):
            x = np.float64(rows[i, k])
            r = x - means[c, k]
            z = x - centre[k]
            to_mean += r * r
            to_centre += z * z
        spread[i] = np.sqrt(to_mean)
        reach[i] = np.sqrt(to_centre)
        scales[i] = 1.0 / reach[i] if reach[i] > least else 0.0
    for i in range(rows.shape[0]):
        c, scale = own[i], scales[i]
        for k in range(rows.shape[1]):
            unit_sum[c, k] += (rows[i, k] - centre[k]) * scale


@_compiled
def centre_rows(rows: Array, centre: Array, centred: Array, norm: Array, along: Array) -> None:
    """Of (B, d) rows h write h - g in float32, |h| and the inner product of h - g with g."""
    for i in range(rows.shape[0]):
        to_zero, inner = 0.0, 0.0
        for k in range(rows.shape[1]):
            x = np.float64(rows[i, k])
            z = x - centre[k]
            centred[i, k] = z
            to_zero += x * x
            inner += z * centre[k]
        norm[i] = np.sqrt(to_zero)
        along[i] = inner


@_compiled
def lead_of_own(
    scores: Array,
    own: Array,
    tail: Array,
    along: Array,
    reach: Array,
    lead: Array,
    lead_by_angle: Array,
) -> None:
    """By how much the own class leads in (B, C) scores s, and in bounds made of them.

    The bound of class j is q s + k + p along + spare reach, with q, k, p and spare the rows of
    (4, C) `tail`; that of the own class is taken from below, - spare reach.
    """
    q, k, p, spare = tail[0], tail[1], tail[2], tail[3]
    for i in range(scores.shape[0]):
        c, r, h = own[i], along[i], reach[i]
        best = upper = np.float32(-np.inf)
        for first, last in ((0, c), (c + 1, scores.shape[1])):
            for j in range(first, last):
                s = scores[i, j]
                best = max(best, s)
                upper = max(upper, s * q[j] + k[j] + (r * p[j] + h * spare[j]))
        lower = scores[i, c] * q[c] + k[c] + (r * p[c] - h * spare[c])
        lead[i] = scores[i, c] - best
        lead_by_angle[i] = lower - upper


@_compiled
def absolute_sums(scores: Array, ideal: Any, sums: Array) -> None:
    """Of (B, C) float32 scores write the sum of |score - ideal| over every row."""
    for i in range(scores.shape[0]):
        total = np.float32(0.0)
        for j in range(scores.shape[1]):
            total += abs(scores[i, j] - ideal)
        sums[i] = total


@_compiled
def inverse_squares(
    cosines: Array, left: Array, right: Array, by_row: Array, by_col: Array
) -> None:
    """Add up 1 / |a - b|^2 by row and by column, of float32 cosines and norms of a and b."""
    for i in range(cosines.shape[0]):
        norm = left[i]
        square, total = norm * norm, np.float32(0.0)
        for j in range(cosines.shape[1]):
            other = right[j]
            inverse = np.float32(1.0) / (
                square + other * other - np.float32(2.0) * norm * other * cosines[i, j]
            )
            total += inverse
            by_col[j] += inverse
        by_row[i] = total


@_compiled
def rank_logits(
    logits: Array, classes: Array, correct: Array, margins: Array, gaps: Array, predicted: Array
) -> None:
    """Of (B, C) logits z: z_y minus the largest other one z_m, and the first class of the largest.

    Adds to the (C,) correct ones and lowers the margins. Overwrites the logits with z - z_m, and
    with -inf at the label.
    """
    size = logits.shape[1]
    for i in range(logits.shape[0]):
        z, c = logits[i], classes[i]
        own = z[c]
        z[c] = -np.inf
        best, place = -np.inf, 0
        for start in range(0, size, 64):  # The largest is looked for only where it must be.
            top = -np.inf
            for j in range(start, min(start + 64, size)):
                top = max(top, z[j])
            if top > best:
                best, place = top, start
        while z[place] != best:
            place += 1
        gap = own - best
        gaps[i] = gap
        margins[c] = min(margins[c], gap)
        if own > best or (own == best and c < place):
            place = c
            correct[c] += 1
        predicted[i] = place
        for j in range(size):
            z[j] -= best


@_compiled
def add_losses_and_residuals(
    powers: Array, classes: Array, gaps: Array, loss_sums: Array, residual_sums: Array
) -> None:
    """`add_losses`, and the probabilities less the class itself to the row of the class."""
    for i in range(powers.shape[0]):
        c, total = classes[i], 0.0
        for j in range(powers.shape[1]):
            total += powers[i, j]
        rest = np.log(total) - gaps[i]
        small = np.exp(-abs(rest))
        loss_sums[c] += max(rest, 0.0) + np.log1p(small)
        wrong = (1.0 if rest > 0.0 else small) / (1.0 + small)  # 1 - q of the label
        scale = wrong / total
        for j in range(powers.shape[1]):
            residual_sums[c, j] += powers[i, j] * scale
        residual_sums[c, c] -= wrong


@_compiled
def add_losses(powers: Array, classes: Array, gaps: Array, loss_sums: Array) -> None:
    """Add log(1 + sum_j exp(z_j - z_y)) by class, of exp(z - z_m) and z_y - z_m."""
    for i in range(powers.shape[0]):
        total = 0.0
        for j in range(powers.shape[1]):
            total += powers[i, j]
        rest = np.log(total) - gaps[i]
        loss_sums[classes[i]] += max(rest, 0.0) + np.log1p(np.exp(-abs(rest)))
