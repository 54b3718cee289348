"""L-BFGS for smooth functions of one vector, with few function calls.

scipy's L-BFGS-B also passes the reference tests, but its BLAS ignores `one_thread`: with two
threads a search takes four times the CPU time, and its last digits depend on the number of threads.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Function = Callable[[Tensor], tuple[float, Tensor]]
"""Function that returns its value and its gradient at a vector."""
SUFFICIENT, CURVATURE = 1e-4, 0.9
STEPS = 40


class DescentResult(NamedTuple):
    """End point of a descent, with its value and the number of steps."""

    point: Tensor
    value: float
    steps: int


def descend(
    function: Function, start: Tensor, *, steps: int, tolerance: float, memory: int
) -> DescentResult:
    """Minimise a function by L-BFGS with at most `steps` steps.

    The descent stops if three steps in a row improve the value by less than `tolerance`, relative
    to the value. A step costs one or two function calls and 4 `memory` inner products. The line
    search finds a step size that satisfies the weak Wolfe conditions by bisection.
    """
    x, (value, slope) = start, function(start)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    small_steps = taken_steps = 0
    while taken_steps < steps and small_steps < 3:
        direction = _direction(slope, pairs)
        directional = float(slope @ direction)
        if directional >= 0:  # rounding errors have spoiled the pairs
            pairs.clear()
            direction, directional = -slope, -float(slope @ slope)
        low, high, size = 0.0, float("inf"), 1.0
        for _ in range(STEPS):
            new = x + size * direction
            new_value, new_slope = function(new)
            if not new_value <= value + SUFFICIENT * size * directional:
                high = size
            elif float(new_slope @ direction) < CURVATURE * directional:
                low = size
            else:
                break
            size = 2 * low if high == float("inf") else (low + high) / 2
        if not new_value < value:
            break
        taken_steps += 1
        small_steps = small_steps + 1 if value - new_value <= tolerance * abs(new_value) else 0
        step, gradient_change = new - x, new_slope - slope
        curvature = float(step @ gradient_change)
        if curvature > 0:
            pairs.append((step, gradient_change, curvature))
        x, value, slope = new, new_value, new_slope
    return DescentResult(x, value, taken_steps)


def _direction(slope: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Return the search direction of L-BFGS from the stored steps and changes of the gradient."""
    direction = -slope
    if not pairs:
        return direction / slope.norm().clamp(min=1e-300)
    coefficients = []
    for step, gradient_change, curvature in reversed(pairs):
        coefficients.append(float(step @ direction) / curvature)
        direction = torch.add(direction, gradient_change, alpha=-coefficients[-1])
    direction *= pairs[-1][2] / float(pairs[-1][1] @ pairs[-1][1])
    for (step, gradient_change, curvature), coefficient in zip(
        pairs, reversed(coefficients), strict=True
    ):
        direction = torch.add(
            direction, step, alpha=coefficient - float(gradient_change @ direction) / curvature
        )
    return direction
