"""ShardedMoments: more classes than one process holds, so that every rank owns a range of them."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels, check_sizes
from nclab.statistics.moments import ClassMoments
from nclab.statistics.ranks import Group, Ranks
from nclab.statistics.sums import PER_CLASS

MORE, ENDED, GIVES_UP = 1, 0, -1
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Batch = tuple[Tensor, Tensor]


class ShardedMoments:
    """`ClassMoments` whose classes are dealt out over the processes of torch.distributed.

    Rank r of P owns about C / P classes in a row, `own_classes`. Every rank reads its own part of
    the data; `update` sends each row to the owner of its class and is called by all of them
    together. `nclab.metrics.sharded.sharded_metrics` makes the one-pass metrics of it.

    Costs, for each batch of B rows: two messages, of 24 P bytes and of B (8 + d s) bytes with s
    the size of a number, of which (P - 1) / P leave the rank. Memory for each rank 3 C d / P
    float64 numbers, d^2 more with `scatter`, and twice a batch.

    Args:
        scatter, ignore_index, device: as for `ClassMoments`.
        group: of processes; by default all.

    >>> moments = ShardedMoments(num_classes=4, dim=2)  # in one process it owns all of them
    >>> moments.read([([[1.0, 0.0], [3.0, 0.0]], [0, 0]), ([[0.0, 5.0]], [3])])
    >>> moments.own_classes, moments.own.counts.tolist(), moments.seen()
    (range(0, 4), [2, 0, 0, 1], (3, 0))
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scatter: bool = False,
        ignore_index: int | None = IGNORE_INDEX,
        device: torch.device | str = "cpu",
        group: Group = None,
    ) -> None:
        check_sizes(num_classes, dim)
        self.ranks = Ranks(group)
        index = 1 if ignore_index is None else ignore_index
        self.ranks.agree(
            "classes, dimension, scatter and ignore_index",
            [num_classes, dim, int(scatter), int(ignore_index is None), index],
        )
        self.num_classes, self.dim, self.ignore_index = num_classes, dim, ignore_index
        size = self.ranks.size
        if num_classes < 2 * size:
            raise DataError(
                f"Expected at least 2 classes for each of {size} processes, got {num_classes} in "
                "all. Use ClassMoments and its all_reduce."
            )
        self.edges = torch.tensor([place * num_classes // size for place in range(size + 1)])
        """(P + 1,) where the ranges begin and end."""
        start, stop = self.edges[self.ranks.rank : self.ranks.rank + 2].tolist()
        self.own_classes = range(start, stop)
        self.own = ClassMoments(
            stop - start, dim, scatter=scatter, ignore_index=None, device=device
        )
        """Of the own classes, whoever has read their rows."""
        self.ignored = 0
        self.rows_seen = 0

    def update(self, features: Any, labels: Any) -> None:
        """Add a batch; all ranks call it as often as each other, an empty batch is one too."""
        self._exchange(MORE, (features, labels))

    def read(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """Add all batches of this rank's part; the parts may differ in length, or be empty."""
        for batch in self._heard(batches):
            self._exchange(MORE, batch)
        while self._exchange(ENDED, None):
            pass

    def seen(self) -> tuple[int, int]:
        """Rows that all ranks have read, and how many of them were ignored."""
        found = self.ranks.gather([self.rows_seen, self.ignored]).sum(0)
        return int(found[0]), int(found[1])

    def present(self) -> tuple[ClassMoments, Tensor]:
        """The own classes that have samples, and which they are."""
        there = self.own.counts > 0
        state = {name.removeprefix("_"): getattr(self.own, name)[there] for name in PER_CLASS}
        part = ClassMoments.over(state, ignore_index=None)
        part._residual_scatter = self.own._residual_scatter
        part.unit = self.own.unit
        return part, there.nonzero().flatten() + self.own_classes.start

    def _heard(self, batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The batches; a source that breaks is told to the others."""
        try:
            yield from batches
        except Exception:
            self._exchange(GIVES_UP, None)
            raise

    def _exchange(self, state: int, batch: tuple[Any, Any] | None) -> bool:
        """One round of messages; whether any rank has more."""
        refused: DataError | None = None
        rows, classes = torch.empty(0, self.dim), torch.empty(0, dtype=torch.int64)
        if batch is not None:
            try:
                rows, classes = self._checked(*batch)
            except DataError as error:
                refused, state = error, GIVES_UP
        owners = torch.bucketize(classes, self.edges[1:], right=True)
        counts = owners.bincount(minlength=self.ranks.size)
        kind = DTYPES.index(rows.dtype) if len(rows) else -1
        told = [[state, kind, count] for count in counts.tolist()]
        heard = self._all_to_all(torch.tensor(told), [1] * len(told), [1] * len(told))
        states, kinds = heard[:, 0], heard[:, 1][heard[:, 1] >= 0]
        if refused is not None:
            raise refused
        if bool((states == GIVES_UP).any()):
            gone = (states == GIVES_UP).nonzero().flatten().tolist()
            raise DataError(
                f"Expected batches from every process, but processes {gone} could not give "
                "theirs: their own messages say why."
            )
        if bool((kinds != kinds[:1]).any()):
            raise DataError(
                "Expected features of one type in every process, got "
                f"{[str(DTYPES[place]) for place in kinds.unique().tolist()]}. Convert them."
            )
        if not len(kinds):  # no rank has a row
            return bool((states == MORE).any())
        dtype = DTYPES[int(kinds[0])]
        order = classes.argsort(stable=True)  # by class, so by owner too
        packed = _packed(rows[order.to(rows.device)].to(dtype), classes[order])
        arrived = self._all_to_all(packed, counts.tolist(), heard[:, 2].tolist())
        features, labels = _unpacked(arrived, self.dim, dtype)
        if len(labels):
            self.own.add_checked(features, labels - self.own_classes.start)
        return bool((states == MORE).any())

    def _checked(self, features: Any, labels: Any) -> Batch:
        """The rows that count, and their classes."""
        rows = as_features(features, dim=self.dim, first_row=self.rows_seen)
        if rows.dtype not in DTYPES:
            raise DataError(f"Expected features of float16 to float64, got {rows.dtype}.")
        classes = as_labels(
            labels, rows=len(rows), ignore_index=self.ignore_index, num_classes=self.num_classes
        ).cpu()
        self.rows_seen += len(rows)
        if self.ignore_index is None:
            return rows, classes
        keep = classes != self.ignore_index
        self.ignored += len(classes) - int(keep.sum())
        return rows[keep.to(rows.device)], classes[keep]

    def _all_to_all(self, own: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """So many rows to each rank, so many from each."""
        if self.ranks.size == 1:
            return own
        device = self.ranks.wire(own.device)
        found = own.new_empty(sum(received), *own.shape[1:], device=device)
        with self.ranks.joint():
            dist.all_to_all_single(
                found, own.to(device).contiguous(), received, sent, group=self.ranks.group
            )
        return found.to(own.device)


def _packed(rows: Tensor, classes: Tensor) -> Tensor:
    """(B, 8 + d s) bytes: a class and the row itself."""
    head = classes.contiguous().view(torch.uint8).view(len(rows), 8).to(rows.device)
    return torch.cat([head, rows.contiguous().view(torch.uint8)], 1)


def _unpacked(packed: Tensor, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows and classes."""
    classes, rows = packed[:, :8].reshape(-1), packed[:, 8:].reshape(-1)
    return rows.view(dtype).view(len(packed), dim), classes.view(torch.int64)
