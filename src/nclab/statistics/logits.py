"""LogitStatistics: loss, accuracy and margin of each class from a stream of logits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import (
    ACCELERATOR_BLOCK,
    CPU_BLOCK,
    MANY_CLASSES,
    add_by_class,
    device_with_float64,
    row_blocks,
    rows_to_read,
)
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels
from nclab.statistics.process_group import Group, ProcessGroup

LOGITS = 2**21
"""Number of logits in a block that is computed at once on the CPU."""
WIDE = 256
"""With at least this many classes, the logits of a training step are not copied to float64."""
WIDE_BLOCK = 2**17
"""Number of float32 logits in a block, which fits into the cache."""
MOST_CLASSES = 1000
"""Largest number of classes for which every pass keeps the C x C residual sums (8 MiB) by default:
the probabilities minus one-hot labels, summed per class.
The number of classes must also be at most the dimension. The sums cost C additions per sample, in
addition to the C d multiplications of its logits."""
MOST_ASKED = 4096
"""Largest number of classes for which the C x C residual sums are kept if a user requests them
(128 MiB)."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Per-sample cross-entropy, accurate to all digits for arbitrarily small losses.

    $$\ell = \log\bigl(1 + \sum_{j \ne y} e^{z_j - z_y}\bigr)$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); log C for equal logits.
    Invariant to: adding a constant to all logits of a sample.

    `-log_softmax` returns 0 for losses below 1e-16; this function does so only below 1e-300.

    >>> z = torch.tensor([[50.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    >>> [f"{loss:.4g}" for loss in cross_entropy(z, torch.tensor([0, 0])).tolist()]
    ['1.929e-22', '0.6931']
    """
    logits = logits.clone()
    gaps, _ = _gaps_and_predictions(logits, labels)
    return _log1p_sum_exp(logits, gaps)


def _gaps_and_predictions(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return (B,) z_y - max_{j != y} z_j (ji2022, Def. 3.1) and the (B,) predicted classes.

    The first of several largest logits is the prediction. The logits are overwritten: the largest
    other logit is subtracted, and the logit of the label becomes -inf.
    """
    label_logits = logits.gather(1, labels[:, None])
    largest_other = logits.scatter_(1, labels[:, None], -torch.inf).amax(1)
    gaps = label_logits[:, 0] - largest_other
    predicted = labels.clone()
    wrong = (~(gaps > 0)).nonzero().flatten()
    if len(wrong):  # Only these rows need a search for the largest logit.
        restored = logits[wrong].scatter_(1, labels[wrong, None], label_logits[wrong])
        predicted[wrong] = restored.argmax(1)
    logits.sub_(largest_other[:, None])
    return gaps, predicted


def _log1p_sum_exp(others: Tensor, gaps: Tensor) -> Tensor:
    """Return (B,) log(1 + sum_j exp(z_j - z_y)) without adding small numbers to 1.

    `others` are the logits as `_gaps_and_predictions` leaves them; they are overwritten.
    """
    log_sums = others.exp_().sum(1).log_()
    return torch.logaddexp(gaps.new_zeros(()), log_sums - gaps)


def logit_blocks(
    rows: Tensor, classes: Tensor, weight: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of (float64 logits W h + b, classes) for (B, d) rows h.

    A block is scratch memory: it is valid until the next block, and the caller may overwrite it.
    """
    device, width = weight.device, len(weight)
    # For a classifier of many classes, memory rather than speed limits the size of a block.
    step, numbers = max(512 if width <= MANY_CLASSES else 128, LOGITS // width), max(2, width // 32)
    numbers *= CPU_BLOCK
    if device.type != "cpu":
        step, numbers = max(1, ACCELERATOR_BLOCK // max(weight.shape)), ACCELERATOR_BLOCK
    scratch = weight.new_empty(min(step, len(rows)), width)
    for start in range(0, len(rows), step):
        part, labels = rows[start : start + step], classes[start : start + step]
        logits, filled = scratch[: len(part)], 0
        for block, _ in row_blocks(part, labels, device, numbers=numbers):
            torch.mm(block, weight.T, out=logits[filled : filled + len(block)])
            filled += len(block)
        yield logits if bias is None else logits.add_(bias), labels


class LogitStatistics:
    """Count, summed loss, correct predictions and smallest margin of each class.

    Costs a few reads of the logits. Memory: O(C), with `residuals` O(C^2).

    Args:
        residuals: whether to keep the sums of probabilities minus one-hot labels.

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
        residuals: bool = False,
    ) -> None:
        device = device_with_float64(torch.device(device))
        self.ignore_index = ignore_index
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.correct = torch.zeros_like(self.counts)
        self.loss_sums = torch.zeros(num_classes, dtype=torch.float64, device=device)
        self.margins = torch.full_like(self.loss_sums, torch.inf)
        size = (num_classes, num_classes)
        self.residual_sums = self.loss_sums.new_zeros(size) if residuals else None
        """(C, C) row c: the sum of q - e_c over the samples of class c, for probabilities q."""

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return len(self.counts)

    def update(self, logits: Any, labels: Any) -> Tensor:
        """Add a batch of logits (B, C); return the predicted classes of the rows not ignored."""
        logits = as_features(logits, dim=self.num_classes)
        labels = as_labels(
            labels, rows=len(logits), ignore_index=self.ignore_index, num_classes=self.num_classes
        ).to(self.counts.device)
        rows = rows_to_read(labels, self.ignore_index)
        blocks = row_blocks(logits, labels, self.counts.device, rows=rows)
        predicted = [self.add_checked(block, classes) for block, classes in blocks]
        return torch.cat(predicted) if predicted else labels[:0]

    def add_checked(self, logits: Tensor, classes: Tensor, *, compiled: bool = False) -> Tensor:
        """Add one float64 block of logits with labels in [0, C); return the predicted classes.

        The logits are overwritten. With `compiled`, which needs numba and finite logits, the
        compiled kernel adds them.
        """
        add_by_class(self.counts, classes)
        if compiled:
            return self._add_compiled(logits, classes)
        gaps, predicted = _gaps_and_predictions(logits, classes)
        losses = _log1p_sum_exp(logits, gaps)  # logits become exp(z - m), and 0 at the label
        if self.residual_sums is not None:
            residuals = logits.mul_((-gaps - losses).exp_()[:, None])
            residuals.scatter_(1, classes[:, None], torch.expm1(-losses)[:, None])
            self.residual_sums.index_add_(0, classes, residuals)
        add_by_class(self.correct, classes[predicted == classes])
        self.loss_sums.index_add_(0, classes, losses)
        self.margins.scatter_reduce_(0, classes, gaps, reduce="amin")
        return predicted

    def _add_compiled(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Add logits with the compiled kernel, in parts that fit into the cache."""
        from nclab.statistics.kernel import add_losses, add_losses_and_residuals, rank_logits

        gaps, predicted = logits.new_empty(len(logits)), torch.empty_like(classes)
        correct, margins, loss_sums = (
            sums.numpy() for sums in (self.correct, self.margins, self.loss_sums)
        )
        residual_sums = None if self.residual_sums is None else self.residual_sums.numpy()
        step = max(1, 2 * CPU_BLOCK // self.num_classes)
        parts = (tensor.split(step) for tensor in (logits, classes, gaps, predicted))
        for part in zip(*parts, strict=True):
            z, labels, part_gaps, part_predicted = (tensor.numpy() for tensor in part)
            rank_logits(z, labels, correct, margins, part_gaps, part_predicted)
            part[0].exp_()
            if residual_sums is None:
                add_losses(z, labels, part_gaps, loss_sums)
            else:
                add_losses_and_residuals(z, labels, part_gaps, loss_sums, residual_sums)
        return predicted

    def add_wide(self, logits: Tensor, classes: Tensor) -> None:
        """Add finite float32, float16 or bfloat16 logits of many classes, with labels in [0, C).

        Only the sums of exponentials are computed in float32 (relative error 1e-6); all other
        numbers are float64. Drops the residual sums, which would be incomplete.

        >>> statistics = LogitStatistics(2)
        >>> statistics.add_wide(torch.tensor([[50.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        >>> [f"{loss:.6g}" for loss in statistics.loss_sums.tolist()], statistics.correct.tolist()
        (['1.92875e-22', '1.31326'], [1, 0])
        """
        size, device = self.num_classes, self.counts.device
        self.residual_sums = None
        step = max(1, WIDE_BLOCK // size)
        scratch = logits.new_empty(min(step, len(logits)), size, dtype=torch.float32)
        labels, count = classes.to(logits.device), len(logits)
        label_logits, largest, sums = (
            logits.new_empty(count, dtype=torch.float32) for _ in range(3)
        )
        for start in range(0, count, step):
            part = slice(start, start + step)
            z = logits[part].float()
            powers = scratch[: len(z)]
            torch.amax(z, 1, out=largest[part])
            torch.sub(z, largest[part, None], out=powers).exp_()
            torch.sum(powers, 1, out=sums[part])
            torch.gather(z, 1, labels[part, None], out=label_logits[part, None])
        gaps = label_logits.double() - largest.double()
        losses = sums.double().log_() - gaps  # Accurate where the label's probability is below 1/2.
        correct = torch.zeros_like(labels, dtype=torch.bool)
        for index in (gaps == 0).nonzero().flatten().split(step):
            gaps[index], losses[index], correct[index] = _leading_labels(
                logits[index].float(), labels[index]
            )
        gaps, losses, correct = gaps.to(device), losses.to(device), correct.to(device)
        classes = classes.to(device)
        self.counts += classes.bincount(minlength=size)
        self.correct += classes[correct].bincount(minlength=size)
        self.loss_sums.index_add_(0, classes, losses)
        self.margins.scatter_reduce_(0, classes, gaps, reduce="amin")

    def sums(self) -> dict[str, Tensor]:
        """Return copies of all sums, as plain tensors for `load_sums`."""
        return {name: getattr(self, name).clone() for name in self._names()}

    def _names(self) -> Sequence[str]:
        return _SUMS if self.residual_sums is None else (*_SUMS, "residual_sums")

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Replace all sums by the `sums` of another stream with the same number of classes."""
        if "residual_sums" not in state:
            self.residual_sums = None
        for name in self._names():
            getattr(self, name).copy_(state[name])

    def merge(self, other: Self) -> None:
        """Add the sums of another stream with the same number of classes.

        The residual sums are dropped unless both streams have them.
        """
        if other.num_classes != self.num_classes:
            raise DataError(
                f"Expected logits of {self.num_classes} classes, got {other.num_classes}."
            )
        if other.residual_sums is None:
            self.residual_sums = None
        for name in self._names():
            sums = getattr(self, name)
            added = getattr(other, name).to(sums.device)
            if name == "margins":
                torch.minimum(sums, added, out=sums)
            else:
                sums += added

    def all_reduce(self, group: Group = None) -> None:
        """Merge the streams of all processes of a torch.distributed group in each process.

        Costs four messages with 4 C + 2 numbers in all, and one with the C^2 residual sums if all
        processes have them. Otherwise the residual sums are dropped.
        """
        processes = ProcessGroup(group)
        processes.gather_equal("the same number of classes of the logits", [self.num_classes])
        processes.sum_({name: getattr(self, name) for name in ("counts", "correct", "loss_sums")})
        processes.reduce_(self.margins, dist.ReduceOp.MIN)
        has_residuals = self.residual_sums is not None
        if not bool(processes.gather([int(has_residuals)]).all()):
            self.residual_sums = None
        elif self.residual_sums is not None:
            processes.reduce_(self.residual_sums)


_SUMS = ("counts", "correct", "loss_sums", "margins")


def is_wide(logits: Tensor) -> bool:
    """Whether to add these logits by `add_wide`: many classes, and not in float64."""
    return logits.shape[1] >= WIDE and logits.dtype != torch.float64


def _leading_labels(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return margins, losses and a mask of the correct rows for (B, C) float32 logits.

    The logit of the label must be the largest of its row, perhaps together with others. The loss
    is log(1 + sum_j exp(z_j - z_y)) over j != y, which keeps the digits of a small loss.
    """
    label_logits = z.gather(1, labels[:, None])
    correct = z.argmax(1) == labels
    second = z.scatter_(1, labels[:, None], -torch.inf).amax(1, keepdim=True)
    log_sums = z.sub_(second).exp_().sum(1).double().log_()
    gaps = (label_logits.double() - second.double())[:, 0]
    return gaps, torch.logaddexp(gaps.new_zeros(()), log_sums - gaps), correct
