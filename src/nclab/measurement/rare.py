"""Rare: classes with too few samples, left out between the first pass and the second."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics import ClassMoments, LogitStatistics

SHOWN = 10
"""Classes that a warning lists."""


@dataclass
class Rare:
    """Classes that are left out, and what is known of them."""

    classes: Tensor
    """(k,) their numbers, in order."""
    samples: int
    """Of all of them together."""
    min_count: int
    loss: float | None = None
    """Their mean cross-entropy, where it is known."""
    means: Tensor | None = None
    """(k, d) their means; None where their rows were never counted."""
    scatter: Tensor | None = None
    """(d, d) around these, as far as the second pass has come; None if nobody wants it."""

    @classmethod
    def among(cls, counts: Tensor, min_count: int) -> "Rare | None":
        """Classes with samples, but fewer than `min_count`, of (C,) counts; two others must stay.

        >>> Rare.among(torch.tensor([5, 0, 1, 3]), 2).classes.tolist()
        [2]
        """
        classes = ((counts > 0) & (counts < min_count)).nonzero().flatten()
        if not len(classes):
            return None
        if int((counts >= min_count).sum()) < 2:
            raise DataError(
                f"Expected 2 classes with min_count={min_count} samples, the largest has "
                f"{int(counts.max())}. Take more data, or a smaller min_count."
            )
        return cls(classes, int(counts[classes].sum()), min_count)

    @classmethod
    def forgotten(
        cls, moments: ClassMoments, logits: LogitStatistics | None, min_count: int
    ) -> "Rare | None":
        """The same, taken out of sums that have them."""
        rare = cls.among(moments.counts, min_count)
        if rare is None:
            return None
        own = rare.classes
        if logits is not None:
            seen = int(logits.counts[own].sum())
            rare.loss = float(logits.loss_sums[own].sum()) / seen if seen else None
            for sums in (logits.counts, logits.correct, logits.loss_sums):
                sums[own] = 0
            logits.margins[own] = torch.inf
        rare.means = moments.remove_classes(own)
        rare.scatter = rare.means.new_zeros(moments.dim, moments.dim)
        return rare

    def taken_off(
        self, rows: Tensor, labels: Tensor, predicted: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """A batch of the second pass without them, after a look at their scatter."""
        labels = labels.to(self.classes.device)
        place = torch.searchsorted(self.classes, labels).clamp_max(len(self.classes) - 1)
        own = self.classes[place] == labels
        if not bool(own.any()):
            return rows, labels, predicted
        here = own.to(rows.device)
        if self.scatter is not None and self.means is not None:
            apart = rows[here].to(self.means) - self.means[place[own]]
            self.scatter.addmm_(apart.T, apart)
        kept = None if predicted is None else predicted[~own.to(predicted.device)]
        return rows[~here], labels[~own], kept

    def __str__(self) -> str:
        loss = "" if self.loss is None else f", mean loss {self.loss:.4g}"
        some = [int(one) for one in self.classes[:SHOWN]]
        return (
            f"Left out {len(self.classes)} classes with fewer than {self.min_count} samples "
            f"({self.samples} samples{loss}): {some}."
        )
