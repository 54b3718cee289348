"""The null: the same metrics of the same features once the labels say nothing."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import Extras, gather
from nclab.measurement.row_order import RowOrder
from nclab.metrics.catalogue import EXTRAS, METRICS, plugin_metrics
from nclab.statistics import ClassMoments, DirectionalSpread, LogitStatistics, SecondPass

if TYPE_CHECKING:
    from nclab.measurement.layer_stream import Head

SEED = 20_231_117
TOO_MANY = 0.1
"""Share of samples beyond chance that keep their label on average; more is no null."""
NOT_MIXED = (
    "No null: the batches hardly mix the classes, so that shuffled labels stay what they were. "
    "Shuffle the loader."
)


class Shuffled:
    """The statistics of one layer under shuffled labels, beside the stream of the true ones.

    Labels that are known at the start, and checked, are shuffled as a whole, others within their
    batch. Costs
    a second measurement, in time and memory.
    """

    def __init__(
        self,
        moments: ClassMoments,
        head: "Head | None",
        extras: Extras,
        *,
        labels: Tensor | None = None,
    ) -> None:
        self._like, self._head, self._extras = moments, head, extras
        self._moments = empty_like(moments)
        self._logits: LogitStatistics | None = None
        self._look: SecondPass | None = None
        self._spread: DirectionalSpread | None = None
        self._order = RowOrder()
        self._rows = self._again = 0
        self._kept = 0.0  # labels that shuffling leaves as they are, on average
        self._all: Tensor | None = None
        if labels is not None:
            counted = (
                labels if moments.ignore_index is None else labels[labels != moments.ignore_index]
            )
            self._all = counted[torch.randperm(len(counted), generator=_generator(0))]

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """First pass."""
        size = self._like.num_classes
        if self._all is not None and len(self._all):
            size = max(size, int(self._all.max()) + 1)
        if self._moments.num_classes < size:
            self._moments.grow(size)
        other = self._labels(classes, self._rows)
        self._moments.add_checked(rows, other)
        if self._head is not None:
            self._logits = self._logits or logits_like(self._moments)
            self._logits.update(self._head.logits(rows.to(self._head.weight)), other)
        self._order.add(classes)
        if self._all is None and len(rows):
            self._kept += float(classes.bincount().double().square().sum()) / len(rows)
        self._rows += len(rows)

    def look(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Second pass."""
        other = self._labels(classes, self._again)
        self._look = self._look or SecondPass(self._moments)
        self._look.add_checked(rows, other, predicted)
        if self._extras.directional:
            self._spread = self._spread or DirectionalSpread(self._moments)
            self._spread.add_checked(rows, other)
        self._order.look(classes)
        self._again += len(rows)

    def attached(self, collapse: Collapse) -> Collapse:
        """The measurement with `null`, or with the reason why it has none."""
        shares = self._moments.counts.double() / max(1, self._rows)
        by_chance = float(shares.square().sum())
        if self._kept > (by_chance + TOO_MANY) * self._rows:
            return replace(collapse, warnings=(*collapse.warnings, NOT_MIXED))
        same = self._look is None or self._order.same
        found = gather(
            self._moments,
            weight=None if self._head is None else self._head.weight,
            logits=self._logits,
            look=self._look if same else None,
            extras=self._extras._replace(spread=self._spread if same else None),
        )
        fixed = [
            metric.name for metric in (*METRICS, *plugin_metrics(), *EXTRAS) if metric.of_weights
        ]
        null = {name: None if name in fixed else value for name, value in found.values.items()}
        return replace(collapse, null=null)

    def _labels(self, classes: Tensor, seen: int) -> Tensor:
        """The shuffled labels of a batch that comes after `seen` rows."""
        if self._all is not None:
            return self._all[seen : seen + len(classes)].to(classes.device)
        order = torch.randperm(len(classes), generator=_generator(seen))
        return classes[order.to(classes.device)]


def empty_like(moments: ClassMoments) -> ClassMoments:
    """Moments of the same kind that have seen nothing."""
    return ClassMoments(
        moments.num_classes,
        moments.dim,
        scatter=moments.has_scatter,
        ignore_index=moments.ignore_index,
        device=moments.device,
    )


def logits_like(moments: ClassMoments) -> LogitStatistics:
    """Empty statistics of logits beside moments."""
    return LogitStatistics(
        moments.num_classes, ignore_index=moments.ignore_index, device=moments.device
    )


def _generator(place: int) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + place)
