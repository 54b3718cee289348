"""The 3-D picture of neural collapse: features, class means, classifier and simplex."""

import math
from typing import Any

import torch
from torch import Tensor

from nclab.statistics import ClassMoments
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels, as_tensor

DIGITS = 4
"""Decimal digits of the coordinates."""
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
TINY = 1e-7
"""Directions in which class means spread less than this share of their largest spread are ignored
as rounding errors."""


def geometry(
    features: Any,
    labels: Any,
    weight: Any = None,
    *,
    points: int = 200,
    means: Tensor | None = None,
) -> dict[str, Any]:
    r"""Project features, class means, classifier and simplex to 3-D, as plain JSON values.

    The means M are centred. With their Gram matrix $G = M M^\top$ and fixed vertices K, whose
    columns are orthonormal and orthogonal to 1, the axes are $B = M^\top G^{-1/2} K$. So the means
    appear as $G^{1/2} K$ and the nearest simplex as K itself, and successive pictures of a training
    do not flip or jump. For C = 4 the projection is exact, because four centred means span three
    dimensions; `share` is the visible share of their variance. For C = 2 and 3 the leading
    directions of the residuals of the features are the remaining axes.

    Means and features have one scale, on which the means have root mean square norm 1 before
    the projection. The rows of the classifier are scaled to the same norm. Points are the first
    samples of every class. Pass `means`, one row per label, if the class means come from more
    features than these.

    Source: pan2023, Fig. 1.2

    >>> corners = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    >>> picture = geometry(corners.repeat(5, 1), [0, 1, 2, 3] * 5, corners, points=8)
    >>> same = picture["means"] == picture["etf"] == picture["weights"]
    >>> picture["share"], same, len(picture["points"])
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
    per_class = max(1, points // max(1, len(present)))
    first = [(y == label).nonzero().flatten()[:per_class] for label in present]
    chosen = torch.cat(first).sort().values
    cloud = H[chosen].double() - centre
    basis, simplex = _axes(M, cloud - M[torch.searchsorted(present, y[chosen])])
    size = _rms(M)
    rows = torch.empty(0, M.shape[1], dtype=torch.float64)
    if weight is not None:
        W = as_tensor(weight, "weight").detach().to(M)
        rows = (W - W.mean(0))[present]
    projected = M @ basis
    share = float(projected.square().sum() / M.square().sum()) if size else 0.0
    return {
        "share": round(share, DIGITS),
        "classes": len(present),
        "points": _rounded(cloud @ basis, size),
        "labels": y[chosen].tolist(),
        "means": _rounded(projected, size),
        "weights": _rounded(rows.to(M) @ basis, _rms(rows)),
        "etf": _rounded(simplex, 1.0),
    }


def vertices(classes: int) -> Tensor:
    """Return (C, 3) points K: segment, triangle or tetrahedron for C = 2 to 4, else on a sphere.

    The columns are orthogonal to the vector of ones and orthonormal, except that two columns are
    zero for C = 2, and one for C = 3.

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
        spiral = [(math.sqrt(1 - z * z), GOLDEN_ANGLE * k, z) for k, z in enumerate(heights)]
        spread = [[out * math.cos(a), out * math.sin(a), z] for out, a, z in spiral]
    points = torch.tensor(spread, dtype=torch.float64)
    points = points - points.mean(0)
    values, vectors = torch.linalg.eigh(points.T @ points)
    root = torch.where(values > TINY, values.clamp(min=TINY).rsqrt(), torch.zeros_like(values))
    return points @ (vectors * root) @ vectors.T


