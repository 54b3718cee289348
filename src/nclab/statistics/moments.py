"""ClassMoments: per-class counts, means and variances of features, read once and mergeable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics import blocks
from nclab.statistics.blocks import (
    CPU_BLOCK,
    GROUP,
    GroupedProducts,
    SymmetricSum,
    add_by_class,
    compiles,
    device_with_float64,
    outside,
    row_blocks,
    row_norms,
    rows_to_read,
)
from nclab.statistics.checks import (
    IGNORE_INDEX,
    as_features,
    as_labels,
    check_ignore_index,
    check_sizes,
)
from nclab.statistics.process_group import MESSAGE, Group, ProcessGroup
from nclab.text import listed

STATE_VERSION = 1
NO_INDEX = torch.iinfo(torch.int64).min
"""Value in a stored state that means `ignore_index=None`."""
PER_CLASS = ("_count", "_zeros", "_pivot", "_residual_sum", "_residual_square", "_unit_sum")
"""Names of the tensors with one row for each class."""

Derived = TypeVar("Derived")
UNIT = torch.finfo(torch.float64).eps / 2
"""Half a unit in the last place of float64."""
ROUNDING = 32 * UNIT
"""Relative differences below this threshold are treated as rounding errors."""


class derived(Generic[Derived]):
    """Property that is computed on first use and reset by the next update."""

    def __init__(self, compute: Callable[["ClassMoments"], Derived]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, sums: "ClassMoments", owner: type | None = None) -> Derived:
        if sums is None:
            return self
        name = self.compute.__name__
        if name not in sums._cache:
            sums._cache[name] = self.compute(sums)
        value: Derived = sums._cache[name]
        return value


class ClassMoments:
    r"""Count, mean, mean unit vector and centred second moment of each class of a stream.

    Every row is centred by a pivot, the first row of its class, and the residuals are
    accumulated in float64. No result is a difference of two large sums. Features that have
    collapsed to 1e-8 of their norm therefore keep all their digits.

    Costs one read of the features, two float64 scatter-adds of B x d numbers for each batch and,
    with `scatter=True`, half a float64 matrix product (B x d x d). Memory: 3 C d + d^2 float64
    numbers.

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

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scatter: bool = False,
        ignore_index: int | None = IGNORE_INDEX,
        device: torch.device | str = "cpu",
    ) -> None:
        check_sizes(num_classes, dim)
        check_ignore_index(ignore_index)
        self.ignore_index = ignore_index
        self.ignored = 0
        self.rows_seen = 0
        self.unit = UNIT
        """Half a unit in the last place of the least precise type among the batches."""
        self._cache: dict[str, Any] = {}
        device = device_with_float64(torch.device(device))
        self._pivot = _zeros(num_classes, dim, device)
        self._count = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self._zeros = torch.zeros_like(self._count)
        self._residual_sum = torch.zeros_like(self._pivot)
        self._residual_square = self._pivot.new_zeros(num_classes)
        self._unit_sum = torch.zeros_like(self._pivot)
        # Only the strips above the diagonal are kept up to date, see SymmetricSum.
        self._residual_scatter = self._pivot.new_zeros(dim, dim) if scatter else None

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return len(self._count)

    @property
    def dim(self) -> int:
        """Dimension of the features, d."""
        return self._pivot.shape[1]

    @property
    def device(self) -> torch.device:
        """The device of the sums."""
        return self._count.device

    @property
    def has_scatter(self) -> bool:
        """Whether the pooled d x d within-class scatter is accumulated."""
        return self._residual_scatter is not None

    @property
    def counts(self) -> Tensor:
        """(C,) number of samples of each class."""
        return self._count

    @property
    def zero_counts(self) -> Tensor:
        """(C,) number of feature vectors that are exactly zero and therefore have no direction."""
        return self._zeros

    @property
    def total(self) -> int:
        """Number of samples of all classes."""
        return int(self._count.sum())

    @property
    def missing(self) -> list[int]:
        """Classes without samples."""
        return [int(c) for c in (self._count == 0).nonzero().flatten()]

    @derived
    def means(self) -> Tensor:
        """(C, d) class means."""
        self.require_all_classes()
        return torch.addcdiv(self._pivot, self._residual_sum, self._count.double()[:, None])

    @derived
    def unit_means(self) -> Tensor:
        """(C, d) class means of the unit feature vectors h/|h|."""
        self.require_all_classes()
        return self._unit_sum / self._count[:, None]

    @derived
    def variances(self) -> Tensor:
        """(C,) mean squared distance of the features to their class mean."""
        self.require_all_classes()
        offset = torch.linalg.vector_norm(self._residual_sum, dim=1).square_() / self._count
        return ((self._residual_square - offset) / self._count).clamp_min(0.0)

    @derived
    def mean_square_norms(self) -> Tensor:
        """(C,) mean squared norm of the features."""
        return self.variances + torch.linalg.vector_norm(self.means, dim=1).square_()

    @derived
    def within_scatter(self) -> Tensor:
        """(d, d) sum over all samples of (h - mean)(h - mean)^T."""
        self.require_all_classes()
        if self._residual_scatter is None:
            raise DataError(
                "Expected moments with a scatter, got moments without. "
                "Create them with ClassMoments(..., scatter=True)."
            )
        scatter = SymmetricSum(self._residual_scatter.clone())
        size = blocks.MANY_CLASSES
        for sums, count in zip(
            self._residual_sum.split(size), self._count.split(size), strict=True
        ):
            scatter.add(sums / count.double().sqrt()[:, None], factor=-1.0)
        return scatter.full()

    @derived
    def global_mean(self) -> Tensor:
        """(d,) unweighted mean of the class means."""
        return self.means.mean(0)

    @derived
    def sample_mean(self) -> Tensor:
        """(d,) mean of all samples: the class means weighted by their counts."""
        return (self.means * (self._count.double() / self.total)[:, None]).sum(0)

    @derived
    def centred_means(self) -> Tensor:
        """(C, d) class means minus their global mean; rounding errors are set to exactly 0."""
        centred: Tensor = self.means - self.global_mean
        centred[row_norms(centred) <= ROUNDING * self.size] = 0.0
        return centred

    @derived
    def size(self) -> float:
        """Largest root mean square feature norm of a class; rounding errors are relative to it."""
        return float(self.mean_square_norms.max().sqrt())

    def require_all_classes(self) -> None:
        """Raise an error that names the classes without samples, if there are any."""
        require_samples(self._count)

    def select(self, classes: Sequence[int] | Tensor) -> Self:
        """Return the statistics of some classes, in the given order.

        The d x d scatter is pooled over all classes. With a scatter, every class that has samples
        must therefore be selected.
        """
        index = torch.as_tensor(classes, dtype=torch.int64, device=self.device)
        dropped = self._count.clone()
        dropped[index] = 0
        if self._residual_scatter is not None and dropped.any():
            raise DataError(
                "Expected a selection of all classes with samples, because the scatter is pooled "
                "over all of them, got a selection without "
                f"{listed(dropped.nonzero().flatten().tolist())}."
            )
        result = self._empty_like(len(index))
        for name in PER_CLASS:
            setattr(result, name, getattr(self, name)[index])
        return result

    def remove_classes(self, classes: Tensor) -> Tensor:
        """Remove the sums of (k,) classes with samples, and return their (k, d) means.

        The pooled d x d scatter still contains the scatter of these classes around their means.
        Compute that scatter and pass it to `subtract_scatter`.
        """
        self._cache.clear()
        count = self._count[classes].double()[:, None]
        residual_sum = self._residual_sum[classes]
        means = torch.addcdiv(self._pivot[classes], residual_sum, count)
        if self._residual_scatter is not None:
            SymmetricSum(self._residual_scatter).add(residual_sum / count.sqrt(), factor=-1.0)
        for name in PER_CLASS:
            getattr(self, name)[classes] = 0
        return means

    def subtract_scatter(self, scatter: Tensor | None) -> None:
        """Subtract the d x d scatter of removed classes around their means.

        With None, the whole pooled scatter is dropped, because it cannot be corrected.
        """
        self._cache.clear()
        if self._residual_scatter is not None:
            self._residual_scatter = (
                None if scatter is None else self._residual_scatter - scatter.to(self.device)
            )

    def grow(self, num_classes: int) -> None:
        """Extend the sums to a larger number of classes."""
        check_sizes(num_classes, self.dim)
        self._cache.clear()
        zeros = _zeros(num_classes - self.num_classes, self.dim, self.device)
        for name in PER_CLASS:
            old = getattr(self, name)
            added = zeros[:, 0] if old.ndim == 1 else zeros
            setattr(self, name, torch.cat([old, added.to(old.dtype)]))

    def to(self, device: torch.device | str) -> Self:
        """Return the same statistics on another device."""
        if torch.device(device) == self.device:
            return self
        result = self._empty_like(self.num_classes, device=device)
        for name in (*PER_CLASS, "_residual_scatter"):
            value = getattr(self, name)
            setattr(result, name, None if value is None else value.to(result.device))
        return result

    def _empty_like(self, num_classes: int, device: torch.device | str | None = None) -> Self:
        result = type(self)(
            num_classes, self.dim, ignore_index=self.ignore_index, device=device or self.device
        )
        if self._residual_scatter is not None:
            result._residual_scatter = self._residual_scatter.clone()
        result.ignored, result.rows_seen, result.unit = self.ignored, self.rows_seen, self.unit
        return result

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
        """Return a function that does the work of `_add_block` in the compiled kernel.

        The function leaves its argument `block` unchanged.
        """
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
        Costs four messages with 3 C d + d^2 + 4 C numbers in all (more messages above 256 MiB),
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
        """Return the sums of the classes in `part` by name, and the d x d scatter.

        Both then contain residuals from `pivot` instead of from the pivots of this stream.
        """
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
        if state["header"].shape != (4,) or state["pivot"].ndim != 2:
            raise DataError(
                "Expected the state of ClassMoments, got arrays of other shapes. "
                "Pass the result of state_dict()."
            )
        version, ignored, rows_seen, ignore = state["header"].tolist()
        if version != STATE_VERSION:
            raise DataError(f"Expected ClassMoments state version {STATE_VERSION}, got {version}.")
        result = cls(2, 2, ignore_index=None if ignore == NO_INDEX else ignore)
        num_classes, dim = state["pivot"].shape
        shapes = dict.fromkeys(("pivot", "residual_sum", "unit_sum"), (num_classes, dim))
        shapes["residual_scatter"] = (dim, dim)
        for name in (*names, "residual_scatter"):
            value = state.get(name)
            if value is None:
                continue
            shape = shapes.get(name, (num_classes,))
            dtype = torch.int64 if name in ("count", "zeros") else torch.float64
            if value.shape != shape or value.dtype != dtype:
                raise DataError(
                    f"Expected {name} as {dtype} {shape}, got {value.dtype} {tuple(value.shape)}."
                )
            if not all(torch.isfinite(part).all() for part in value.split(blocks.MANY_CLASSES)):
                raise DataError(f"Expected finite {name}, got nan or inf.")
            setattr(result, f"_{name}", value.clone() if copy else value)
        if (result._count < 0).any() or (result._zeros < 0).any():
            raise DataError("Expected counts of 0 or more in the state, got negative ones.")
        result.ignored, result.rows_seen = ignored, rows_seen
        if "unit" in state:  # Older versions did not store it.
            result.unit = max(result.unit, float(state["unit"].flatten()[0]))
        return result

    @classmethod
    def over(
        cls, state: Mapping[str, Tensor], *, ignore_index: int | None = IGNORE_INDEX
    ) -> "ClassMoments":
        """Return a stream whose `update` adds to the given tensors in place.

        The tensors have the names and shapes of a `state_dict`, whose "header" is not needed. They
        are not checked. `merge` replaces them by new tensors.
        """
        result = cls(2, 2, ignore_index=ignore_index)
        for name in (*PER_CLASS, "_residual_scatter"):
            setattr(result, name, state.get(name.removeprefix("_")))
        return result


