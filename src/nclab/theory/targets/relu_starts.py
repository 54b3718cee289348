"""Starts for deep ReLU heads: what layers carry is a few vertices, and classes are sets of them."""

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

PLANE = 7
"""Classes of `plane`."""


def from_graph(num_classes: int, vertices: int, depth: int, scale: float) -> list[Tensor]:
    """All weights where classes are the edges of a complete graph, and the same stirred a little.

    Logits are `scale` times the identity.
    """
    edges = torch.combinations(torch.arange(vertices))
    X = torch.zeros(len(edges), vertices, dtype=torch.float64).scatter_(1, edges, 1.0)
    last = torch.eye(num_classes, dtype=torch.float64)
    start = _weights(X.T, X - 0.5, last, depth, scale)
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(0)).double()
    return [start, start + 1e-3 * noise]


def plane() -> tuple[Tensor, Tensor]:
    """Seven classes of four vertices: what the layers carry (4, 7), and who reads it (7, 4).

    One class is the last vertex, three are edges to it, three the edges of the triangle of the
    others. The units of a column read its own class and, each with one other sign, the lines of a
    Fano plane: {ij, i, j}, {i, none}, {all pairs}; the last map undoes the mixture. Seen where
    random descents end below collapse; the numbers are rounded, descent finds their digits.

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
    """Weights where seven classes are a plane and the others random sets of its and new vertices.

    A new vertex for every three other classes. Needs C >= 7 and three maps.
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
    """Features and maps as one vector of C x C matrices of equal norms, padded with zeros."""
    left, values, right = torch.linalg.svd(carried, full_matrices=False)
    roots = values.sqrt()
    same = torch.eye(len(carried), dtype=torch.float64)
    parts = [roots[:, None] * right, left * roots, *[same] * (depth - 3), readers, last]
    norms = [float(part.norm()) for part in parts]
    level = (scale * math.prod(norms)) ** (1 / len(parts))
    C = len(last)
    full = torch.zeros(len(parts), C, C, dtype=torch.float64)
    for place, part, norm in zip(full, parts, norms, strict=True):
        place[: part.shape[0], : part.shape[1]] = part * (level / norm)
    return full.flatten()
