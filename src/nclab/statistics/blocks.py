"""How the streams read: blocks of rows that stay in the cache, in float64."""

from collections.abc import Iterator

import torch
from torch import Tensor

from nclab.compiler import has_numba

CPU_BLOCK = 2**16
"""Numbers in a block: half a MiB of float64, so that three of them stay in the L2 cache."""
ACCELERATOR_BLOCK = 2**24
COMPILED = 2**18
"""Numbers in a batch from which on the compiled kernel reads it, where numba is installed."""
PRODUCTS, PRODUCT = 4, 2**22
"""Blocks whose rows are multiplied by a matrix together, unless the product outgrows this."""
GROUP = 2
"""Blocks whose products are formed together."""
MANY = 2**14
"""Classes beyond which C x d arrays are worked on in parts and pairs of classes in float32 first;
up to here every number is what it would be without these parts."""
STRIP = 64
"""Columns in a strip of the symmetric product: the diagonal wastes STRIP / (2 d) of it."""


def add_by_class(total: Tensor, classes: Tensor, values: Tensor | None = None) -> None:
    """Add values, by default ones, to the (C,) totals of their classes.

    Of many classes only those present are touched: a batch costs O(B), not O(C).
    """
    if len(total) <= max(MANY, len(classes)):
        total.add_(classes.bincount(values, minlength=len(total)))
    else:
        ones = total.new_ones(len(classes)) if values is None else values.to(total.dtype)
        total.index_add_(0, classes, ones)


def device_with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU where the device knows no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def rows_to_read(labels: Tensor, ignore_index: int | None, *, sums: int = 0) -> Tensor | None:
    """Which rows count, in the order to read them; None for all of them as they come.

    Rows with the ignored label are left out. `sums` is the size of the per-class sums that the
    caller adds to: where they outgrow the cache and classes have several rows each, the rows
    come class by class, so that only the sums of a few classes are in use at a time.
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
    """Whether the compiled kernel reads these rows; by their number, so that it is repeatable."""
    if features.numel() < COMPILED or not features.device.type == device.type == "cpu":
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
    """Yield (float64 features, classes) of blocks of rows, by default of all of them in order.

    The features are scratch space, valid until the next block and free to be overwritten.
    `numbers` is the size of a block. With `compiled` the features are for reading only and may
    be contiguous float32.
    """
    dim = features.shape[1]
    total = len(features) if rows is None else len(rows)
    if numbers is None:
        numbers = CPU_BLOCK if device.type == "cpu" else ACCELERATOR_BLOCK
    step = min(total, max(128, numbers // dim))
    kind = features.dtype if compiled and features.dtype.itemsize > 2 else torch.float64
    as_it_is = compiled and kind == features.dtype and features.is_contiguous()
    scratch = torch.empty(0 if as_it_is else step, dim, dtype=kind, device=device)
    picked = features.new_empty(0 if rows is None else step, dim)
    for start in range(0, total, max(1, step)):
        if rows is None:
            part, classes = features[start : start + step], labels[start : start + step]
        else:
            index = rows[start : start + step]
            part = picked[: len(index)]
            torch.index_select(features, 0, index.to(features.device), out=part)
            classes = labels.index_select(0, index)
        yield part if as_it_is else scratch[: len(part)].copy_(part), classes


def product_blocks(
    features: Tensor,
    labels: Tensor,
    device: torch.device,
    *,
    width: int,
    rows: Tensor | None = None,
    compiled: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """`row_blocks` for products of `width` columns: they want more rows than the cache holds."""
    numbers = ACCELERATOR_BLOCK
    if device.type == "cpu":
        numbers = min(PRODUCTS * CPU_BLOCK, PRODUCT // max(1, width) * features.shape[1])
    else:
        numbers = numbers * features.shape[1] // max(width, features.shape[1])
    yield from row_blocks(features, labels, device, rows=rows, numbers=numbers, compiled=compiled)


class SymmetricSum:
    """A d x d sum of products rows^T rows, at half the price: only strips above the diagonal."""

    def __init__(self, total: Tensor) -> None:
        self.total = total
        self._strips = [slice(start, start + STRIP) for start in range(0, len(total), STRIP)]
        self._targets = [total[strip, strip.start :] for strip in self._strips]
        self._rows: Tensor | None = None
        self._views: list[tuple[Tensor, Tensor]] = []

    def add(self, rows: Tensor, *, factor: float = 1.0) -> None:
        """Add factor * rows^T rows to the strips."""
        if self._rows is not rows:
            self._rows = rows
            self._views = [(rows[:, strip].T, rows[:, strip.start :]) for strip in self._strips]
        for target, (left, right) in zip(self._targets, self._views, strict=True):
            target.addmm_(left, right, alpha=factor)

    def full(self) -> Tensor:
        """The sum with the part below the diagonal mirrored from the part above it."""
        for strip in self._strips:
            self.total[strip.stop :, strip] = self.total[strip, strip.stop :].T
        return self.total


class GroupedProducts:
    """Collects blocks of rows and adds their products to a sum several blocks at a time.

    The blocks stay small for the cache; the products are larger, which a GEMM prefers.
    """

    def __init__(self, total: Tensor | None, like: Tensor, group: int) -> None:
        self._sum = None if total is None else SymmetricSum(total)
        self._like, self._group = like, group
        self._buffer: Tensor | None = None
        self._filled = 0

    def room(self, size: int) -> Tensor:
        """Where to write `size` rows like `like`; they are added once the room is used up."""
        if self._buffer is None:
            blocks = 1 if self._sum is None else self._group
            self._buffer = self._like.new_empty(blocks * size, self._like.shape[1])
        if self._filled + size > len(self._buffer):
            self.finish()
        start, self._filled = self._filled, self._filled + size
        return self._buffer[start : self._filled]

    def finish(self) -> None:
        """Add what is left."""
        if self._sum is not None and self._buffer is not None and self._filled:
            full = self._filled == len(self._buffer)
            self._sum.add(self._buffer if full else self._buffer[: self._filled])
        self._filled = 0