def unit_error(moments: ClassMoments) -> float:
    """Return the likely relative error of sums and norms, 16 √(n + d + C) u.

    n is the size of the largest class and u half a unit in the last place of float64.
    """
    numbers = int(moments.counts.max()) + moments.dim + moments.num_classes
    return 16 * numbers**0.5 * UNIT


def _zeros(num_classes: int, dim: int, device: torch.device) -> Tensor:
    """Return (C, d) float64 zeros, or raise an error that states the memory they need."""
    try:
        return torch.zeros(num_classes, dim, dtype=torch.float64, device=device)
    except (RuntimeError, MemoryError) as error:
        size = num_classes * dim * 8 / 1e9
        raise DataError(
            f"Expected {size:.3g} GB of memory for {num_classes} classes in dimension {dim}, got "
            "less. If your labels are ids, map them to 0, 1, 2, ..."
        ) from error


def require_samples(counts: Tensor) -> None:
    """Raise an error that names the classes without samples in (C,) counts, if there are any."""
    if not counts.any():
        raise DataError("Expected at least one sample, got none. Check the data source.")
    if not counts.all():
        missing = (counts == 0).nonzero().flatten().tolist()
        raise DataError(
            f"Expected samples of all {len(counts)} classes, got none of "
            f"{listed(missing)}. Pass min_count=1 to skip these classes."
        )
