"""Splits rows into float64 blocks that fit into the cache; computes products, norms, directions.

Norms are correct even where float64 cannot hold the squared entries.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from nclab.compute import has_numba

CPU_BLOCK = 2**16
"""Number of entries of a block on the CPU: half a MiB of float64, so that three blocks fit into the
L2 cache."""
ACCELERATOR_BLOCK = 2**24
"""Number of entries of a block on an accelerator."""
COMPILED_SIZE = 2**18
"""The compiled kernel is used for batches with at least this many entries, if numba is installed.
"""
PRODUCTS, PRODUCT = 4, 2**22
"""Limits for one call that multiplies rows by a matrix: the number of blocks of rows, and the
number of entries of the product."""
GROUP = 2
"""Number of blocks whose products are added to the scatter together."""
MANY_CLASSES = 2**14
"""C x d arrays with more than this many classes are processed in parts, to save memory."""
STRIP = 64
"""Columns in a strip of a symmetric d x d product, whose lower half is not computed. Strips reach
below the diagonal, so that a share STRIP / (2 d) of the work is redundant."""
SAFE = 2.0**-450, 2.0**450
"""Norms between these bounds are computed from squares without underflow or overflow.
The smallest normal float64, 2^-1022, is negligible against the square of such a norm."""
VANISHES = 1e-290
"""Sums of squares up to this value have lost digits, because the squares underflow."""
FOURTH = 2.0**-200, 2.0**200
"""Bounds like `SAFE` for computations with fourth powers."""


def add_by_class(total: Tensor, classes: Tensor, values: Tensor | None = None) -> None:
    """Add values, or ones by default, to the (C,) totals of their classes.

    Costs O(B) instead of O(C) if there are many classes.
    """
    if len(total) <= max(MANY_CLASSES, len(classes)):
        total.add_(classes.bincount(values, minlength=len(total)))
    else:
        ones = total.new_ones(len(classes)) if values is None else values.to(total.dtype)
        total.index_add_(0, classes, ones)


def device_with_float64(device: torch.device) -> torch.device:
    """Return the device, or the CPU if the device does not support float64."""
    return torch.device("cpu") if device.type == "mps" else device


def rows_to_read(labels: Tensor, ignore_index: int | None, *, sums: int = 0) -> Tensor | None:
    """Return the indices of the rows to read, in the best order; None means all rows as they are.

    Rows with the ignored label are skipped. `sums` is the number of float64 values in the caller's
    per-class sums. If these sums do not fit into the cache and classes have several rows each, the
    rows are sorted by class, so that only the sums of a few classes are in use at a time.
    """
    rows = None
    if ignore_index is not None:
        keep = labels != ignore_index
        if not keep.all():
            rows = keep.nonzero().flatten()
    if labels.device.type == "cpu" and sums > 4 * CPU_BLOCK:
        counted = labels if rows is None else labels[rows]
        if len(counted) and len(counted) > 4 * (int(counted.max()) + 1):
            order = counted.argsort(stable=True)
            rows = order if rows is None else rows[order]
    return rows


def compiles(features: Tensor, device: torch.device) -> bool:
    """Whether the compiled kernel reads these features.

    The choice depends only on their size and device, so that results are repeatable.
    """
    if features.numel() < COMPILED_SIZE or not features.device.type == device.type == "cpu":
        return False
    return has_numba()


def row_blocks(
    features: Tensor,
    labels: Tensor,
    device: torch.device,
    *,
    rows: Tensor | None = None,
    numbers: int | None = None,
    compiled: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of float64 features with their classes.

    A block is scratch memory: it is valid until the next block, and the caller may overwrite it.

    Args:
        rows: indices of the rows to read; by default all rows in order.
        numbers: number of entries of a block.
        compiled: whether the caller only reads a block, which may then be contiguous float32.
    """
    dim = features.shape[1]
    total = len(features) if rows is None else len(rows)
    if numbers is None:
        numbers = CPU_BLOCK if device.type == "cpu" else ACCELERATOR_BLOCK
    step = min(total, max(128, numbers // dim))
    dtype = features.dtype if compiled and features.dtype.itemsize > 2 else torch.float64
    no_copy = compiled and dtype == features.dtype and features.is_contiguous()
    scratch = torch.empty(0 if no_copy else step, dim, dtype=dtype, device=device)
    selected = features.new_empty(0 if rows is None else step, dim)
    for start in range(0, total, max(1, step)):
        if rows is None:
            part, classes = features[start : start + step], labels[start : start + step]
        else:
            index = rows[start : start + step]
            part = selected[: len(index)]
            torch.index_select(features, 0, index.to(features.device), out=part)
            classes = labels.index_select(0, index)
        yield part if no_copy else scratch[: len(part)].copy_(part), classes


def product_blocks(
    features: Tensor,
    labels: Tensor,
    device: torch.device,
    *,
    width: int,
    rows: Tensor | None = None,
    compiled: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `row_blocks` of the size that suits products with a matrix of `width` columns.

    The blocks are larger than the cache, because a matrix product is faster with more rows.
    """
    numbers = ACCELERATOR_BLOCK
    if device.type == "cpu":
        numbers = min(PRODUCTS * CPU_BLOCK, PRODUCT // max(1, width) * features.shape[1])
    else:
        numbers = numbers * features.shape[1] // max(width, features.shape[1])
    yield from row_blocks(features, labels, device, rows=rows, numbers=numbers, compiled=compiled)


class SymmetricSum:
    """A d x d sum of products rows^T rows, of which only the part above the diagonal is computed.

    It is computed in strips of `STRIP` rows; a strip reaches from the diagonal to the right end.
    """

    def __init__(self, total: Tensor) -> None:
        self.total = total
        self._strips = [slice(start, start + STRIP) for start in range(0, len(total), STRIP)]
        self._targets = [total[strip, strip.start :] for strip in self._strips]
        self._rows: Tensor | None = None
        self._views: list[tuple[Tensor, Tensor]] = []

    def add(self, rows: Tensor, *, factor: float = 1.0) -> None:
        """Add factor * rows^T rows to the sum."""
        if self._rows is not rows:
            self._rows = rows
            self._views = [(rows[:, strip].T, rows[:, strip.start :]) for strip in self._strips]
        for target, (left, right) in zip(self._targets, self._views, strict=True):
            target.addmm_(left, right, alpha=factor)

    def full(self) -> Tensor:
        """Return the whole symmetric sum: the part above the diagonal is copied below it."""
        for strip in self._strips:
            self.total[strip.stop :, strip] = self.total[strip, strip.stop :].T
        return self.total


class GroupedProducts:
    """A buffer of row blocks whose products are added to a sum several blocks at a time.

    The blocks are small enough for the cache; the products are large enough to be fast.
    """

    def __init__(self, total: Tensor | None, like: Tensor, group: int) -> None:
        self._sum = None if total is None else SymmetricSum(total)
        self._like, self._group = like, group
        self._buffer: Tensor | None = None
        self._filled = 0

    def next_rows(self, size: int) -> Tensor:
        """Return `size` rows of the buffer to write to; a full buffer is added to the sum first."""
        if self._buffer is None:
            blocks = 1 if self._sum is None else self._group
            self._buffer = self._like.new_empty(blocks * size, self._like.shape[1])
        if self._filled + size > len(self._buffer):
            self.finish()
        start, self._filled = self._filled, self._filled + size
        return self._buffer[start : self._filled]

    def finish(self) -> None:
        """Add the rows that are still in the buffer to the sum."""
        if self._sum is not None and self._buffer is not None and self._filled:
            full = self._filled == len(self._buffer)
            self._sum.add(self._buffer if full else self._buffer[: self._filled])
        self._filled = 0


def power_of_two(values: Tensor, safe: tuple[float, float] = SAFE) -> tuple[Tensor, float]:
    """Return the values divided by a power of two, and this power.

    The power brings the largest absolute value near 1. It is 1, and the values stay unchanged, if
    the largest absolute value lies within the bounds `safe`.

    >>> power_of_two(torch.tensor([3e-200, 0.0], dtype=torch.float64))[1] == 2.0**-662
    True
    """
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest == 0 or safe[0] < largest < safe[1]:
        return values, 1.0
    exponent = max(math.frexp(largest)[1], -1073)
    half = exponent // 2  # Two factors, because 2^1073 itself overflows.
    return values * 2.0**-half * 2.0 ** (half - exponent), math.ldexp(1.0, exponent)


def row_norms(rows: Tensor) -> Tensor:
    """Return the (B,) norms of float64 rows of any magnitude.

    >>> row_norms(torch.tensor([[3e-200, 4e-200], [3.0, 4.0]], dtype=torch.float64)).tolist()
    [5e-200, 5.0]
    """
    norms = torch.linalg.vector_norm(rows, dim=1)
    extreme = outside(norms)
    if extreme is None:
        return norms
    extreme_rows = rows[extreme]
    largest = extreme_rows.abs().amax(1)
    scaled = extreme_rows / largest.masked_fill(largest == 0, 1.0)[:, None]
    norms[extreme] = torch.linalg.vector_norm(scaled, dim=1) * largest
    return norms


def outside(norms: Tensor) -> Tensor | None:
    """Return a (B,) mask of the norms outside the bounds `SAFE`, or None if there are none."""
    if not len(norms):
        return None
    smallest, largest = torch.aminmax(norms)
    if smallest > SAFE[0] and largest < SAFE[1]:
        return None
    return (norms <= SAFE[0]) | (norms >= SAFE[1])


def norm(values: Tensor) -> float:
    """Return the Frobenius norm of a tensor with entries of any magnitude.

    >>> norm(torch.tensor([[3e-200], [4e-200]], dtype=torch.float64))
    5e-200
    """
    scaled, unit = power_of_two(values)
    return float(torch.linalg.vector_norm(scaled)) * unit


def unit_rows(rows: Tensor, *, zero: float = math.nan) -> Tensor:
    """Return the rows scaled to norm 1; rows of zeros become nan, or stay zero with `zero=0.0`."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    extreme = outside(norms[:, 0])
    if extreme is not None:
        rows = rows.clone()
        largest = rows[extreme].abs().amax(1, keepdim=True)
        rows[extreme] /= largest.masked_fill(largest == 0, 1.0)
        norms[extreme] = torch.linalg.vector_norm(rows[extreme], dim=1, keepdim=True)
    return rows * norms.reciprocal().masked_fill_(norms == 0, zero)
