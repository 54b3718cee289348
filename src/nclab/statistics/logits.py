"""LogitStatistics: loss, accuracy and margin per class from a stream of logits."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.blocks import (
    ACCELERATOR_BLOCK,
    CPU_BLOCK,
    MANY,
    add_by_class,
    device_with_float64,
    row_blocks,
    rows_to_read,
)
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels
from nclab.statistics.ranks import Group, Ranks
from nclab.statistics.residuals import Residuals

LOGITS = 2**21
"""Logits on the CPU that are computed before they are used."""


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
    logits = logits.clone()
    gaps, _ = _rank(logits, labels)
    return _log1p_sum_exp(logits, gaps)


def _rank(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) z_y - max of the others (ji2022, Def. 3.1), and the first class of the largest logit.

    Overwrites the logits: the largest other one is taken off, at the label is -inf.
    """
    own = logits.gather(1, classes[:, None])
    best = logits.scatter_(1, classes[:, None], -torch.inf).amax(1)
    gaps = own[:, 0] - best
    predicted = classes.clone()
    lost = (~(gaps > 0)).nonzero().flatten()
    if len(lost):  # A largest one is looked for only where it is not the label.
        beaten = logits[lost].scatter_(1, classes[lost, None], own[lost])
        predicted[lost] = beaten.argmax(1)
    logits.sub_(best[:, None])
    return gaps, predicted


def _log1p_sum_exp(others: Tensor, gaps: Tensor) -> Tensor:
    """(B,) log(1 + sum_j exp(z_j - z_y)): the 1 is never added to something it would swallow.

    `others` are what `_rank` leaves of the logits, and are used up.
    """
    rest = others.exp_().sum(1).log_()
    return torch.logaddexp(gaps.new_zeros(()), rest - gaps)


def logit_blocks(
    rows: Tensor, classes: Tensor, weight: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (float64 logits W h + b, classes) of blocks of (B, d) rows h.

    The logits are scratch space, valid until the next block and free to be overwritten.
    """
    device, width = weight.device, len(weight)
    # Of a wide head a block of logits is what memory is needed for, not a matter of speed.
    step, numbers = max(512 if width <= MANY else 128, LOGITS // width), max(2, width // 32)
    numbers *= CPU_BLOCK
    if device.type != "cpu":
        step, numbers = max(1, ACCELERATOR_BLOCK // max(weight.shape)), ACCELERATOR_BLOCK
    scratch = weight.new_empty(min(step, len(rows)), width)
    for start in range(0, len(rows), step):
        part, own = rows[start : start + step], classes[start : start + step]
        logits, done = scratch[: len(part)], 0
        for block, _ in row_blocks(part, own, device, numbers=numbers):
            torch.mm(block, weight.T, out=logits[done : done + len(block)])
            done += len(block)
        yield logits if bias is None else logits.add_(bias), own


class LogitStatistics:
    """Per class the count, summed loss, correct predictions and smallest margin.

    Costs a few reads of the logits; memory O(C), with `residuals` O(C^2).

    Args:
        residuals: None for no sums of probabilities; whether labels are soft where there are.

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
        residuals: bool | None = None,
    ) -> None:
        device = device_with_float64(torch.device(device))
        self.residuals: Residuals | None = None
        if residuals is not None:
            self.residuals = Residuals.empty(num_classes, device, soft=residuals)
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

    def add_checked(
        self,
        logits: Tensor,
        classes: Tensor,
        targets: Tensor | None = None,
        *,
        compiled: bool = False,
    ) -> Tensor:
        """`update` for one float64 block of logits whose labels are all in [0, C).

        With (B, C) targets, distributions over the classes, the loss is the cross-entropy with
        these: sum_j q_j (log sum exp z - z_j). The logits are used up. `compiled` needs numba, and
        that all of them are finite.
        """
        add_by_class(self.counts, classes)
        if compiled and targets is None:
            return self._add_compiled(logits, classes)
        gaps, predicted = _rank(logits, classes)
        below = None
        if targets is not None:  # how far the others lie below the label
            below = (logits - gaps[:, None]).scatter_(1, classes[:, None], 0.0)
        losses = _log1p_sum_exp(logits, gaps)
        if self.residuals is not None:
            self.residuals.add(logits, classes, gaps, losses, targets)
        if targets is not None and below is not None:
            losses = losses * targets.sum(1) - (targets * below).sum(1)
        add_by_class(self.correct, classes[predicted == classes])
        self.loss_sums.index_add_(0, classes, losses)
        self.margins.scatter_reduce_(0, classes, gaps, reduce="amin")
        return predicted

    def _add_compiled(self, logits: Tensor, classes: Tensor) -> Tensor:
        """The rest of `add_checked` in compiled form, in parts that stay in the cache."""
        from nclab.statistics.kernel import add_losses, add_losses_and_residuals, rank_logits

        gaps, predicted = logits.new_empty(len(logits)), torch.empty_like(classes)
        correct, margins, loss_sums = (
            part.numpy() for part in (self.correct, self.margins, self.loss_sums)
        )
        rests = None if self.residuals is None else self.residuals.sums.numpy()
        step = max(1, 2 * CPU_BLOCK // self.num_classes)
        parts = (tensor.split(step) for tensor in (logits, classes, gaps, predicted))
        for part in zip(*parts, strict=True):
            z, own, gap, found = (tensor.numpy() for tensor in part)
            rank_logits(z, own, correct, margins, gap, found)
            part[0].exp_()
            if rests is None:
                add_losses(z, own, gap, loss_sums)
            else:
                add_losses_and_residuals(z, own, gap, loss_sums, rests)
        return predicted

    def sums(self) -> dict[str, Tensor]:
        """All that was added up, as plain tensors, for `load_sums`."""
        own = {} if self.residuals is None else self.residuals.tensors()
        return {
            name: one.clone() for name, one in ({n: getattr(self, n) for n in _SUMS} | own).items()
        }

    def load_sums(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `sums` of a stream of the same classes gave."""
        for name in _SUMS:
            getattr(self, name).copy_(state[name])
        self._residuals_of(state)

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
        self._residuals_of(other.sums(), add=True)

    def _residuals_of(self, state: Mapping[str, Tensor], *, add: bool = False) -> None:
        """Take the residuals of another stream; where it has none there are none of the whole."""
        own = {} if self.residuals is None else self.residuals.tensors()
        if self.residuals is None or not own.keys() <= state.keys():
            self.residuals = None
        elif add:
            self.residuals.merge(state)
        else:
            for name, one in own.items():
                one.copy_(state[name])

    def all_reduce(self, group: Group = None) -> None:
        """What all processes of a torch.distributed group have seen, in each of them.

        Costs four messages of 4 C + 2 numbers together, and one of the residuals where there are
        some, C^2 numbers where labels are hard. Where a process has none, or others, all have none.
        """
        ranks = Ranks(group)
        ranks.agree("number of classes of the logits", [self.num_classes])
        ranks.sum_({name: getattr(self, name) for name in ("counts", "correct", "loss_sums")})
        ranks.reduce_(self.margins, dist.ReduceOp.MIN)
        own = {} if self.residuals is None else self.residuals.tensors()
        kinds = ranks.gather([len(own)])
        if not bool((kinds == kinds[0]).all()):  # one has none, or none of soft labels
            self.residuals = None
        elif own:
            ranks.sum_(own)


_SUMS = ("counts", "correct", "loss_sums", "margins")
