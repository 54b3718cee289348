"""Smallest loss that given norms allow, for any class counts.

`least_loss` solves for one pair of norms; `TargetPath` interpolates for many norms and the same
counts.
"""

import math
from collections.abc import Callable
from dataclasses import replace
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
)
from nclab.theory.targets.program_solver import (
    MANY,
    average_counts,
    initial_point,
    lower_bound,
    solve,
)
from nclab.theory.targets.setting import Solution

CLOSE = 1e-7
"""Relative error allowed for the norm; the error of the loss is about the square of this."""
WEAKEST = 1e-12
"""Smallest penalty weight t, divided by `critical_weight`, that is not treated as zero."""


class LeastLoss(NamedTuple):
    """Optimum of the loss under given norms."""

    point: LogitPoint
    weight: float
    """Penalty weight t that has the same optimum; 0 if smaller norms reach the same loss."""
    loss: float
    lower: float
    """Lower bound on the loss of every network with these or smaller norms."""
    norm: float
    """Nuclear norm |M D^{1/2}|_* of the logits M, the smallest |W|_F |H|_F that gives them."""


def least_loss(program: Program, norm: float) -> LeastLoss:
    """Return the optimum with |W|_F |H|_F at most `norm`; `program.weight` is ignored.

    nclab solves the program about a dozen times; if there are many different counts, it mostly
    uses averaged counts.
    """
    with one_thread():
        near_weight, slope = None, 0.0
        if program.groups > MANY:
            guess = least_loss(average_counts(program), norm)
            if guess.weight:
                near_weight = guess.weight
                weighted = replace(average_counts(program), weight=near_weight * 1.05)
                moved = nuclear_norm(weighted, solve(weighted, gap=1e-6).point)
                slope = (moved / norm - 1) / math.log(1.05)
        start: list[LogitPoint] = []

        def norm_at(weight: float) -> float:
            weighted = replace(program, weight=weight)
            optimum = solve(weighted, start[-1] if start and near_weight is None else None)
            start.append(optimum.point)
            return nuclear_norm(weighted, optimum.point)

        if near_weight is not None:
            reached = norm_at(near_weight)
            near_weight *= math.exp((1 - reached / norm) / slope)
            reached, weight = norm_at(near_weight), near_weight
        else:
            weight, reached = find_weight(norm_at, norm, critical_weight(program))
        point = start[-1]
        if not weight and bool((program.own_target == 1).all()):
            # With hard targets, larger norms always allow a smaller loss.
            raise DataError(
                f"Expected norms with |W| |H| up to {reached:.4g}, got {norm:.4g}: beyond that, "
                "rounding hides the smallest loss of these counts. weight_decay=0 gives the limit "
                "of large norms."
            )
        if weight and reached > 0:
            size = norm / reached
            point = LogitPoint(point.common * size, point.lift * size, point.bias)
            reached = norm
        loss = evaluate(program, point).loss
        lower = (
            lower_bound(replace(program, weight=weight), point) - weight * norm if weight else loss
        )
        return LeastLoss(point, weight, loss, min(lower, loss), reached)


def find_weight(
    norm_at: Callable[[float], float], norm: float, most: float, *, close: float = CLOSE
) -> tuple[float, float]:
    """Return the penalty weight at which the decreasing function `norm_at` equals `norm`.

    The weight is below `most`. Also return the value of the function at this weight. If even the
    smallest weight gives a smaller value than `norm`, return 0 and the largest value reached.
    """
    high, high_value = most, 0.0
    low = most
    while True:
        low /= 4
        low_value = norm_at(low)
        if low_value >= norm:
            break
        if low <= WEAKEST * most:  # also if all weights give zero, so that most is 0
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
        difference = value - norm
        if difference > 0:
            x, a = middle, difference
            b = b / 2 if side == 1 else b
            side = 1
        else:
            y, b = middle, difference
            a = a / 2 if side == -1 else a
            side = -1
    return weight, value


STEP = 10**-0.125
"""Ratio of two neighbouring penalty weights t at which a path solves the program."""
LAST = 88
"""Number of penalty weights of a path; the last is 1e-11 times the critical weight."""
MOST_GROUPS = 100
"""Largest number of different class counts in a path; with so many, one optimum takes half a
second."""
CACHED_PATHS = 16
"""Number of paths that stay in the cache; each path has its own class counts."""


class _PathPoint(NamedTuple):
    """Optimum at one penalty weight of a path."""

    weight: float
    norm: float
    lower: float
    """Proved lower bound on the objective."""
    parts: tuple[Tensor, ...]
    """Bias, then `common` and `lift` (see `LogitPoint`) for each of three matrices: the logits, the
    Gram matrix of the classifier, and the Gram matrix of the class means."""


