"""Per-row loops compiled by numba (optional package, in the extra `fast`).

Each loop reads a row once, while torch needs up to six passes over a block. Sums may be reordered,
so results agree with those of torch up to rounding, not bit for bit.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from nclab.statistics.blocks import SAFE

SMALLEST_SQUARE = SAFE[0] ** 2
Function = TypeVar("Function", bound=Callable[..., Any])
Array = Any


def _compiled(function: Function) -> Function:
    # Infinity keeps its meaning; no result that is used depends on a nan.
    flags = {"reassoc", "contract", "nsz", "nnan"}
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath=flags)(function))


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
    """Add (B, d) rows to the sums of `ClassMoments`, and write row - pivot into `residual`."""
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
        scales[i] = 1.0 / np.sqrt(norm) if norm > SMALLEST_SQUARE else 0.0
        if norm <= SMALLEST_SQUARE:  # Zeros, or numbers whose squares vanish.
            largest, norm = 0.0, 0.0
            for k in range(rows.shape[1]):
                largest = max(largest, abs(np.float64(rows[i, k])))
            zeros[c] += largest == 0.0
            for k in range(rows.shape[1] if largest > 0.0 else 0):
                norm += (rows[i, k] / largest) ** 2
            for k in range(rows.shape[1] if largest > 0.0 else 0):
                unit_sum[c, k] += rows[i, k] / largest / np.sqrt(norm)
    # A separate loop, because the compiler would otherwise divide every number by the norm.
    for i in range(rows.shape[0]):
        c, scale = classes[i], scales[i]
        for k in range(rows.shape[1]):
            unit_sum[c, k] += rows[i, k] * scale


@_compiled
def add_second_pass_rows(
    rows: Array,
    labels: Array,
    means: Array,
    centre: Array,
    unit_sum: Array,
    spread: Array,
    reach: Array,
    least: float,
) -> None:
    """Add the directions of (B, d) rows h from the centre g, and write the rows' distances.

    With class means m, (h - g)/|h - g| is added to `unit_sum` if |h - g| exceeds
    `least`. `spread` becomes |h - m| and `reach` becomes |h - g|.
    """
    scales = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        c = labels[i]
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
        c, scale = labels[i], scales[i]
        for k in range(rows.shape[1]):
            unit_sum[c, k] += (rows[i, k] - centre[k]) * scale


@_compiled
def rank_logits(
    logits: Array, classes: Array, correct: Array, margins: Array, gaps: Array, predicted: Array
) -> None:
    """Write z_y - z_m and the predicted class of (B, C) logits z with labels y.

    z_m is the largest logit of the other classes. The first of several largest logits is the
    prediction. Also counts correct predictions and updates the smallest margin of each class.
    Overwrites the logits with z - z_m, and with -inf at the label.
    """
    size = logits.shape[1]
    for i in range(logits.shape[0]):
        z, c = logits[i], classes[i]
        label_logit = z[c]
        z[c] = -np.inf
        best, predicted_class = -np.inf, 0
        for start in range(0, size, 64):  # Only the block with the maximum is searched for it.
            top = -np.inf
            for j in range(start, min(start + 64, size)):
                top = max(top, z[j])
            if top > best:
                best, predicted_class = top, start
        while z[predicted_class] != best:
            predicted_class += 1
        gap = label_logit - best
        gaps[i] = gap
        margins[c] = min(margins[c], gap)
        if label_logit > best or (label_logit == best and c < predicted_class):
            predicted_class = c
            correct[c] += 1
        predicted[i] = predicted_class
        for j in range(size):
            z[j] -= best


@_compiled
def add_losses_and_residuals(
    powers: Array, classes: Array, gaps: Array, loss_sums: Array, residual_sums: Array
) -> None:
    """Add losses as `add_losses` does, and the residuals q - e_y to row y of `residual_sums`.

    q are the probabilities of a sample, and e_y is the one-hot vector of its label y.
    """
    for i in range(powers.shape[0]):
        c, total = classes[i], 0.0
        for j in range(powers.shape[1]):
            total += powers[i, j]
        log_odds = np.log(total) - gaps[i]
        small = np.exp(-abs(log_odds))
        loss_sums[c] += max(log_odds, 0.0) + np.log1p(small)
        wrong = (1.0 if log_odds > 0.0 else small) / (1.0 + small)  # 1 - q of the label
        scale = wrong / total
        for j in range(powers.shape[1]):
            residual_sums[c, j] += powers[i, j] * scale
        residual_sums[c, c] -= wrong


@_compiled
def add_losses(powers: Array, classes: Array, gaps: Array, loss_sums: Array) -> None:
    """Add the loss log(1 + sum_j exp(z_j - z_y)) of each sample to the summed loss of its class.

    `powers` are exp(z - z_m) and `gaps` are z_y - z_m, from the results of `rank_logits`.
    """
    for i in range(powers.shape[0]):
        total = 0.0
        for j in range(powers.shape[1]):
            total += powers[i, j]
        log_odds = np.log(total) - gaps[i]
        loss_sums[classes[i]] += max(log_odds, 0.0) + np.log1p(np.exp(-abs(log_odds)))
