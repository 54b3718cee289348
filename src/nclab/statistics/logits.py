"""LogitStatistics: loss, accuracy and margin per class from a stream of logits."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import device_with_float64, row_blocks, rows_to_read
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Per-sample cross-entropy that keeps its digits however small it is.

    $$\ell = \log\bigl(1 + \sum_{j \ne y} e^{z_j - z_y}\bigr)$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); log C for equal logits.
    Invariant to: adding a constant to all logits of a sample.

    `-log_softmax` returns 0 once the loss is below 1e-16; this does not before 1e-300.

    >>> z = torch.tensor([[50.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    >>> [f"{loss:.4g}" for loss in cross_entropy(z, torch.tensor([0, 0])).tolist()]
    ['1.929e-22', '0.6931']
    """
    return _log1p_sum_exp(_gaps_to_label(logits, labels))


def _gaps_to_label(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, C) z_j - z_y, with -inf at j = y so that only the other classes count."""
    own = logits.gather(1, labels[:, None])
    return (logits - own).scatter_(1, labels[:, None], -torch.inf)


def _log1p_sum_exp(gaps: Tensor) -> Tensor:
    """(B,) log(1 + sum_j exp gap_j): the 1 is never added to something it would swallow."""
    return torch.logaddexp(gaps.new_zeros(()), gaps.logsumexp(1))


class LogitStatistics:
    """Per class the count, summed loss, correct predictions and smallest margin.

    Costs a few reads of the logits; memory O(C).

    >>> statistics = LogitStatistics(num_classes=2)
    >>> predicted = statistics.update([[2.0, 0.0], [0.0, 3.0]], [0, 1])
    >>> predicted.tolist(), statistics.margins.tolist()
    ([0, 1], [2.0, 3.0])
    """

    def __init__(
        self,
        num_classes: int,
        *,
        ignore_index: int | None = IGNORE_INDEX,
        device: torch.device | str = "cpu",
    ) -> None:
        device = device_with_float64(torch.device(device))
        self.ignore_index = ignore_index
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.correct = torch.zeros_like(self.counts)
        self.loss_sums = torch.zeros(num_classes, dtype=torch.float64, device=device)
        self.margins = torch.full_like(self.loss_sums, torch.inf)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.counts)

    def update(self, logits: Any, labels: Any) -> Tensor:
        """Add a batch of logits (B, C); returns the predicted classes of the counted rows."""
        logits = as_features(logits, dim=self.num_classes)
        labels = as_labels(
            labels, rows=len(logits), ignore_index=self.ignore_index, num_classes=self.num_classes
        ).to(self.counts.device)
        rows = rows_to_read(labels, self.ignore_index)
        blocks = row_blocks(logits, labels, self.counts.device, rows=rows)
        predicted = [self.add_checked(block, classes) for block, classes in blocks]
        return torch.cat(predicted) if predicted else labels[:0]

    def add_checked(self, logits: Tensor, classes: Tensor, targets: Tensor | None = None) -> Tensor:
        """`update` for one float64 block of logits whose labels are all in [0, C).

        With (B, C) targets, distributions over the classes, the loss is the cross-entropy with
        these: sum_j q_j (log sum exp z - z_j).
        """
        others = _gaps_to_label(logits, classes)
        losses = _log1p_sum_exp(others)
        if targets is not None:  # the loss of the label, and how far the others lie below it
            below = others.scatter(1, classes[:, None], 0.0)
            losses = losses * targets.sum(1) - (targets * below).sum(1)
        gaps = -others.amax(1)  # ji2022, Def. 3.1: z_y - max of the others
        predicted = logits.argmax(1)
        self.counts.add_(classes.bincount(minlength=self.num_classes))
        self.correct.add_(classes[predicted == classes].bincount(minlength=self.num_classes))
        self.loss_sums.index_add_(0, classes, losses)
        self.margins.scatter_reduce_(0, classes, gaps, reduce="amin")
        return predicted

    def sums(self) -> dict[str, Tensor]:
        """All that was added up, as plain tensors, for `load_sums`."""
        return {name: getattr(self, name).clone() for name in _SUMS}

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `sums` of a stream of the same classes gave."""
        for name in _SUMS:
            getattr(self, name).copy_(state[name])

    def merge(self, other: Self) -> None:
        """Add what another stream of the same classes has seen."""
        if other.num_classes != self.num_classes:
            raise DataError(
                f"Expected logits of {self.num_classes} classes, got {other.num_classes}."
            )
        self.counts += other.counts.to(self.counts.device)
        self.correct += other.correct.to(self.counts.device)
        self.loss_sums += other.loss_sums.to(self.counts.device)
        self.margins = torch.minimum(self.margins, other.margins.to(self.counts.device))


_SUMS = ("counts", "correct", "loss_sums", "margins")