class TargetPath:
    """Optima of cross-entropy for fixed counts and any norms.

    The optima on a grid of penalty weights are solved when they are first needed; the other optima
    are interpolated.
    """

    def __init__(self, counts: tuple[float, ...], biased: bool) -> None:
        self.counts = torch.tensor(counts, dtype=torch.float64)
        self.program, self.group = program_of_counts(self.counts, 0.0, bias=0.0 if biased else None)
        if self.program.groups > MOST_GROUPS:
            raise DataError(
                f"Expected at most {MOST_GROUPS} different class counts in a measurement, got "
                f"{self.program.groups}. Call collapse.target() instead."
            )
        self.critical = critical_weight(self.program)
        self.size = nuclear_norm(self.program, initial_point(self.program, 1.0))
        smallest = self.critical * STEP**LAST
        # t |W||H| is at most the objective.
        self.largest_norm = self._simple(smallest * self.size)[1] / smallest
        self._solved: dict[int, _PathPoint] = {}

    def at(self, norm: float) -> Solution:
        """Return the optimum at a given |W|_F |H|_F, interpolated between two solved optima.

        The error of the logits and Gram matrices is of the order of the squared step of the grid.
        The loss is a proved lower bound: each of the two optima gives one, and the larger is taken.
        """
        if not norm <= self.largest_norm:
            raise DataError(self._too_large(norm))
        # Guess the index as if the logits were a multiple of the centred identity matrix.
        cost = -math.log1p(math.exp(norm / self.size) / (len(self.counts) - 1))
        index = round((cost - math.log(self.critical * self.size)) / math.log(STEP))
        low, high, trials = 0, LAST + 1, 0
        while high - low > 1:
            index = min(max(index, low + 1), high - 1)
            missing = norm - self._solved_at(index).norm
            low, high = (index, high) if missing > 0 else (low, index)
            trials += 1
            steps = round(missing / (self.size * -math.log(STEP)))
            index = index + steps if trials < 6 else (low + high) // 2
        if high > LAST:
            raise DataError(self._too_large(norm))
        above = self._solved_at(high)
        if low:
            below = self._solved_at(low)
        else:  # the zero solution, with the same bias
            zeros = above.parts[0], *(0 * part for part in above.parts[1:])
            below = above._replace(norm=0.0, parts=zeros)
        share = (norm - below.norm) / max(above.norm - below.norm, 1e-300)
        mixed = [(1 - share) * a + share * b for a, b in zip(below.parts, above.parts, strict=True)]
        bias = mixed[0]
        logits, left, right = (
            class_logits(LogitPoint(mixed[k], mixed[k + 1], bias), self.group) for k in (1, 3, 5)
        )
        loss = max(0.0, *(point.lower - point.weight * norm for point in (below, above)))
        return Solution(
            logits=logits,
            bias=bias[self.group],
            loss=loss,
            penalty=0.0,
            left=left,
            right=right,
            lower=loss,
            proof="duality gap",
            geometry="between simplex ETF and SELI",
            source="docs/targets.md, beside every measurement",
            norm=norm,
            weight=math.exp((1 - share) * math.log(below.weight) + share * math.log(above.weight)),
        )

    def _simple(self, cost: float) -> tuple[float, float]:
        """Return the best factor k for logits k (I - 11^T/C), and the objective with it."""
        others = len(self.counts) - 1
        gap = max(0.0, math.log(others * (1 / cost - 1))) if cost < 1 else 0.0
        return gap, math.log1p(others * math.exp(-gap)) + cost * gap

    def _too_large(self, norm: float) -> str:
        largest = self._solved[LAST].norm if LAST in self._solved else self.largest_norm
        unit = math.sqrt(len(self.counts) * float(self.counts.sum()))
        return (
            f"norms are so large that rounding hides the smallest loss: alpha beta is "
            f"{norm / unit:.4g}, and should be at most about {largest / unit:.3g}; "
            "collapse.target(weight_decay=0) is the limit"
        )

    def _solved_at(self, index: int) -> _PathPoint:
        if index not in self._solved:
            weighted = replace(self.program, weight=self.critical * STEP**index)
            size = self._simple(weighted.weight * self.size)[0]
            optimum = solve(weighted, initial_point(weighted, max(size, 1.0)), gap=1e-7)
            point, norm = optimum.point, nuclear_norm(weighted, optimum.point)
            parts = (point.bias, point.common, point.lift, *_grams(weighted, point))
            self._solved[index] = _PathPoint(weighted.weight, norm, optimum.lower, parts)
        return self._solved[index]


def _grams(program: Program, point: LogitPoint) -> tuple[Tensor, ...]:
    """Return the Gram matrices of classifier and means, each by groups of classes of equal size.

    Each consists of the entries between groups and the excess of the diagonal, as in `LogitPoint`.
    """
    left, values, right = torch.linalg.svd(point.rooted(program))
    lift = point.lift * program.roots  # singular values on vectors that sum to 0 in a group
    sizes, metric = torch.outer(program.sizes, program.sizes).sqrt(), program.metric
    first, second = ((side * values) @ side.T / sizes for side in (left, right.T))
    for gram in (first, second):
        gram.diagonal().sub_(lift / program.sizes)
    return first, lift, second / torch.outer(metric, metric).sqrt(), lift / metric


@lru_cache(maxsize=CACHED_PATHS)
def target_path(counts: tuple[float, ...], biased: bool) -> TargetPath:
    """Return the `TargetPath` for these class counts, from a cache if possible."""
    return TargetPath(counts, biased)
