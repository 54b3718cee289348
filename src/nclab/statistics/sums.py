"""ClassSums: the sums over a stream of features, and the quantities derived from them."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics import blocks
from nclab.statistics.blocks import SymmetricSum, device_with_float64, row_norms
from nclab.statistics.checks import IGNORE_INDEX, check_ignore_index, check_sizes

Derived = TypeVar("Derived")
UNIT = torch.finfo(torch.float64).eps / 2
"""Half a unit in the last place of float64."""
ROUNDING = 32 * UNIT
"""Relative differences below this threshold are treated as rounding errors."""


class derived(Generic[Derived]):
    """A property that is computed on first use and reset by the next update."""

    def __init__(self, compute: Callable[["ClassSums"], Derived]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, sums: "ClassSums", owner: type | None = None) -> Derived:
        if sums is None:
            return self
        name = self.compute.__name__
        if name not in sums._cache:
            sums._cache[name] = self.compute(sums)
        value: Derived = sums._cache[name]
        return value


class ClassSums:
    """Float64 sums, for each class, of residuals about a pivot and of unit feature vectors."""

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
        """Largest root mean square norm of a class, the scale of rounding errors of the means."""
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
                "Expected a selection of all classes with samples, as the scatter is pooled over "
                f"them, but it lacks {_listing(dropped.nonzero().flatten().tolist())}."
            )
        result = self._empty_like(len(index))
        for name in PER_CLASS:
            setattr(result, name, getattr(self, name)[index])
        return result

    def remove_classes(self, classes: Tensor) -> Tensor:
        """Remove the sums of (k,) classes with samples, and return their (k, d) means.

        The pooled scatter loses only the part between the pivots and the means of these classes.
        Their scatter around the means stays until you call `subtract_scatter`.
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

        None drops the scatter of all classes.
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


PER_CLASS = ("_count", "_zeros", "_pivot", "_residual_sum", "_residual_square", "_unit_sum")
"""Names of the tensors with one row for each class."""


def unit_error(moments: ClassSums) -> float:
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
            f"{_listing(missing)}. Pass min_count=1 to skip these classes."
        )


def _listing(classes: Sequence[int]) -> str:
    first = ", ".join(str(c) for c in classes[:10])
    return first if len(classes) <= 10 else f"{first} and {len(classes) - 10} more"
