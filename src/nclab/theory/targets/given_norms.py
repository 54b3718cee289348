"""The least loss that norms allow: the program whose nuclear norm is what the norms give."""

import math
from collections.abc import Callable
from typing import NamedTuple

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.theory.targets.dual import lower_bound
from nclab.theory.targets.program import (
    LogitPoint,
    Program,
    evaluate,
    nuclear_norm,
    threshold,
    with_weight,
)
from nclab.theory.targets.solve import MANY, clustered, solve

CLOSE = 1e-7
"""The norm is met to this, relatively; the loss then to its square."""
WEAKEST = 1e-12
"""A weight this far below the threshold is none."""


class LeastLoss(NamedTuple):
    """The optimum for given norms."""

    point: LogitPoint
    weight: float
    """t of the penalty with the same optimum; 0 where less than the norms suffices."""
    loss: float
    lower: float
    """No network with these norms, or smaller ones, has a smaller loss."""
    norm: float
    """|M D^{1/2}|_* of the point."""


def least_loss(program: Program, norm: float) -> LeastLoss:
    """The smallest loss with |W|_F |H|_F at most `norm`; the weight of the program is not used.

    Costs about a dozen solutions of the program, of averaged counts if there are many.
    """
    with one_thread():
        near, slope = None, 0.0
        if program.groups > MANY:
            guess = least_loss(clustered(program), norm)
            if guess.weight:
                near = guess.weight
                one = with_weight(clustered(program), near * 1.05)
                moved = nuclear_norm(one, solve(one, gap=1e-6).point)
                slope = (moved / norm - 1) / math.log(1.05)
        start: list[LogitPoint] = []

        def norm_at(weight: float) -> float:
            one = with_weight(program, weight)
            found = solve(one, start[-1] if start and near is None else None)
            start.append(found.point)
            return nuclear_norm(one, found.point)

        if near is not None:
            reached = norm_at(near)
            near *= math.exp((1 - reached / norm) / slope)
            reached, weight = norm_at(near), near
        else:
            weight, reached = root(norm_at, norm, threshold(program))
        point = start[-1]
        if not weight and bool((program.own == 1).all()):
            # Of hard targets the loss falls with the norms without end.
            raise DataError(
                f"Expected norms of which the least loss can be computed, up to |W| |H| = "
                f"{reached:.4g} with these counts; got {norm:.4g}. weight_decay=0 gives the "
                "limit of large norms."
            )
        if weight and reached > 0:
            size = norm / reached
            point = LogitPoint(point.common * size, point.lift * size, point.bias)
            reached = norm
        loss = evaluate(program, point).loss
        lower = lower_bound(with_weight(program, weight), point) - weight * norm if weight else loss
        return LeastLoss(point, weight, loss, min(lower, loss), reached)


def root(
    norm_at: Callable[[float], float], norm: float, most: float, *, close: float = CLOSE
) -> tuple[float, float]:
    """The weight below `most` at which a falling function of it has a value, and that value.

    (0, the value next to 0) where even the weakest penalty has a smaller norm.

    >>> weight, reached = root(lambda t: 1 - t, 0.75, 1.0)
    >>> round(weight, 6), round(reached, 6)
    (0.25, 0.75)
    """
    high, high_value = most, 0.0
    low = most
    while True:
        low /= 4
        low_value = norm_at(low)
        if low_value >= norm:
            break
        if low <= WEAKEST * most:  # also where nothing can be gained at any weight: most is 0
            return 0.0, low_value
        high, high_value = low, low_value
    weight, value = low, low_value
    side = 0
    a, b = low_value - norm, high_value - norm
    x, y = math.log(low), math.log(high)
    for _ in range(100):
        if abs(value - norm) <= close * norm or y - x < 1e-15:
            break
        middle = (x * b - y * a) / (b - a)
        weight = math.exp(middle)
        value = norm_at(weight)
        rest = value - norm
        if rest > 0:
            x, a = middle, rest
            b = b / 2 if side == 1 else b
            side = 1
        else:
            y, b = middle, rest
            a = a / 2 if side == -1 else a
            side = -1
    return weight, value