def _axes(M: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
    """Return (d, 3) directions of the axes, and (C, 3) vertices of the nearest simplex.

    The vertices have root mean square norm 1.
    """
    classes = len(M)
    K = vertices(classes).to(M) if classes > 1 else torch.zeros(classes, 3).to(M)
    values, vectors = torch.linalg.eigh(M @ M.T)
    present = values > TINY**2 * values.max().clamp(min=1e-300)
    roots = torch.where(present, values.clamp(min=1e-300).rsqrt(), torch.zeros_like(values))
    basis = M.T @ ((vectors * roots) @ vectors.T @ K)
    empty = K.square().sum(0) < TINY
    if bool(empty.any()):
        basis[:, empty] = _leading(residuals, basis, int(empty.sum()))
    return basis, K * math.sqrt(classes / max(1, classes - 1))


def _leading(residuals: Tensor, basis: Tensor, count: int) -> Tensor:
    """Return (d, count) principal directions of residuals, orthogonal to `basis`, signs fixed."""
    outside = residuals - residuals @ basis @ basis.T
    directions = torch.linalg.svd(outside, full_matrices=False).Vh[:count]
    skewness = (outside @ directions.T).pow(3).sum(0)
    directions = directions * torch.where(skewness < 0, -1.0, 1.0)[:, None]
    padded = torch.zeros(count, basis.shape[0], dtype=basis.dtype, device=basis.device)
    padded[: len(directions)] = directions
    return padded.T


def _rms(rows: Tensor) -> float:
    return float(rows.square().sum(1).mean().sqrt()) if len(rows) else 0.0


def _rounded(rows: Tensor, size: float) -> list[list[float]]:
    scaled = rows / size if size else torch.zeros_like(rows)
    return [[round(value, DIGITS) + 0.0 for value in row] for row in scaled.tolist()]


class PointSample:
    """The newest features of every class, kept for the 3-D picture: about `points` in all.

    If there are more classes than points, each class has one feature, up to `points` classes.

    >>> sample = PointSample(4)
    >>> sample.add(torch.arange(10.0)[:, None], torch.arange(10) % 2, num_classes=2)
    >>> sample.rows.flatten().tolist(), sample.labels.tolist()
    ([6.0, 8.0, 7.0, 9.0], [0, 0, 1, 1])
    """

    def __init__(self, points: int) -> None:
        self.points = points
        self.rows = torch.empty(0)
        """(n, d) sorted by class, so that a class has the same rows in every picture."""
        self.labels = torch.empty(0, dtype=torch.int64)

    def add(self, rows: Tensor, labels: Tensor, *, num_classes: int) -> None:
        """Add a batch, keep the newest rows of every class; skip labels outside [0, `points`)."""
        per_class = max(1, self.points // max(1, num_classes))
        labels = labels.to("cpu", torch.int64)
        new = _newest(torch.where(labels < self.points, labels, -1), per_class)
        new_rows = rows.detach()[new.to(rows.device)].to("cpu", torch.float32, copy=True)
        all_labels = torch.cat([self.labels, labels[new]])
        newest = _newest(all_labels, per_class)
        if len(self.labels):
            self.rows = torch.cat([self.rows, new_rows])[newest]
        else:
            self.rows = new_rows[newest]
        self.labels = all_labels[newest]

    def picture(self, moments: ClassMoments, weight: Tensor | None) -> dict[str, Any] | None:
        """Return the picture with the class means of all samples; None if only one class exists."""
        counted = (moments.counts > 0).cpu()
        known = counted[self.labels] if len(self.labels) else self.labels.bool()
        rows, labels = self.rows[known], self.labels[known]
        if len(labels.unique()) < 2:
            return None
        classifier = None if weight is None else weight.cpu()
        return geometry(rows, labels, classifier, points=len(rows), means=moments.means.cpu())


def _newest(labels: Tensor, per_class: int) -> Tensor:
    """Return the indices of the last samples of every class, sorted by class."""
    order = labels.argsort(stable=True)
    sizes = torch.unique_consecutive(labels[order], return_counts=True)[1]
    ends = sizes.cumsum(0).repeat_interleave(sizes)
    last = torch.arange(len(order)) >= ends - per_class
    return order[last & (labels[order] >= 0)]
