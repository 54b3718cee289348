"""How many threads arithmetic uses, and what they do with numbers next to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, for matrices so small that more would only wait; then as before.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Numbers too small for a full mantissa, in float32 below 1.2e-38, are 0; then as before.

    A CPU takes many times as long for them, and a network that died by weight decay is full of
    them. Holds in this thread; a processor that cannot do it goes on slowly.

    >>> with no_denormals():
    ...     float(torch.tensor(2e-38) / 4)
    0.0
    """
    before = _flushes()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushes() -> bool:
    return bool(torch.tensor(2e-38) / 4 == 0)
