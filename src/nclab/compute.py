"""Settings of the arithmetic: number of threads, denormal numbers, compiled kernels."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from nclab.errors import NclabWarning


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside the context; several threads are slower for small matrices.

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
    """Round denormal numbers (below 1.2e-38 in float32) to 0 inside the context, in this thread.

    CPUs compute with denormal numbers many times slower, and a network has many of them if weight
    decay has shrunk its weights to almost 0. On a CPU without this mode nothing changes.

    >>> with no_denormals():
    ...     float(torch.tensor(2e-38) / 4)
    0.0
    """
    before = bool(torch.tensor(2e-38) / 4 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@cache
def has_numba() -> bool:
    """Whether numba can be imported; warn once if it is installed but broken."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except Exception as error:  # noqa: BLE001 - a broken build may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        warnings.warn(
            f"numba is installed but cannot be imported ({reason:.200}). nclab continues without "
            "compiled kernels, which is slower. Reinstall it with `pip install nclab[fast]`.",
            NclabWarning,
            stacklevel=2,
        )
        return False
    return True
