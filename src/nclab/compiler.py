"""Whether compiled kernels can be had: numba, the extra `fast`, installed and in working order."""

import importlib
import importlib.util
import warnings
from functools import cache

from nclab.errors import NclabWarning


@cache
def has_numba() -> bool:
    """Whether numba can be imported; one that is there and cannot be is told of, once.

    >>> isinstance(has_numba(), bool)
    True
    """
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except Exception as error:  # noqa: BLE001 - a broken build raises what it likes
        said = " ".join(f"{type(error).__name__}: {error}".split())
        warnings.warn(
            f"numba is installed but cannot be imported ({said:.200}): going on without compiled "
            "kernels, which is slower. Reinstall it with `pip install nclab[fast]`.",
            NclabWarning,
            stacklevel=2,
        )
        return False
    return True
