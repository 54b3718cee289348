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
    """Logits of a balanced geometry at scale 1."""

    name: str
    logits: Tensor
    """(C, C)."""


def shapes(num_classes: int) -> list[Geometry]:
    """Return the geometries with a known cost: simplex ETF, orthoplex for even C, polygon.

    >>> [shape.name for shape in shapes(6)]
    ['simplex ETF', 'orthoplex', 'polygon']
    """
    C = num_classes
    identity = torch.eye(C, dtype=torch.float64)
    geometries = [Geometry("simplex ETF", identity - 1 / C)]
    if C % 2 == 0 and C > 2:
        pair = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
        half = torch.eye(C // 2, dtype=torch.float64)
        geometries.append(Geometry("orthoplex", torch.kron(pair, half)))
    if C > 4:  # for four classes the polygon is the orthoplex
        angles = torch.arange(C, dtype=torch.float64) * 2 * math.pi / C
        geometries.append(Geometry("polygon", (angles[:, None] - angles).cos()))
    return geometries


def best_size(cost: Callable[[float], float], most: float) -> tuple[float, float]:
    """Return the size in [0, most] with the smallest cost, and that cost.

    A scan over a grid finds the region, a bounded minimiser refines the size.
    """
    best = min((most * (k / GRID) for k in range(GRID + 1)), key=cost)
    bounds = (max(0.0, best - most / GRID), best + most / GRID)
    minimum = minimize_scalar(cost, bounds=bounds, options={"xatol": 1e-12})
    size = float(minimum.x) if minimum.fun < cost(best) else best
    return size, cost(size)


def shape_value(setting: Setting, shape: Geometry, weight: float) -> tuple[float, float]:
    """Return size and objective of the best logits of a geometry.

    The penalty of F factors is F/2 lambda sum of sigma^(2/F).
    """
    values = torch.linalg.svdvals(shape.logits * setting.metric.sqrt())
    values = values[values > 1e-9 * values.max()]
    F = setting.factors
    rank = float((values ** (2 / F)).sum())

    def cost(size: float) -> float:
        loss = float(setting.counts @ losses(setting, size * shape.logits)) / setting.samples
        return loss + F / 2 * weight * rank * size ** (2 / F)

    spread = float(shape.logits.max() - shape.logits.min())
    margin = float((shape.logits.diagonal()[0] - shape.logits[1:, 0]).min())
    largest = math.log(1 / weight) + math.log(setting.num_classes) + 10
    return best_size(cost, largest / max(margin, 0.02 * spread))


def solve_deep_linear(setting: Setting, weight: float) -> Solution:
    """Return the lowest of the known geometries and of random starts, and name it."""
    known = []
    if setting.balanced:
        for shape in shapes(setting.num_classes):
            rank = int(torch.linalg.matrix_rank(shape.logits))
            if setting.dim is None or rank <= setting.dim:
                known.append((*shape_value(setting, shape, weight), shape))
    solution, starts = search(setting), number_of_starts(setting)
    objectives = [f"{shape.name} {value:.9g}" for _, value, shape in known]
    objectives.append(f"{starts} random starts {solution.loss + solution.penalty:.9g}")
    notes = ("objectives: " + ", ".join(objectives),)
    if known:
        size, value, shape = min(known, key=lambda entry: entry[1])
        if value <= (solution.loss + solution.penalty) * (1 + 1e-9):
            return _of_shape(setting, shape, size, weight)._replace(
                proof=f"lowest of known geometries and {starts} starts: no proof", notes=notes
            )
    values = torch.linalg.svdvals(solution.logits * setting.metric.sqrt())
    rank = int((values > 1e-4 * values.max().clamp(min=1e-12)).sum())
    return solution._replace(geometry=f"rank {rank}, found by search", notes=notes)


def _of_shape(setting: Setting, shape: Geometry, size: float, weight: float) -> Solution:
    """Return the solution for one geometry at a given size."""
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
        geometry=shape.name if size > 0 else "zero",
        source="docs/targets.md, deep linear heads",
        norm=float(values.sum()),
        weight=weight,
    )
