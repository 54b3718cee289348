"""L-BFGS for smooth functions of one vector, with as few passes over it as possible."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Function = Callable[[Tensor], tuple[float, Tensor]]
"""From a vector to value and gradient."""
SUFFICIENT, CURVATURE = 1e-4, 0.9
STEPS = 40


class DescentResult(NamedTuple):
    """Where a descent ended."""

    point: Tensor
    value: float
    steps: int


def descend(
    function: Function, start: Tensor, *, steps: int, rest: float, memory: int
) -> DescentResult:
    """Minimise until three steps in a row win less than `rest`, relatively, or after `steps`.

    Each step costs one or two calls and 4 `memory` products of vectors; a step of the line search
    satisfies the weak conditions of Wolfe by bisection.

    >>> found = descend(lambda x: (float(x @ x), 2 * x), torch.ones(3, dtype=torch.float64),
    ...                 steps=50, rest=1e-15, memory=5)
    >>> found.value < 1e-20
    True
    """
    x, (value, slope) = start, function(start)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    idle = taken = 0
    while taken < steps and idle < 3:
        way = _direction(slope, pairs)
        down = float(slope @ way)
        if down >= 0:  # rounding has spoiled the pairs
            pairs.clear()
            way, down = -slope, -float(slope @ slope)
        low, high, size = 0.0, float("inf"), 1.0
        for _ in range(STEPS):
            new = x + size * way
            new_value, new_slope = function(new)
            if not new_value <= value + SUFFICIENT * size * down:
                high = size
            elif float(new_slope @ way) < CURVATURE * down:
                low = size
            else:
                break
            size = 2 * low if high == float("inf") else (low + high) / 2
        if not new_value < value:
            break
        taken += 1
        idle = idle + 1 if value - new_value <= rest * abs(new_value) else 0
        step, turn = new - x, new_slope - slope
        bend = float(step @ turn)
        if bend > 0:
            pairs.append((step, turn, bend))
        x, value, slope = new, new_value, new_slope
    return DescentResult(x, value, taken)


def _direction(slope: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    way = -slope
    if not pairs:
        return way / slope.norm().clamp(min=1e-300)
    parts = []
    for step, turn, bend in reversed(pairs):
        parts.append(float(step @ way) / bend)
        way = torch.add(way, turn, alpha=-parts[-1])
    way *= pairs[-1][2] / float(pairs[-1][1] @ pairs[-1][1])
    for (step, turn, bend), part in zip(pairs, reversed(parts), strict=True):
        way = torch.add(way, step, alpha=part - float(turn @ way) / bend)
    return way
