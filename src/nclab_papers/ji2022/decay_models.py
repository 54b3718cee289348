"""Which law a falling quantity follows, by how well each foretells the points it has not seen."""

import math
from collections.abc import Callable, Sequence

import numpy as np

LAWS: dict[str, Callable[[float], float]] = {
    "(log t)^-r": lambda t: math.log(math.log(t)),
    "power law": math.log,
    "exponential": float,
}
"""In what the logarithm of the quantity is a line, under each law."""
FEWEST = 5
"""Points below which nothing is held out."""
NOISE = 1e-3
"""Relative error below which no measurement of a network is believed."""


def held_out(times: Sequence[float], values: Sequence[float], law: str) -> float:
    """Mean log density of each point under the line through all others, Student's predictive.

    >>> times = [100, 150, 200, 300, 400, 500]
    >>> values = [1 / math.log(t) for t in times]
    >>> found = {law: held_out(times, values, law) for law in LAWS}
    >>> max(found, key=found.get)
    '(log t)^-r'
    """
    from scipy.stats import t as student

    x = np.array([LAWS[law](time) for time in times])
    y = np.log(np.asarray(values, dtype=np.float64))
    if len(x) < FEWEST:
        raise ValueError(f"{len(x)} points; {FEWEST} are needed")
    found = []
    for out in range(len(x)):
        rest = np.arange(len(x)) != out
        slope, level = np.polyfit(x[rest], y[rest], 1)
        free = int(rest.sum()) - 2
        left = float(np.square(y[rest] - slope * x[rest] - level).sum()) / free
        around = x[rest] - x[rest].mean()
        lever = 1 / rest.sum() + (x[out] - x[rest].mean()) ** 2 / float(around @ around)
        width = math.sqrt(max(left, NOISE**2) * (1 + lever))
        found.append(float(student.logpdf(y[out], free, slope * x[out] + level, width)))
    return math.fsum(found) / len(found)


def advantage(times: Sequence[float], values: Sequence[float]) -> float:
    """How much better a power of log t foretells a point than the better of the other laws.

    >>> times = [100, 150, 200, 300, 400, 500]
    >>> advantage(times, [1 / math.log(t) for t in times]) > 0
    True
    >>> advantage(times, [t**-0.5 for t in times]) < 0
    True
    """
    own, *others = (held_out(times, values, law) for law in LAWS)
    return own - max(others)


def fall(times: Sequence[float], values: Sequence[float]) -> float:
    """Minus the slope of the logarithm of a quantity over log log t.

    >>> round(fall([100, 200, 400], [1 / math.log(t) for t in (100, 200, 400)]), 9)
    1.0
    """
    x = [LAWS["(log t)^-r"](time) for time in times]
    return -float(np.polyfit(x, np.log(values), 1)[0])
