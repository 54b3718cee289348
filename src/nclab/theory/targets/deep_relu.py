"""Deep ReLU heads under mean squared error: neural collapse against lower-rank geometries."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.progress import track
from nclab.theory.targets.deep_linear import best_size
from nclab.theory.targets.descent import DescentResult, descend
from nclab.theory.targets.setting import Setting, Solution
from nclab.theory.targets.squared_error import shrunk

PLANE = 7
"""Number of classes of `plane`."""


def from_graph(num_classes: int, vertices: int, depth: int, scale: float) -> list[Tensor]:
    """Return weights whose classes are the edges of a complete graph, exact and with noise.

    Logits are `scale` times the identity.
    """
    edges = torch.combinations(torch.arange(vertices))
    X = torch.zeros(len(edges), vertices, dtype=torch.float64).scatter_(1, edges, 1.0)
    last = torch.eye(num_classes, dtype=torch.float64)
    start = _weights(X.T, X - 0.5, last, depth, scale)
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(0)).double()
    return [start, start + 1e-3 * noise]


def plane() -> tuple[Tensor, Tensor]:
    """Return the matrices of seven classes on four vertices: carried (4, 7) and readers (7, 4).

    One class is the last vertex, three are edges to it, three are the edges of the triangle of the
    other vertices. Each unit reads its own class and, with one sign reversed, a line of a Fano
    plane: {ij, i, j}, {i, none}, {all pairs}; the last map separates the classes again. The
    construction was found by random descents that end below collapse; its entries are rounded.

    >>> carried, readers = plane()
    >>> torch.linalg.matrix_rank((readers @ carried).relu()).item()
    7
    """
    carried = torch.zeros(4, PLANE, dtype=torch.float64)
    readers = torch.zeros(PLANE, 4, dtype=torch.float64)
    sets = [(), (0,), (1,), (2,), *combinations(range(3), 2)]
    for c, members in enumerate(sets):
        carried[list(members), c] = 1.0
        carried[3, c] = (1.25, 0.75, 0.0)[len(members)]
        readers[c, :3] = -0.5 if members else 0.5
        readers[c, list(members)] = 0.5
        readers[c, 3] = (-2 / 3, 2 / 3, 0.0)[len(members)]
    return carried, readers


def from_plane(num_classes: int, depth: int, scale: float, *, seeds: range) -> Iterator[Tensor]:
    """Yield weights with seven classes on a plane and the others on random vertex sets.

    There is one new vertex for every three other classes. Needs C >= 7 and three maps.
    """
    carried, readers = plane()
    others = num_classes - PLANE
    r = 4 + math.ceil(others / 3)
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        A = torch.zeros(r, num_classes, dtype=torch.float64)
        N = torch.zeros(num_classes, r, dtype=torch.float64)
        A[:4, :PLANE], N[:PLANE, :4] = carried, readers
        N[:PLANE, 4:] = -0.3 * torch.rand(PLANE, r - 4, generator=generator).double()
        members = (torch.rand(r, others, generator=generator) < 0.5).double()
        A[:, PLANE:] = 1.4 * members / members.sum(0).clamp(min=1).sqrt()
        N[PLANE:] = 0.5 * torch.randn(others, r, generator=generator).double()
        N[PLANE:] += 0.5 * (members.T - 0.5)
        start = _weights(A, N, torch.linalg.pinv((N @ A).relu(), rtol=1e-3), depth, scale)
        yield start + 1e-3 * torch.randn(start.shape, generator=generator).double()


def _weights(carried: Tensor, readers: Tensor, last: Tensor, depth: int, scale: float) -> Tensor:
    """Return features and maps as one vector of C x C matrices of equal norms, zero-padded."""
    left, values, right = torch.linalg.svd(carried, full_matrices=False)
    roots = values.sqrt()
    identity = torch.eye(len(carried), dtype=torch.float64)
    parts = [roots[:, None] * right, left * roots, *[identity] * (depth - 3), readers, last]
    norms = [float(part.norm()) for part in parts]
    level = (scale * math.prod(norms)) ** (1 / len(parts))
    C = len(last)
    full = torch.zeros(len(parts), C, C, dtype=torch.float64)
    for target, part, norm in zip(full, parts, norms, strict=True):
        target[: part.shape[0], : part.shape[1]] = part * (level / norm)
    return full.flatten()


REFINING = 20_000
"""Largest number of descent steps from the graph."""
RANDOM, SMALL = 4, 12
"""Number of random starts, and the largest number of classes that has any."""
PLANES, SHORT, LONG = 48, 250, 2
"""Number of starts from a plane, for at most `SMALL` classes; their steps; the number of best ones
that continue."""
ROUGH = 1e-10
"""Relative improvement below which the short descents stop."""
RANK = 1e-3
"""Relative size below which singular values count as zero."""
SOURCE = "docs/targets.md, deep ReLU heads; cf. Sukenik et al. 2024"


class DeepRelu(NamedTuple):
    """Objectives of the two constructions."""

    collapse: float
    """Objective with an orthogonal frame in every layer."""
    graph: float | None
    """Objective of rank r before the last ReLU, for C = r (r - 1) / 2 classes; None for other C and
    depths."""
    refined: float | None
    """Objective after descent over all weights from the graph."""


def deep_relu(num_classes: int, depth: int, decay: float, *, refine: bool = True) -> DeepRelu:
    r"""Return the objectives of two constructions for `depth` linear maps with ReLU between them.

    Every class has one sample, every factor the weight decay `decay`.

    Collapse: C times the problem of one singular value 1. Graph: X the incidence of the edges of
    the complete graph of r vertices, $\mathrm{ReLU}(XX^\top - 11^\top) = I$, so that
    the layers before the last carry $X^\top$ only, which has rank r:

    $$\min_p \tfrac{(1-p)^2}{2} + \tfrac F2\lambda\Bigl(C\cdot\tfrac{Cr}4\cdot r^{L-3}\cdot
    \bigl(\sqrt{2(r-1)}+(r-1)\sqrt{r-2}\bigr)^2p^2\Bigr)^{1/F}$$

    >>> result = deep_relu(6, 4, 0.001, refine=False)
    >>> round(result.collapse, 8), round(result.graph, 8)
    (0.01498193, 0.01443226)
    """
    C, F = num_classes, depth + 1
    unit = torch.ones(1, dtype=torch.float64)
    sigma = float(shrunk(unit, C, decay, F))
    collapse = C * ((1 - sigma) ** 2 / (2 * C) + F / 2 * decay * sigma ** (2 / F))
    r = vertices(C)
    if r is None or r < 4 or depth < 3:
        return DeepRelu(collapse, None, None)
    scale, graph = _graph(C, r, depth, decay)
    if not (refine and scale):
        return DeepRelu(collapse, graph, None)
    starts = from_graph(C, r, depth, scale)
    return DeepRelu(collapse, graph, min(_end(start, C, F, decay).value for start in starts))


def vertices(num_classes: int) -> int | None:
    """Return the r with r (r - 1) / 2 classes, or None.

    >>> vertices(10), vertices(11)
    (5, None)
    """
    r = round((1 + math.sqrt(1 + 8 * num_classes)) / 2)
    return r if r * (r - 1) == 2 * num_classes else None


def _graph(C: int, r: int, depth: int, decay: float, each: float = 1.0) -> tuple[float, float]:
    """Return logit and objective of the graph construction with `each` samples a class."""
    F = depth + 1
    first = math.sqrt(2 * (r - 1)) + (r - 1) * math.sqrt(r - 2)  # nuclear norm of two factors
    squared_norms = C * (C * r / 4) * float(r) ** (depth - 3) * first**2  # of all factors at p = 1
    base = F / 2 * decay * (each * squared_norms) ** (1 / F)
    # F/2 decay (K p^2)^(1/F); the loss is C (1 - p)^2 / (2 C).
    return best_size(lambda p: (1 - p) ** 2 / 2 + base * p ** (2 / F), 1.0)


def _end(
    start: Tensor, C: int, factors: int, decay: float, each: float = 1.0, *, steps: int = 0
) -> DescentResult:
    """Return the end of a descent over features and maps, all (C, C), with `each` samples a class.

    Features are multiplied by the root of `each`, so that all factors have the same penalty. With
    `steps`, the descent ends after that many steps, or when a step improves little.
    """
    labels, root = torch.eye(C, dtype=torch.float64), math.sqrt(each)

    def function(x: Tensor) -> tuple[float, Tensor]:  # a third of autograd's time
        chain = x.view(factors, C, C)
        outputs = [chain[0] / root]
        for weight in chain[1:-1]:
            outputs.append((weight @ outputs[-1]).relu())
        error = chain[-1] @ outputs[-1] - labels
        slopes = torch.empty_like(chain)
        gradient = error / C
        slopes[-1], gradient = gradient @ outputs[-1].T, chain[-1].T @ gradient
        for k in range(factors - 2, 0, -1):
            gradient = gradient * (outputs[k] > 0)
            slopes[k], gradient = gradient @ outputs[k - 1].T, chain[k].T @ gradient
        slopes[0] = gradient / root
        value = float(error.square().sum()) / (2 * C) + decay / 2 * float(x @ x)
        return value, torch.add(slopes.flatten(), x, alpha=decay)

    with one_thread():
        tolerance = ROUGH if steps else 1e-15
        return descend(function, start, steps=steps or REFINING, tolerance=tolerance, memory=30)


def _read(chain: Tensor, each: float) -> Tensor:
    """Return (C, C) the input of the last map, one column per class."""
    output = chain[0] / math.sqrt(each)
    for weight in chain[1:-1]:
        output = (weight @ output).relu()
    return output


def solve_deep_relu(setting: Setting, weight: float) -> Solution:
    """Return the lowest of collapse, graph and descents from graph, plane and random starts."""
    if not setting.balanced or setting.bias is not None:
        raise DataError(
            "Expected equal counts= and bias=None for deep ReLU heads: "
            "other settings have no known optimum."
        )
    C, F, m = setting.num_classes, setting.factors, float(setting.counts[0])
    if setting.dim is not None and setting.dim < C:
        raise DataError(
            f"Expected dim of at least {C}, the number of classes, for deep ReLU heads, got "
            f"{setting.dim}: narrower heads have no known optimum."
        )
    sigma = shrunk(setting.counts.sqrt(), setting.samples, weight, F)
    loss = float((sigma - math.sqrt(m)).square().sum()) / (2 * setting.samples)
    penalty = F / 2 * weight * float((sigma ** (2 / F)).sum())
    rows, read = sigma ** (2 / F), sigma ** (2 - 2 / F) / m
    value, r = loss + penalty, vertices(C)
    solution = Solution(
        logits=(sigma / math.sqrt(m)).diag(),
        bias=torch.zeros_like(setting.counts),
        loss=loss,
        penalty=penalty,
        left=rows.diag(),
        right=read.diag(),
        geometry="orthogonal frame in every layer",
        source=SOURCE,
        norm=float(sigma.sum()),
        weight=weight,
    )
    objectives, starts = [f"orthogonal frames {value:.9g}"], []
    if r is not None and r >= 4 and setting.depth >= 3:
        p, graph = _graph(C, r, setting.depth, weight, m)
        objectives.append(f"strongly regular graph {graph:.9g}")
        starts = from_graph(C, r, setting.depth, p * math.sqrt(m)) if p else []
    random = RANDOM if C <= SMALL and setting.depth >= 2 else 0
    for seed in range(random):
        generator = torch.Generator().manual_seed(seed)
        starts.append(torch.randn(F * C * C, generator=generator).double())
    planes = 0
    if PLANE <= C <= SMALL and setting.depth >= 3:
        planes = PLANES if C > PLANE else LONG  # seven classes have no random sets
    short_ends = [
        _end(start, C, F, weight, m, steps=SHORT)
        for start in from_plane(C, setting.depth, math.sqrt(m), seeds=range(planes))
    ]
    starts += [end.point for end in sorted(short_ends, key=lambda end: end.value)[:LONG]]
    ends = [_end(start, C, F, weight, m, steps=REFINING) for start in track(starts, "starts")]
    number_of_ends = len(ends) + max(planes - LONG, 0)
    proof = f"lowest of known geometries and {number_of_ends} starts: no proof"
    if ends:
        best = _end(min(ends, key=lambda end: end.value).point, C, F, weight, m)
        objectives.append(f"{number_of_ends} starts {best.value:.9g}")
        if best.value < value * (1 - 1e-9):
            solution = _of_end(solution, best, F, m)
    return solution._replace(proof=proof, notes=("objectives: " + ", ".join(objectives),))


def _of_end(solution: Solution, end: DescentResult, factors: int, each: float) -> Solution:
    """Return the solution at the end of a descent, with the rank of the input of the last ReLU."""
    C = len(solution.bias)
    chain = end.point.view(factors, C, C)
    inputs = chain[-2] @ _read(chain[:-1], each)
    values = torch.linalg.svdvals(inputs)
    rank = int((values > RANK * values[0]).sum())
    outputs = _read(chain, each)
    logits = chain[-1] @ outputs
    loss = float((logits - torch.eye(C, dtype=torch.float64)).square().sum()) / (2 * C)
    return solution._replace(
        logits=logits,
        loss=loss,
        penalty=end.value - loss,
        left=chain[-1] @ chain[-1].T,
        right=outputs.T @ outputs,
        geometry=f"rank {rank} before the last ReLU, found by descent",
        norm=float(torch.linalg.svdvals(logits).sum()) * math.sqrt(each),
    )
