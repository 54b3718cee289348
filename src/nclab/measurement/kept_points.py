"""A few features of every class, kept while a stream passes, for the picture in 3-D."""

from typing import Any

import torch
from torch import Tensor

from nclab.measurement.geometry import geometry
from nclab.statistics import ClassMoments


class KeptPoints:
    """The newest features of every class, about so many in all; one each where classes are many.

    >>> points = KeptPoints(4)
    >>> points.add(torch.arange(10.0)[:, None], torch.arange(10) % 2, num_classes=2)
    >>> points.rows.flatten().tolist(), points.labels.tolist()
    ([6.0, 8.0, 7.0, 9.0], [0, 0, 1, 1])
    """

    def __init__(self, points: int) -> None:
        self.points = points
        self.rows = torch.empty(0)
        """(n, d) by class, so that the same class stands at the same place in every picture."""
        self.labels = torch.empty(0, dtype=torch.int64)

    def add(self, rows: Tensor, labels: Tensor, *, num_classes: int) -> None:
        """Take the newest of a batch; labels below 0 or beyond the number asked for are none."""
        each = max(1, self.points // max(1, num_classes))
        labels = labels.to("cpu", torch.int64)
        new = _newest(torch.where(labels < self.points, labels, -1), each)
        fresh = rows.detach()[new.to(rows.device)].to("cpu", torch.float32, copy=True)
        all_ = torch.cat([self.labels, labels[new]])
        kept = _newest(all_, each)
        self.rows = torch.cat([self.rows, fresh])[kept] if len(self.labels) else fresh[kept]
        self.labels = all_[kept]

    def picture(self, moments: ClassMoments, weight: Tensor | None) -> dict[str, Any] | None:
        """The picture, with the class means of the whole stream; None of fewer than two classes."""
        counted = (moments.counts > 0).cpu()
        there = counted[self.labels] if len(self.labels) else self.labels.bool()
        rows, labels = self.rows[there], self.labels[there]
        if len(labels.unique()) < 2:
            return None
        own = None if weight is None else weight.cpu()
        return geometry(rows, labels, own, points=len(rows), means=moments.means.cpu())


def _newest(labels: Tensor, each: int) -> Tensor:
    """The places of the last so many of every class, by class and then in their order."""
    order = labels.argsort(stable=True)
    sizes = torch.unique_consecutive(labels[order], return_counts=True)[1]
    ends = sizes.cumsum(0).repeat_interleave(sizes)
    last = torch.arange(len(order)) >= ends - each
    return order[last & (labels[order] >= 0)]
