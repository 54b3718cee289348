"""Deep linear heads under cross-entropy: the simplex ETF against geometries of lower rank."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from nclab.theory.targets.search import losses, number_of_starts, search
from nclab.theory.targets.setting import Setting, Solution, factor_grams

GRID = 240


class Geometry(NamedTuple):
    """Logits of a balanced geometry at size 1."""

    name: str
    logits: Tensor
    """(C, C)."""


def shapes(num_classes: int) -> list[Geometry]:
    """The geometries whose cost is known: ETF, orthoplex for even C, polygon.

    >>> [shape.name for shape in shapes(6)]
    ['simplex ETF', 'orthoplex', 'polygon']
    """
    C = num_classes
    one = torch.eye(C, dtype=torch.float64)
    found = [Geometry("simplex ETF", one - 1 / C)]
    if C % 2 == 0 and C > 2:
        pair = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
        half = torch.eye(C // 2, dtype=torch.float64)
        found.append(Geometry("orthoplex", torch.kron(pair, half)))
    if C > 4:  # of four it is the orthoplex
        turn = torch.arange(C, dtype=torch.float64) * 2 * math.pi / C
        found.append(Geometry("polygon", (turn[:, None] - turn).cos()))
    return found


def best_size(
    cost: Callable[[float], float], most: float, *, lowest: float = 0.0
) -> tuple[float, float]:
    """The size in [0, most] with the smallest cost, and the cost; a scan, then refined."""
    grid = [lowest + (most - lowest) * (k / GRID) for k in range(GRID + 1)]
    best = min(grid, key=cost)
    width = (most - lowest) / GRID
    found = minimize_scalar(
        cost, bounds=(max(lowest, best - width), best + width), options={"xatol": 1e-12}
    )
    return (float(found.x), float(found.fun)) if found.fun < cost(best) else (best, cost(best))


def shape_value(setting: Setting, shape: Geometry, weight: float) -> tuple[float, float]:
    """Size and objective of the best logits of a shape.

    The penalty of F factors is F/2 lambda sum of sigma^(2/F).
    """
    values = torch.linalg.svdvals(shape.logits * setting.metric.sqrt())
    values = values[values > 1e-9 * values.max()]
    F = setting.factors
    rank = float((values ** (2 / F)).sum())

    def cost(size: float) -> float:
        loss = float(setting.counts @ losses(setting, size * shape.logits)) / setting.samples
        return loss + F / 2 * weight * rank * size ** (2 / F)

    top = float(shape.logits.max() - shape.logits.min())
    least = float((shape.logits.diagonal()[0] - shape.logits[1:, 0]).min())
    most = (math.log(1 / weight) + math.log(setting.num_classes) + 10) / max(least, 0.02 * top)
    return best_size(cost, most)


def solve_deep_linear(setting: Setting, weight: float) -> Solution:
    """The lowest of the known geometries and of random starts, and which it is."""
    known = []
    if setting.balanced:
        for shape in shapes(setting.num_classes):
            rank = int(torch.linalg.matrix_rank(shape.logits))
            if setting.dim is None or rank <= setting.dim:
                known.append((*shape_value(setting, shape, weight), shape))
    found, starts = search(setting), number_of_starts(setting)
    words = [f"{shape.name} {value:.9g}" for _, value, shape in known]
    words.append(f"{starts} random starts {found.loss + found.penalty:.9g}")
    notes = ("objectives: " + ", ".join(words),)
    if known:
        size, value, shape = min(known, key=lambda one: one[1])
        if value <= (found.loss + found.penalty) * (1 + 1e-9):
            return _of_shape(setting, shape, size, weight)._replace(
                proof=f"lowest of known geometries and {starts} starts: no proof", notes=notes
            )
    values = torch.linalg.svdvals(found.logits * setting.metric.sqrt())
    rank = int((values > 1e-4 * values.max().clamp(min=1e-12)).sum())
    return found._replace(geometry=f"rank {rank}, found by search", notes=notes)


def _of_shape(setting: Setting, shape: Geometry, size: float, weight: float) -> Solution:
    logits = size * shape.logits
    left, right, values = factor_grams(logits, setting.metric, setting.factors)
    values = torch.where(values > 1e-9 * values.max().clamp(min=1e-300), values, 0.0)
    F = setting.factors
    return Solution(
        logits=logits,
        bias=torch.zeros_like(setting.counts),
        loss=float(setting.counts @ losses(setting, logits)) / setting.samples,
        penalty=F / 2 * weight * float((values ** (2 / F)).sum()),
        left=left,
        right=right,
        lower=None,
        proof="",
        geometry=shape.name if size > 0 else "zero",
        source="docs/targets.md, deep linear heads",
        norm=float(values.sum()),
        weight=weight,
    )
