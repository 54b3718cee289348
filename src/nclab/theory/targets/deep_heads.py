"""Optimum of deep heads, several linear maps after the features.

The simplex ETF is compared with geometries of lower rank, which can have a lower objective.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from nclab.theory.targets.closed_forms import shrunk
from nclab.theory.targets.search import losses, number_of_starts, search
from nclab.theory.targets.setting import Setting, Solution, factor_grams

GRID = 240


class Geometry(NamedTuple):
    """A geometry that treats all classes alike, with its logits up to a factor."""

    name: str
    logits: Tensor
    """(C, C) logits; column c holds those of class c."""


def shapes(num_classes: int) -> list[Geometry]:
    """Return the geometries to compare: simplex ETF, orthoplex (for even C) and polygon."""
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
    """Return the number in [0, most] with the smallest cost, and that cost.

    A scan over a grid finds the region of the minimum, and a bounded minimiser refines it.
    """
    best = min((most * (k / GRID) for k in range(GRID + 1)), key=cost)
    bounds = (max(0.0, best - most / GRID), best + most / GRID)
    minimum = minimize_scalar(cost, bounds=bounds, options={"xatol": 1e-12})
    size = float(minimum.x) if minimum.fun < cost(best) else best
    return size, cost(size)


def shape_value(setting: Setting, shape: Geometry, weight: float) -> tuple[float, float]:
    """Return the best factor for the logits of a geometry, and the objective with this factor.

    The penalty is F/2 lambda sum of sigma^(2/F), with F the number of linear maps plus 1 (for the
    features) and sigma the singular values of the logits.
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
    """Return the geometry with the lowest objective among known ones and random starts."""
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
    logits = size * shape.logits
    left, right, values = factor_grams(logits, setting.metric, setting.factors)
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


class DeepRelu(NamedTuple):
    """Objectives (loss plus weight decay) of two networks with ReLU between their linear maps."""

    collapse: float
    """Objective of a collapsed network: the class means are orthogonal in every layer."""
    graph: float | None
    """Objective of a network whose features have rank r before the last ReLU, for
    C = r (r - 1) / 2 classes; None for other C and for fewer than 3 maps."""


def deep_relu(num_classes: int, depth: int, decay: float) -> DeepRelu:
    r"""Return the objectives of two networks with ReLU between their linear maps.

    The comparison shows that a network without collapse can have the lower objective. Every class
    has one sample; the loss is half the mean squared error. The features and the L = `depth` linear
    maps are F = L + 1 factors, each with the weight decay $\lambda$ = `decay`.

    The collapsed network has orthogonal class means in every layer. The other network exists if
    C = r(r-1)/2. Its classes are the edges of the complete graph with r vertices. Let X be the
    C x r incidence matrix of edges and vertices. Since $\mathrm{ReLU}(XX^\top - 11^\top) = I$, the
    layers before the last ReLU only need to carry $X^\top$, of rank r. Its objective is

    $$\min_p \tfrac{(1-p)^2}{2} + \tfrac F2\lambda\Bigl(C\cdot\tfrac{Cr}4\cdot r^{L-3}\cdot
    \bigl(\sqrt{2(r-1)}+(r-1)\sqrt{r-2}\bigr)^2p^2\Bigr)^{1/F}$$

    where p is the logit of the correct class.
    """
    C, F = num_classes, depth + 1
    unit = torch.ones(1, dtype=torch.float64)
    sigma = float(shrunk(unit, C, decay, F))
    collapse = C * ((1 - sigma) ** 2 / (2 * C) + F / 2 * decay * sigma ** (2 / F))
    r = vertices(C)
    if r is None or r < 4 or depth < 3:
        return DeepRelu(collapse, None)
    first = math.sqrt(2 * (r - 1)) + (r - 1) * math.sqrt(r - 2)  # nuclear norm of two factors
    squared_norms = C * (C * r / 4) * float(r) ** (depth - 3) * first**2  # of all factors at p = 1
    base = F / 2 * decay * squared_norms ** (1 / F)
    # F/2 decay (K p^2)^(1/F); the loss is C (1 - p)^2 / (2 C).
    return DeepRelu(collapse, best_size(lambda p: (1 - p) ** 2 / 2 + base * p ** (2 / F), 1.0)[1])


def vertices(num_classes: int) -> int | None:
    """Return the number r of vertices whose complete graph has one edge per class, or None.

    The number r solves r (r - 1) / 2 = C.

    >>> vertices(10), vertices(11)
    (5, None)
    """
    r = round((1 + math.sqrt(1 + 8 * num_classes)) / 2)
    return r if r * (r - 1) == 2 * num_classes else None
