"""Interval: where a scalar would lie with all samples of the world, from those at hand."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import betaincinv, stdtrit

LEVEL = 0.95
FEW = 10
"""With fewer errors, or hits, than this a share gets an exact binomial interval."""


class Interval(NamedTuple):
    """A 95 % interval, and the finite-sample bias of the value that it allows for."""

    low: float
    high: float
    bias: float = 0.0

    @property
    def half(self) -> float:
        """Half its width: the number behind a ±."""
        return (self.high - self.low) / 2


def jackknife(value: float, left_out: Sequence[float]) -> Interval:
    r"""The interval from the values of G samples that each lack one of G groups.

    $$\theta - b \pm t_{G-1}\sqrt{\tfrac{G-1}G\sum_g(\theta_{(g)}-\bar\theta)^2},\quad
      b=(G-1)(\bar\theta-\theta)$$

    Exact for a mean of normal numbers in equal groups; for other smooth functions of means right
    to first order. The bias b of order 1/N is taken off.

    >>> low, high, bias = jackknife(2.0, [2.5, 2.0, 1.5])  # the mean of 1, 2 and 3
    >>> round(low, 6), round(high, 6), bias
    (-0.484138, 4.484138, 0.0)
    """
    count = len(left_out)
    mean = math.fsum(left_out) / count
    squares = math.fsum((one - mean) ** 2 for one in left_out)
    error = math.sqrt((count - 1) / count * squares)
    half = float(stdtrit(count - 1, 1 - (1 - LEVEL) / 2)) * error
    bias = (count - 1) * (mean - value)
    return Interval(value - bias - half, value - bias + half, bias)


def share_interval(hits: int, total: int) -> Interval:
    """Clopper and Pearson's interval of a share: exact, and not empty where all samples agree.

    >>> low, high, _ = share_interval(100, 100)
    >>> round(low, 4), high
    (0.9638, 1.0)
    """
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(hits, total - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, total - hits, 1 - tail)) if hits < total else 1.0
    return Interval(low, high)
