"""The picture of neural collapse: features, class means, classifier and simplex in 3-D."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels, as_tensor

DIGITS = 4
GOLDEN = math.pi * (3 - math.sqrt(5))
TINY = 1e-7
"""Directions of the means this much weaker than the strongest are rounding."""


def geometry(
    features: Any,
    labels: Any,
    weight: Any = None,
    *,
    points: int = 200,
    means: Tensor | None = None,
) -> dict[str, Any]:
    r"""Features and what they collapse to, in three dimensions, as plain JSON values.

    Means M are centred. With their Gram matrix $G = M M^\top$ and fixed vertices K, columns
    orthonormal and orthogonal to 1, the axes are $B = M^\top G^{-1/2} K$, so the means appear as
    $G^{1/2} K$ and the simplex nearest to them as K itself: no picture of a training flips or
    jumps against the one before. For C = 4 this is exact, as four centred means span three
    dimensions; `share` says how much of their variance is seen. For C = 2 and 3 the leading
    directions of what is left of the features fill up.

    Means and features are on one scale, on which the means have root mean square norm 1 before
    the projection; the rows of the classifier are scaled to the same. Points are the first of
    every class. `means`, a row for every label, are those of more features than are given here.

    Source: pan2023, Fig. 1.2

    >>> corners = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    >>> seen = geometry(corners.repeat(5, 1), [0, 1, 2, 3] * 5, corners, points=8)
    >>> seen["share"], seen["means"] == seen["etf"] == seen["weights"], len(seen["points"])
    (1.0, True, 8)
    """
    H = as_features(features)
    y = as_labels(labels, rows=len(H), ignore_index=IGNORE_INDEX).to(H.device)
    present = y.unique()
    present = present[present >= 0]
    if means is None:
        M = torch.stack([H[y == label].double().mean(0) for label in present])
    else:
        M = means[present].double()
    centre = M.mean(0)
    M = M - centre
    chosen = _first_of_each(y, present, max(1, points // max(1, len(present))))
    cloud = H[chosen].double() - centre
    places = torch.searchsorted(present, y[chosen])
    axes = _axes(M, cloud - M[places])
    size = _rms(M)
    rows = torch.empty(0, M.shape[1], dtype=torch.float64)
    if weight is not None:
        W = as_tensor(weight, "weight").detach().to(M)
        rows = (W - W.mean(0))[present]
    seen = M @ axes.basis
    return {
        "share": round(float(seen.square().sum() / M.square().sum()), DIGITS) if size else 0.0,
        "classes": len(present),
        "points": _rounded(cloud @ axes.basis, size),
        "labels": y[chosen].tolist(),
        "means": _rounded(seen, size),
        "weights": _rounded(rows.to(M) @ axes.basis, _rms(rows)),
        "etf": _rounded(axes.vertices, 1.0),
    }


def vertices(classes: int) -> Tensor:
    """(C, 3) the vertices K: a segment, a triangle, a tetrahedron; then evenly over a sphere.

    Columns are orthogonal to 1 and orthonormal but for those that a segment or a triangle lacks.

    >>> bool(torch.allclose(vertices(7).T @ vertices(7), torch.eye(3, dtype=torch.float64)))
    True
    """
    thirds = [2 * math.pi * k / 3 for k in range(3)]
    if classes == 2:
        spread = [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    elif classes == 3:
        spread = [[math.cos(a), math.sin(a), 0.0] for a in thirds]
    elif classes == 4:
        low, out = -1 / 3, math.sqrt(8) / 3
        spread = [[0.0, 0.0, 1.0], *([out * math.cos(a), out * math.sin(a), low] for a in thirds)]
    else:
        heights = [1 - (2 * k + 1) / classes for k in range(classes)]
        turns = [(math.sqrt(1 - z * z), GOLDEN * k, z) for k, z in enumerate(heights)]
        spread = [[out * math.cos(a), out * math.sin(a), z] for out, a, z in turns]
    points = torch.tensor(spread, dtype=torch.float64)
    points = points - points.mean(0)
    values, vectors = torch.linalg.eigh(points.T @ points)
    root = torch.where(values > TINY, values.clamp(min=TINY).rsqrt(), torch.zeros_like(values))
    return points @ (vectors * root) @ vectors.T


class _Axes(NamedTuple):
    basis: Tensor
    """(d, 3)."""
    vertices: Tensor
    """(C, 3) the nearest simplex with root mean square norm 1."""


def _axes(M: Tensor, residuals: Tensor) -> _Axes:
    classes = len(M)
    K = vertices(classes).to(M) if classes > 1 else torch.zeros(classes, 3).to(M)
    values, vectors = torch.linalg.eigh(M @ M.T)
    kept = values > TINY**2 * values.max().clamp(min=1e-300)
    roots = torch.where(kept, values.clamp(min=1e-300).rsqrt(), torch.zeros_like(values))
    basis = M.T @ ((vectors * roots) @ vectors.T @ K)
    empty = K.square().sum(0) < TINY
    if bool(empty.any()):
        basis[:, empty] = _leading(residuals, basis, int(empty.sum()))
    return _Axes(basis, K * math.sqrt(classes / max(1, classes - 1)))


def _leading(residuals: Tensor, basis: Tensor, count: int) -> Tensor:
    """(d, count) principal directions of the residuals off the axes found, with fixed signs."""
    off = residuals - residuals @ basis @ basis.T
    found = torch.linalg.svd(off, full_matrices=False).Vh[:count]
    skew = (off @ found.T).pow(3).sum(0)
    found = found * torch.where(skew < 0, -1.0, 1.0)[:, None]
    padded = torch.zeros(count, basis.shape[0], dtype=basis.dtype, device=basis.device)
    padded[: len(found)] = found
    return padded.T


def _first_of_each(labels: Tensor, present: Tensor, each: int) -> Tensor:
    """Rows of the first samples of every class, in the order of the data."""
    rows = [(labels == label).nonzero().flatten()[:each] for label in present]
    return torch.cat(rows).sort().values


def _rms(rows: Tensor) -> float:
    return float(rows.square().sum(1).mean().sqrt()) if len(rows) else 0.0


def _rounded(rows: Tensor, size: float) -> list[list[float]]:
    scaled = rows / size if size else torch.zeros_like(rows)
    return [[round(value, DIGITS) + 0.0 for value in row] for row in scaled.tolist()]
