"""Bootstrap intervals: how far a median would move with other seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nclab.errors import NclabError


class Interval(NamedTuple):
    """A median and an interval around it."""

    median: float
    low: float
    high: float
    level: float


def median_interval(
    values: Sequence[float], *, level: float = 0.95, draws: int = 10_000
) -> Interval:
    """The percentile interval of the median over resamples with replacement; always the same draws.

    With few values it cannot reach beyond the smallest and the largest of them.

    >>> median_interval([0.25, 0.25, 0.25])
    Interval(median=0.25, low=0.25, high=0.25, level=0.95)
    """
    if not values:
        raise NclabError("Expected at least one value for an interval, got none.")
    known = np.asarray(values, dtype=np.float64)
    stream = np.random.Generator(np.random.PCG64(0))
    medians = np.median(known[stream.integers(0, len(known), (draws, len(known)))], axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.median(known)), float(low), float(high), level)
