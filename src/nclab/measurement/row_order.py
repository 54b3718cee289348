"""RowOrder: whether a second pass has brought the same labels in the same order."""

import zlib

from torch import Tensor


class RowOrder:
    """Checksums of the labels of both passes.

    >>> import torch
    >>> order = RowOrder()
    >>> order.add(torch.tensor([0, 1]))
    >>> order.look(torch.tensor([1, 0]))
    >>> order.same
    False
    """

    def __init__(self) -> None:
        self._first = self._second = 0

    def add(self, classes: Tensor) -> None:
        """A batch of the first pass."""
        self._first = _checksum(classes, self._first)

    def look(self, classes: Tensor) -> None:
        """A batch of the second pass."""
        self._second = _checksum(classes, self._second)

    @property
    def same(self) -> bool:
        """Whether both passes agree so far."""
        return self._first == self._second


def _checksum(classes: Tensor, start: int) -> int:
    return zlib.crc32(classes.cpu().contiguous().numpy().tobytes(), start)
