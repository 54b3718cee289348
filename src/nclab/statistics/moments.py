"""ClassMoments: per-class counts, means and variances of features, read once and mergeable."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics import blocks
from nclab.statistics.blocks import (
    CPU_BLOCK,
    GROUP,
    GroupedProducts,
    add_by_class,
    compiles,
    outside,
    row_blocks,
    rows_to_read,
)
from nclab.statistics.checks import IGNORE_INDEX, as_features, as_labels
from nclab.statistics.process_group import MESSAGE, Group, ProcessGroup
from nclab.statistics.sums import PER_CLASS, ClassSums

STATE_VERSION = 1
NO_INDEX = torch.iinfo(torch.int64).min
"""Value in a stored state that means `ignore_index=None`."""


class ClassMoments(ClassSums):
    r"""Count, mean, mean unit vector and centred second moment of each class of a stream.

    Every row is centred by a pivot, the first row of its class, and the residuals are
    accumulated in float64. No result is a difference of two large sums. Features that have
    collapsed to 1e-8 of their norm therefore keep all their digits.

    Costs one read of the features, two float64 scatter-adds of B x d numbers for each batch and,
    with `scatter=True`, half a float64 GEMM (B x d x d). Memory: 3 C d + d^2 float64 numbers.

    Args:
        scatter: also accumulate the pooled d x d within-class scatter, which
            `nc1_trace_pinv` and `snr_spectrum` need.
        ignore_index: rows with this label are skipped and counted in `ignored`.

    >>> moments = ClassMoments(num_classes=2, dim=2)
    >>> moments.update([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], [0, 0, 1])
    >>> moments.means.tolist()
    [[2.0, 0.0], [0.0, 5.0]]
    >>> moments.variances.tolist()
    [1.0, 0.0]
    """

    def update(self, features: Any, labels: Any) -> None:
        """Add a batch of rows. A rejected batch leaves the sums unchanged."""
        features = as_features(features, dim=self.dim, first_row=self.rows_seen)
        labels = as_labels(
            labels, rows=len(features), ignore_index=self.ignore_index, num_classes=self.num_classes
        )
        self.add_checked(features, labels)

    def add_checked(
        self, features: Tensor, labels: Tensor, *, dtype: torch.dtype | None = None
    ) -> None:
        """Add a batch that `as_features` and `as_labels` have already checked.

        `dtype` is the type in which the features were computed, if it is not `features.dtype`.
        """
        self._cache.clear()
        self.unit = max(self.unit, torch.finfo(dtype or features.dtype).eps / 2)
        features, labels = features.detach(), labels.to(self.device).contiguous()
        rows = rows_to_read(labels, self.ignore_index, sums=3 * self._pivot.numel())
        counted = labels if rows is None else labels[rows]
        self._set_pivots(features, counted, rows)
        add_by_class(self._count, counted)
        compiled = compiles(features, self.device)
        # The compiled kernel needs less scratch memory, so one block can be as large as a group.
        group, numbers = (1, GROUP * CPU_BLOCK) if compiled else (GROUP, None)
        products = GroupedProducts(self._residual_scatter, self._pivot, group)
        add = self._compiled() if compiled else self._add_block
        for block, classes in row_blocks(
            features, labels, self.device, rows=rows, numbers=numbers, compiled=compiled
        ):
            add(block, classes, products.next_rows(len(block)))
        products.finish()
        self.ignored += len(labels) - len(counted)
        self.rows_seen += len(features)

    def _set_pivots(self, features: Tensor, classes: Tensor, rows: Tensor | None) -> None:
        """Use the first row of each new class as its pivot."""
        is_new = self._count[classes] == 0
        if not is_new.any():
            return
        positions = is_new.nonzero().flatten() if rows is None else rows[is_new]
        new_classes, slots = classes[is_new].unique(return_inverse=True)
        first = torch.full_like(new_classes, len(features))
        first = first.scatter_reduce_(0, slots, positions, "amin")
        self._pivot[new_classes] = features[first.to(features.device)].to(self._pivot)

    def _compiled(self) -> Callable[[Tensor, Tensor, Tensor], None]:
        """Return the compiled form of `_add_block`, which does not change `block`."""
        from nclab.statistics.kernel import add_rows

        sums = ("_pivot", "_residual_sum", "_residual_square", "_unit_sum", "_zeros")
        arrays = [getattr(self, name).numpy() for name in sums]

        def add(block: Tensor, classes: Tensor, residual: Tensor) -> None:
            arguments: list[Any] = [block.numpy(), classes.numpy(), *arrays, residual.numpy()]
            add_rows(*arguments)

        return add

    def _add_block(self, block: Tensor, classes: Tensor, residual: Tensor) -> None:
        """Add float64 rows; `block` and `residual` are scratch memory and are overwritten."""
        columns = classes[:, None].expand(-1, self.dim)
        torch.index_select(self._pivot, 0, classes, out=residual)
        torch.sub(block, residual, out=residual)
        self._residual_sum.scatter_add_(0, columns, residual)
        squares = torch.linalg.vector_norm(residual, dim=1).square_()
        self._residual_square.index_add_(0, classes, squares)
        norms = torch.linalg.vector_norm(block, dim=1)
        extreme = outside(norms)
        if extreme is not None:
            rows = block[extreme]
            largest = rows.abs().amax(1)
            zero = largest == 0  # A zero vector has no direction; it is only counted.
            add_by_class(self._zeros, classes[extreme][zero])
            rows /= largest.masked_fill(zero, 1.0)[:, None]
            block[extreme] = rows
            norms[extreme] = torch.linalg.vector_norm(rows, dim=1).masked_fill_(zero, 1.0)
        self._unit_sum.scatter_add_(0, columns, block.mul_(norms.reciprocal_()[:, None]))

    def merge(self, other: Self) -> None:
        """Add the sums of another stream with the same classes and dimension.

        Exact up to rounding and independent of order. Costs O(C d), and one d x d x C product
        if both streams keep the scatter.
        """
        if (other.num_classes, other.dim) != (self.num_classes, self.dim):
            raise DataError(
                f"Expected moments of {self.num_classes} classes in dimension {self.dim}, "
                f"got {other.num_classes} classes in dimension {other.dim}."
            )
        if self.has_scatter != other.has_scatter:
            raise DataError(
                "Expected both moments with scatter or both without, got one of each. Create both "
                "with the same value of scatter."
            )
        added = other.to(self.device)
        parts: dict[str, list[Tensor]] = {name: [] for name in PER_CLASS}
        scatter, added_scatter = self._residual_scatter, added._residual_scatter
        for start in range(0, self.num_classes, blocks.MANY_CLASSES):
            part = slice(start, start + blocks.MANY_CLASSES)
            # Keep the pivot of the larger class: it is nearer to the merged mean.
            keep = (self._count[part] >= added._count[part])[:, None]
            pivot = torch.where(keep, self._pivot[part], added._pivot[part])
            sums, scatter = self._about(pivot, part, scatter)
            added_sums, added_scatter = added._about(pivot, part, added_scatter)
            parts["_pivot"].append(pivot)
            for name, value in sums.items():
                parts[name].append(value + added_sums[name])
        for name, tensors in parts.items():
            setattr(self, name, tensors[0] if len(tensors) == 1 else torch.cat(tensors))
            tensors.clear()
        if scatter is not None and added_scatter is not None:
            self._residual_scatter = scatter + added_scatter
        self.ignored += other.ignored
        self.rows_seen += other.rows_seen
        self.unit = max(self.unit, other.unit)
        self._cache.clear()

    def all_reduce(self, group: Group = None) -> None:
        """Merge the streams of all processes of a torch.distributed group in each process.

        Every process of the group must call this, with any backend; a process without rows adds
        nothing. The result is exact like that of `merge` and has the same bits in all processes.
        Costs four messages of 3 C d + d^2 + 4 C numbers together (more messages above 256 MiB),
        independent of the number of processes, and the arithmetic of one `merge`. Without a
        process group nothing changes.
        """
        processes = ProcessGroup(group)
        if processes.size == 1:
            return
        index = NO_INDEX if self.ignore_index is None else self.ignore_index
        unit = int(torch.tensor(self.unit, dtype=torch.float64).view(torch.int64))
        values = processes.gather_equal(
            "moments of the same classes, dimension, scatter and ignore_index",
            [self.num_classes, self.dim, int(self.has_scatter), index],
            others=[self.ignored, self.rows_seen, unit],
        )
        # As in `merge`, the pivot of the process with most samples is kept.
        votes = self._count * processes.size + (processes.size - 1 - processes.rank)
        wins = processes.reduce_(votes.clone(), dist.ReduceOp.MAX) == votes
        scatter = self._residual_scatter
        step = max(1, MESSAGE // (2 * self.dim))
        for start in range(0, self.num_classes, step):
            part = slice(start, start + step)
            pivot = processes.reduce_(self._pivot[part].masked_fill(~wins[part, None], 0.0))
            sums, scatter = self._about(pivot, part, scatter)
            processes.sum_(sums)
            for name, value in {**sums, "_pivot": pivot}.items():
                getattr(self, name)[part] = value
        if scatter is not None:
            self._residual_scatter = processes.reduce_(scatter.clone())
        self._cache.clear()
        self.ignored, self.rows_seen = int(values[:, 0].sum()), int(values[:, 1].sum())
        # Positive float64 numbers have the same order as their bits.
        self.unit = float(values[:, 2].max().view(torch.float64))

    def _about(
        self, pivot: Tensor, part: slice, scatter: Tensor | None
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """Return the sums of some classes by name, and the scatter, relative to another pivot."""
        present = (self._count[part] > 0)[:, None]
        shift = torch.where(present, self._pivot[part] - pivot, 0.0)  # (C, d)
        count, residual_sum = self._count[part].double()[:, None], self._residual_sum[part]
        half_shifted = residual_sum + 0.5 * count * shift
        sums = {name: getattr(self, name)[part] for name in ("_count", "_zeros", "_unit_sum")}
        sums["_residual_sum"] = residual_sum + count * shift
        square = self._residual_square[part] + 2 * (shift * half_shifted).sum(1)
        sums["_residual_square"] = square
        if scatter is not None and shift.any():
            cross = shift.T @ half_shifted
            scatter = scatter + cross + cross.T
        return sums, scatter

    def state_dict(self, *, copy: bool = True) -> dict[str, Tensor]:
        """Return plain tensors from which `from_state_dict` restores the stream bit for bit.

        Without a copy, the tensors are the sums themselves; do not update the stream afterwards.
        """
        state = {name.removeprefix("_"): getattr(self, name) for name in PER_CLASS}
        if self._residual_scatter is not None:
            state["residual_scatter"] = self._residual_scatter
        ignore = NO_INDEX if self.ignore_index is None else self.ignore_index
        state["header"] = torch.tensor([STATE_VERSION, self.ignored, self.rows_seen, ignore])
        state["unit"] = torch.tensor([self.unit], dtype=torch.float64)
        return {key: value.clone() for key, value in state.items()} if copy else state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor], *, copy: bool = True) -> "ClassMoments":
        """Return the stream with this `state_dict`; without a copy it shares these tensors."""
        names = [name.removeprefix("_") for name in PER_CLASS]
        if missing := sorted({*names, "header"} - set(state)):
            raise DataError(
                f"Expected the state of ClassMoments, missing {', '.join(missing)}. "
                "Pass the result of state_dict()."
            )
        version, ignored, rows_seen, ignore = state["header"].tolist()
        if version != STATE_VERSION:
            raise DataError(f"Expected ClassMoments state version {STATE_VERSION}, got {version}.")
        result = cls(2, 2, ignore_index=None if ignore == NO_INDEX else ignore)
        for name in (*names, "residual_scatter"):
            value = state.get(name)
            if value is not None:
                setattr(result, f"_{name}", value.clone() if copy else value)
        result.ignored, result.rows_seen = ignored, rows_seen
        if "unit" in state:  # Older versions did not store it.
            result.unit = max(result.unit, float(state["unit"].flatten()[0]))
        return result

    @classmethod
    def over(
        cls, state: Mapping[str, Tensor], *, ignore_index: int | None = IGNORE_INDEX
    ) -> "ClassMoments":
        """Return a stream whose `update` adds to the given tensors in place.

        The tensors have the names and shapes of a `state_dict` without the header and are not
        checked. `merge` replaces them by new tensors.
        """
        result = cls(2, 2, ignore_index=ignore_index)
        for name in (*PER_CLASS, "_residual_scatter"):
            setattr(result, name, state.get(name.removeprefix("_")))
        return result
