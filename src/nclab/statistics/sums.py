"""ClassSums: what a stream of features has left behind, and the quantities derived from it."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.statistics import blocks
from nclab.statistics.blocks import SymmetricSum, device_with_float64
from nclab.statistics.checks import IGNORE_INDEX, check_ignored, check_sizes
from nclab.statistics.norms import row_norms

Derived = TypeVar("Derived")
UNIT = torch.finfo(torch.float64).eps / 2
"""Half a unit in the last place of float64."""
ROUNDING = 32 * UNIT
"""Differences below this share of what they are taken of are rounding and nothing else."""


class derived(Generic[Derived]):
    """A property computed on first use and forgotten when the stream moves on."""

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
    """Sums of residuals about a pivot of each class, and of unit vectors, in float64."""

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
        check_ignored(ignore_index)
        self.ignore_index = ignore_index
        self.ignored = 0
        self.rows_seen = 0
        self.unit = UNIT
        """Half a unit in the last place of the coarsest type that rows came in."""
        self._cache: dict[str, Any] = {}
        device = device_with_float64(torch.device(device))
        self._pivot = allocated(num_classes, dim, device)
        self._count = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self._zeros = torch.zeros_like(self._count)
        self._residual_sum = torch.zeros_like(self._pivot)
        self._residual_square = self._pivot.new_zeros(num_classes)
        self._unit_sum = torch.zeros_like(self._pivot)
        # Kept up to date in the strips above the diagonal only, see SymmetricSum.
        self._residual_scatter = self._pivot.new_zeros(dim, dim) if scatter else None

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self._count)

    @property
    def dim(self) -> int:
        """d."""
        return self._pivot.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the sums live."""
        return self._count.device

    @property
    def has_scatter(self) -> bool:
        """Whether the pooled d x d within-class scatter is kept."""
        return self._residual_scatter is not None

    @property
    def counts(self) -> Tensor:
        """(C,) samples per class."""
        return self._count

    @property
    def zero_counts(self) -> Tensor:
        """(C,) feature vectors that are exactly zero and so have no direction."""
        return self._zeros

    @property
    def total(self) -> int:
        """Samples of all classes together."""
        return int(self._count.sum())

    @property
    def missing(self) -> list[int]:
        """Classes without a sample."""
        return [int(c) for c in (self._count == 0).nonzero().flatten()]

    @derived
    def means(self) -> Tensor:
        """(C, d) class means."""
        self.require_all_classes()
        return torch.addcdiv(self._pivot, self._residual_sum, self._count.double()[:, None])

    @derived
    def unit_means(self) -> Tensor:
        """(C, d) means of the unit feature vectors h/|h|."""
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
            raise DataError("Expected moments with a scatter. Create ClassMoments(scatter=True).")
        scatter = SymmetricSum(self._residual_scatter.clone())
        parts = self._residual_sum.split(blocks.MANY), self._count.split(blocks.MANY)
        for sums, count in zip(*parts, strict=True):
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
        """(C, d) class means minus their global mean; what is only rounding is exactly 0."""
        return self.centred_at(self.global_mean)

    def centred_at(self, centre: Tensor) -> Tensor:
        """(C, d) class means minus `centre`; rows that are only rounding are exactly 0."""
        centred: Tensor = self.means - centre
        centred[row_norms(centred) <= ROUNDING * self.size] = 0.0
        return centred

    @derived
    def size(self) -> float:
        """The largest rms norm of a class: what rounding errors of class means are relative to."""
        return float(self.mean_square_norms.max().sqrt())

    @derived
    def largest_mean_norm(self) -> float:
        """The largest norm of a class mean."""
        return float(row_norms(self.means).max())

    def require_all_classes(self) -> None:
        """Raise an error that names the classes without samples, if there are any."""
        require_samples(self._count)

    def select(self, classes: Sequence[int] | Tensor) -> Self:
        """The same statistics for some of the classes, in the given order.

        The d x d scatter is pooled over all classes, so a class with samples can only be left
        out of moments that do not keep it.
        """
        chosen = torch.as_tensor(classes, dtype=torch.int64, device=self.device)
        left_out = self._count.clone()
        left_out[chosen] = 0
        if self._residual_scatter is not None and left_out.any():
            raise DataError(
                f"Expected every class with samples to stay, as the scatter is pooled; "
                f"left out: {_listing(left_out.nonzero().flatten().tolist())}."
            )
        result = self._empty_like(len(chosen))
        for name in PER_CLASS:
            setattr(result, name, getattr(self, name)[chosen])
        return result

    def forget(self, classes: Tensor) -> Tensor:
        """Take (k,) classes with samples out again, as if they had never come; their (k, d) means.

        Of the pooled scatter only their part between pivots and means is known here: what they
        scatter around their means stays in it until `take_off` is told.
        """
        self._cache.clear()
        count, own = self._count[classes].double()[:, None], self._residual_sum[classes]
        means = torch.addcdiv(self._pivot[classes], own, count)
        if self._residual_scatter is not None:
            SymmetricSum(self._residual_scatter).add(own / count.sqrt(), factor=-1.0)
        for name in PER_CLASS:
            getattr(self, name)[classes] = 0
        return means

    def take_off(self, scatter: Tensor | None) -> None:
        """Take the d x d scatter of forgotten classes around their means off; None gives all up."""
        self._cache.clear()
        if self._residual_scatter is not None:
            self._residual_scatter = (
                None if scatter is None else self._residual_scatter - scatter.to(self.device)
            )

    def grow(self, num_classes: int) -> None:
        """Make room for more classes."""
        check_sizes(num_classes, self.dim)
        self._cache.clear()
        room = allocated(num_classes - self.num_classes, self.dim, self.device)
        for name in PER_CLASS:
            old = getattr(self, name)
            blank = room[:, 0] if old.ndim == 1 else room
            setattr(self, name, torch.cat([old, blank.to(old.dtype)]))

    def to(self, device: torch.device | str) -> Self:
        """The same statistics on another device."""
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
"""The tensors with one row per class."""


def unit_error(moments: Any) -> float:
    """What sums and norms of so many numbers are likely off by, of their size: 16 √(n + d + C) u.

    n is the largest class.
    """
    numbers = int(moments.counts.max()) + moments.dim + moments.num_classes
    return 16 * numbers**0.5 * UNIT


def allocated(num_classes: int, dim: int, device: torch.device) -> Tensor:
    """(C, d) float64 zeros, or one line that says how much memory they would need."""
    try:
        return torch.zeros(num_classes, dim, dtype=torch.float64, device=device)
    except (RuntimeError, MemoryError) as error:
        size = num_classes * dim * 8 / 1e9
        raise DataError(
            f"Expected room for {num_classes} classes in dimension {dim}, {size:.3g} GB, got "
            "none. Labels that are ids must be mapped to 0, 1, 2, ..."
        ) from error


def require_samples(counts: Tensor) -> None:
    """Raise an error that names the classes of (C,) counts without samples, if there are any."""
    if not counts.any():
        raise DataError("Expected at least one sample, got none. Check the data source.")
    if not counts.all():
        missing = (counts == 0).nonzero().flatten().tolist()
        raise DataError(
            f"Expected samples of all {len(counts)} classes, got none of "
            f"{_listing(missing)}. Pass allow_missing=True to leave them out."
        )


def _listing(classes: Sequence[int]) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown if len(classes) <= 10 else f"{shown} and {len(classes) - 10} more"
