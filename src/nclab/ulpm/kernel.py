"""Descent for small problems, compiled by numba (the extra `fast`).

Features are stored transposed, (d, CN), so that every inner loop runs over samples and compiles to
vector instructions. Loops are written explicitly, because numba needs seconds to compile array
expressions.
"""

import importlib.util
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from nclab.ulpm.problem import TINY_LOG, Array

Function = TypeVar("Function", bound=Callable[..., Any])

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
LARGEST_EXPONENT = 708.0
FAST = ("reassoc", "contract", "nsz")
"""Compiler flags: sums may be reordered, but inf and nan stay visible, to detect divergence."""


def _compiled(*flags: str) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function with numba; without numba it does nothing."""
    if importlib.util.find_spec("numba") is None:
        return lambda function: function
    import numba

    return cast(Callable[[Function], Function], numba.njit(cache=True, fastmath={*flags}))


@_compiled("contract")
def exponentials(x: Array, bits: Any, scale: Array) -> None:
    """Replace x by exp(x), accurate to one unit in the last place; |x| is limited to 708.

    e^x = 2^n e^r with |r| <= log(2)/2. The bits of n are written into the exponent of a float:
    `bits` and `scale` share their memory. A loop over math.exp is slower, because it does not
    compile to vector code.

    >>> x, bits = np.array([0.0, 1.0]), np.empty(2, dtype=np.int64)
    >>> exponentials(x, bits, bits.view(np.float64))
    >>> x.round(12).tolist()
    [1.0, 2.718281828459]
    """
    for i in range(x.shape[0]):
        y = min(max(x[i], -LARGEST_EXPONENT), LARGEST_EXPONENT)
        n = math.floor(y * LOG2_E + 0.5)
        r = (y - n * LN2_HIGH) - n * LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        x[i] = p * r + 1.0
        bits[i] = (np.int64(n) + 1023) << 52
    for i in range(x.shape[0]):
        x[i] *= scale[i]


@_compiled(*FAST)
def _softmax_weights(logits: Array, top: Array, sums: Array, bits: Any, scale: Array) -> None:
    """Replace the logits z (C, CN) by e^{z_j - z_y - top}, or 0 for the label j = y.

    For every sample, write the largest z_j - z_y to `top`, and the sum over j to `sums`.
    """
    classes, samples = logits.shape
    per_class = samples // classes
    for y in range(classes):
        for i in range(y * per_class, (y + 1) * per_class):
            sums[i] = logits[y, i]
            logits[y, i] = -np.inf
    for i in range(samples):
        top[i] = logits[0, i]
    for j in range(1, classes):
        for i in range(samples):
            top[i] = max(top[i], logits[j, i])
    for j in range(classes):
        for i in range(samples):
            logits[j, i] -= top[i]
    exponentials(logits.reshape(-1), bits, scale)
    for i in range(samples):
        top[i] -= sums[i]
        sums[i] = 0.0
    for j in range(classes):
        for i in range(samples):
            sums[i] += logits[j, i]


@_compiled(*FAST)
def _log_loss(top: Array, sums: Array, share: Array, factor: Array) -> float:
    """Return log L; write to `factor` the factors that turn exponentials into d log L / dz.

    The exponentials are those of `_softmax_weights`. The factor of a sample is
    share * p / (L * sum), with p the probability of the wrong classes.
    """
    largest = -np.inf
    for i in range(top.shape[0]):
        log_odds = top[i] + math.log(sums[i])
        loss = math.log1p(math.exp(-abs(log_odds))) + max(log_odds, 0.0)
        factor[i] = log_odds - loss
        top[i] = log_odds if log_odds < TINY_LOG else math.log(loss)
        if share[i] > 0.0:
            largest = max(largest, top[i])
    total = 0.0
    for i in range(top.shape[0]):
        total += share[i] * math.exp(top[i] - largest)
    value = largest + math.log(total)
    for i in range(top.shape[0]):
        factor[i] = share[i] * math.exp(factor[i] - value) / sums[i]
    return value


@_compiled(*FAST)
def _logits(W: Array, Ht: Array, logits: Array) -> None:
    """Write the logits (C, CN) = W Ht to `logits`; four columns of W at a time, which is faster."""
    classes, dim = W.shape
    samples = Ht.shape[1]
    for j in range(classes):
        row = logits[j]
        for i in range(samples):
            row[i] = 0.0
        for k in range(0, dim - 3, 4):
            a, b, c, e = W[j, k], W[j, k + 1], W[j, k + 2], W[j, k + 3]
            for i in range(samples):
                row[i] += a * Ht[k, i] + b * Ht[k + 1, i] + c * Ht[k + 2, i] + e * Ht[k + 3, i]
        for k in range(dim - dim % 4, dim):
            a = W[j, k]
            for i in range(samples):
                row[i] += a * Ht[k, i]


@_compiled(*FAST)
def _weigh(weights: Array, sums: Array, factor: Array) -> None:
    """Replace the exponentials in `weights` by the derivatives of L, or log L, by the logits."""
    classes, samples = weights.shape
    per_class = samples // classes
    for j in range(classes):
        for i in range(samples):
            weights[j, i] *= factor[i]
    for y in range(classes):
        for i in range(y * per_class, (y + 1) * per_class):
            weights[y, i] = -(sums[i] * factor[i])


@_compiled(*FAST)
def _classifier_gradient(weights: Array, Ht: Array, gradient: Array) -> None:
    """Write the gradient (C, d) by the classifier, which is `weights` times H, to `gradient`."""
    classes, samples = weights.shape
    dim = Ht.shape[0]
    for j in range(classes):
        for k in range(0, dim - 3, 4):
            a = b = c = e = 0.0
            for i in range(samples):
                w = weights[j, i]
                a += w * Ht[k, i]
                b += w * Ht[k + 1, i]
                c += w * Ht[k + 2, i]
                e += w * Ht[k + 3, i]
            gradient[j, k], gradient[j, k + 1], gradient[j, k + 2], gradient[j, k + 3] = a, b, c, e
        for k in range(dim - dim % 4, dim):
            a = 0.0
            for i in range(samples):
                a += weights[j, i] * Ht[k, i]
            gradient[j, k] = a


@_compiled(*FAST)
def _move_features(W: Array, weights: Array, Ht: Array, size: float) -> None:
    """Move the features by one step: subtract size * Wᵀ weights from Ht."""
    classes, dim = W.shape
    samples = Ht.shape[1]
    for k in range(dim):
        row = Ht[k]
        for j in range(0, classes - 4, 5):
            a, b, c = size * W[j, k], size * W[j + 1, k], size * W[j + 2, k]
            e, f = size * W[j + 3, k], size * W[j + 4, k]
            for i in range(samples):
                row[i] -= (
                    a * weights[j, i]
                    + b * weights[j + 1, i]
                    + c * weights[j + 2, i]
                    + e * weights[j + 3, i]
                    + f * weights[j + 4, i]
                )
        for j in range(classes - classes % 5, classes):
            a = size * W[j, k]
            for i in range(samples):
                row[i] -= a * weights[j, i]


@_compiled(*FAST)
def run(W: Array, Ht: Array, share: Array, rate: float, steps: int, normalised: bool) -> Any:
    """Take steps of descent in place.

    A step subtracts rate * grad L or, if `normalised`, rate * grad L / (L |theta|^2). Return the
    number of steps, the logarithm of the sum of normalised step sizes, and whether W is finite.
    """
    classes, dim = W.shape
    samples = Ht.shape[1]
    weights = np.empty((classes, samples))
    gradient = np.empty((classes, dim))
    top, sums, factor = np.empty(samples), np.empty(samples), np.empty(samples)
    bits = np.empty(classes * samples, dtype=np.int64)
    scale = bits.view(np.float64)
    log_time = -np.inf
    for step in range(steps):
        _logits(W, Ht, weights)
        _softmax_weights(weights, top, sums, bits, scale)
        size = rate
        if normalised:
            value = _log_loss(top, sums, share, factor)
            square = 0.0
            for j in range(classes):
                for k in range(dim):
                    square += W[j, k] * W[j, k]
            for k in range(dim):
                for i in range(samples):
                    square += Ht[k, i] * Ht[k, i]
            size = rate / square
            log_size = math.log(size) - value
            above = max(log_time, log_size)
            log_time = above + math.log(math.exp(log_time - above) + math.exp(log_size - above))
        else:
            for i in range(samples):
                factor[i] = -top[i]
            exponentials(factor, bits, scale)
            for i in range(samples):
                factor[i] = share[i] / (sums[i] + factor[i])
        _weigh(weights, sums, factor)
        _classifier_gradient(weights, Ht, gradient)
        _move_features(W, weights, Ht, size)
        check = 0.0
        for j in range(classes):
            for k in range(dim):
                W[j, k] -= size * gradient[j, k]
                check += W[j, k]
        if not math.isfinite(check):
            return step + 1, log_time, False
    return steps, log_time, True
