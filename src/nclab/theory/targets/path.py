"""The optima of given counts at all norms: a few solved once, the others between them."""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.targets.grouped import program_of
from nclab.theory.targets.program import expanded, nuclear_norm, threshold, with_weight
from nclab.theory.targets.solve import solve
from nclab.theory.targets.solved import Solved, shared_out

STEP = 10**-0.125
"""From one solved weight t to the next."""
LAST = 88
"""Of them: 1e-11 of the weight that makes everything zero."""
MOST_GROUPS = 100
"""Distinct counts up to which a path is solved; an optimum of so many takes half a second."""
KEPT = 16
"""Paths that are remembered."""


class _Solved(NamedTuple):
    weight: float
    norm: float
    lower: float
    """The dual's bound on the objective."""
    logits: Tensor
    bias: Tensor


class TargetPath:
    """The optima of cross-entropy for counts and any bias or none, each solved when first needed.

    >>> path = target_path((10.0, 10.0, 1.0), False)
    >>> found = path.at(20.0)
    >>> round(found.norm, 6), 0 < found.loss < 1
    (20.0, True)
    """

    def __init__(self, counts: tuple[float, ...], biased: bool) -> None:
        self.counts = torch.tensor(counts, dtype=torch.float64)
        self.program, self.place = program_of(self.counts, 0.0, bias=0.0 if biased else None)
        if self.program.groups > MOST_GROUPS:
            raise DataError(
                f"Expected at most {MOST_GROUPS} different counts beside a measurement, got "
                f"{self.program.groups}. Ask for it: collapse.target()"
            )
        self.top = threshold(self.program)
        self._solved: dict[int, _Solved] = {}

    def at(self, norm: float) -> Solved:
        """Between the two solved optima whose norms enclose this one; the loss is proved.

        Logits and Grams are interpolated, which loses the square of a step; the loss is the dual's
        bound at the given norm, the better of the two.
        """
        high = 1
        while high < LAST and self._one(high).norm < norm:
            high = min(2 * high, LAST)
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._one(middle).norm < norm else (low, middle)
        above = self._one(high)
        if above.norm < norm:
            raise DataError(f"Expected |W| |H| of at most {above.norm:.4g}, got {norm:.4g}.")
        below = self._one(low) if low else above._replace(norm=0.0, logits=0 * above.logits)
        part = (norm - below.norm) / max(above.norm - below.norm, 1e-300)
        ends = (below, above)
        mixed = [(1 - part) * a + part * b for a, b in zip(below[3:], above[3:], strict=True)]
        grams = [shared_out(one.logits, self.counts)[:2] for one in ends]
        left, right = ((1 - part) * a + part * b for a, b in zip(*grams, strict=True))
        loss = max(0.0, *(one.lower - one.weight * norm for one in ends))
        return Solved(
            logits=mixed[0],
            bias=mixed[1],
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

    def _one(self, number: int) -> _Solved:
        if number not in self._solved:
            one = with_weight(self.program, self.top * STEP**number)
            found = solve(one, gap=1e-7)
            logits = expanded(found.point, self.place)
            norm = nuclear_norm(one, found.point)
            bias = found.point.bias[self.place]
            self._solved[number] = _Solved(one.weight, norm, found.lower, logits, bias)
        return self._solved[number]


@lru_cache(maxsize=KEPT)
def target_path(counts: tuple[float, ...], biased: bool) -> TargetPath:
    """The path of these counts, the same one each time."""
    return TargetPath(counts, biased)
