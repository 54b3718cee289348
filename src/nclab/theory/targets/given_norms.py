"""The least loss that given norms allow, once or for many norms of the same class counts."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.theory.targets.program import (
    LogitPoint,
    Program,
    class_logits,
    critical_weight,
    evaluate,
    nuclear_norm,
    program_of_counts,
    with_weight,
)
from nclab.theory.targets.program_solver import MANY, average_counts, first, lower_bound, solve
from nclab.theory.targets.setting import Solution

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
            guess = least_loss(average_counts(program), norm)
            if guess.weight:
                near = guess.weight
                one = with_weight(average_counts(program), near * 1.05)
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
            weight, reached = root(norm_at, norm, critical_weight(program))
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


STEP = 10**-0.125
"""From one solved weight t to the next."""
LAST = 88
"""Of them: 1e-11 of the weight that makes everything zero."""
MOST_GROUPS = 100
"""Distinct counts up to which a path is solved; an optimum of so many takes half a second."""
KEPT = 16
"""Paths that are remembered."""


class _PathPoint(NamedTuple):
    weight: float
    norm: float
    lower: float
    """The dual's bound on the objective."""
    parts: tuple[Tensor, ...]
    """By groups: bias, then common part and lift of logits, left and right Gram."""


class TargetPath:
    """The optima of cross-entropy for counts and any bias or none, each solved when first needed.

    >>> path = target_path((10.0, 10.0, 1.0), False)
    >>> found = path.at(20.0)
    >>> round(found.norm, 6), 0 < found.loss < 1
    (20.0, True)
    """

    def __init__(self, counts: tuple[float, ...], biased: bool) -> None:
        self.counts = torch.tensor(counts, dtype=torch.float64)
        self.program, self.place = program_of_counts(self.counts, 0.0, bias=0.0 if biased else None)
        if self.program.groups > MOST_GROUPS:
            raise DataError(
                f"Expected at most {MOST_GROUPS} different counts beside a measurement, got "
                f"{self.program.groups}. Ask for it: collapse.target()"
            )
        self.top = critical_weight(self.program)
        self.size = nuclear_norm(self.program, first(self.program, 1.0))
        least = self.top * STEP**LAST
        self.most = self._simple(least * self.size)[1] / least  # t |W||H| is below any objective
        self._solved: dict[int, _PathPoint] = {}

    def at(self, norm: float) -> Solution:
        """Between the two solved optima whose norms enclose this one; the loss is proved.

        Logits and Grams are interpolated, which loses the square of a step; the loss is the dual's
        bound at the given norm, the better of the two.
        """
        if not norm <= self.most:
            raise DataError(self._too_large(norm))
        # As if logits were a multiple of the centred identity, then by what a step adds in the end.
        cost = -math.log1p(math.exp(norm / self.size) / (len(self.counts) - 1))
        number = round((cost - math.log(self.top * self.size)) / math.log(STEP))
        low, high, tried = 0, LAST + 1, 0
        while high - low > 1:
            number = min(max(number, low + 1), high - 1)
            rest = norm - self._one(number).norm
            low, high, tried = (number, high, tried + 1) if rest > 0 else (low, number, tried + 1)
            steps = round(rest / (self.size * -math.log(STEP)))
            number = number + steps if tried < 6 else (low + high) // 2
        if high > LAST:
            raise DataError(self._too_large(norm))
        above = self._one(high)
        below = self._one(low) if low else above._replace(norm=0.0, parts=_zero(above.parts))
        part = (norm - below.norm) / max(above.norm - below.norm, 1e-300)
        ends = (below, above)
        mixed = [(1 - part) * a + part * b for a, b in zip(below.parts, above.parts, strict=True)]
        bias = mixed[0]
        logits, left, right = (
            class_logits(LogitPoint(mixed[k], mixed[k + 1], bias), self.place) for k in (1, 3, 5)
        )
        loss = max(0.0, *(one.lower - one.weight * norm for one in ends))
        return Solution(
            logits=logits,
            bias=bias[self.place],
            loss=loss,
            penalty=0.0,
            left=left,
            right=right,
            lower=loss,
            proof="duality gap",
            geometry="between simplex ETF and SELI",
            source="docs/targets.md, beside every measurement",
            norm=norm,
            weight=math.exp((1 - part) * math.log(below.weight) + part * math.log(above.weight)),
        )

    def _simple(self, cost: float) -> tuple[float, float]:
        """The best multiple of the centred identity as logits, and its objective."""
        others = len(self.counts) - 1
        gap = max(0.0, math.log(others * (1 / cost - 1))) if cost < 1 else 0.0
        return gap, math.log1p(others * math.exp(-gap)) + cost * gap

    def _too_large(self, norm: float) -> str:
        most = self._solved[LAST].norm if LAST in self._solved else self.most
        per = math.sqrt(len(self.counts) * float(self.counts.sum()))
        return (
            f"norms are too large for the least loss, which rounding hides: alpha beta is "
            f"{norm / per:.4g}, at most about {most / per:.3g} can be known; "
            "collapse.target(weight_decay=0) is the limit"
        )

    def _one(self, number: int) -> _PathPoint:
        if number not in self._solved:
            one = with_weight(self.program, self.top * STEP**number)
            size = self._simple(one.weight * self.size)[0]
            found = solve(one, first(one, max(size, 1.0)), gap=1e-7)
            point, norm = found.point, nuclear_norm(one, found.point)
            parts = (point.bias, point.common, point.lift, *_grams(one, point))
            self._solved[number] = _PathPoint(one.weight, norm, found.lower, parts)
        return self._solved[number]


def _zero(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return parts[0], *(0 * part for part in parts[1:])


def _grams(program: Program, point: LogitPoint) -> tuple[Tensor, ...]:
    """Both Grams of `factor_grams` without C x C matrices: common part and lift of each."""
    left, values, right = torch.linalg.svd(point.rooted(program))
    lift = point.lift * program.roots  # singular values that sum to 0 in a group
    sizes, metric = torch.outer(program.sizes, program.sizes).sqrt(), program.metric
    first, second = ((side * values) @ side.T / sizes for side in (left, right.T))
    for gram in (first, second):
        gram.diagonal().sub_(lift / program.sizes)
    return first, lift, second / torch.outer(metric, metric).sqrt(), lift / metric


@lru_cache(maxsize=KEPT)
def target_path(counts: tuple[float, ...], biased: bool) -> TargetPath:
    """The path of these counts, the same one each time."""
    return TargetPath(counts, biased)
