"""Multiprecision numbers, from gmpy2 if it is installed, otherwise from mpmath.

Both have the interface of mpmath. gmpy2 needs a tenth of the time, which dominates the numerical
campaign.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mpmath


class Gmpy:
    """The functions of `mpmath.mp` that the tests need, implemented with gmpy2."""

    def __init__(self, gmpy2: ModuleType) -> None:
        self._gmpy2 = gmpy2
        self.mpf = gmpy2.mpfr
        self.sqrt, self.exp, self.log, self.log1p = (
            getattr(gmpy2, name) for name in ("sqrt", "exp", "log", "log1p")
        )
        self.isfinite = gmpy2.is_finite
        self.inf, self.nan = gmpy2.inf(), gmpy2.nan()

    @property
    def prec(self) -> int:
        """Current precision in binary digits."""
        return int(self._gmpy2.get_context().precision)

    @contextmanager
    def workprec(self, digits: int) -> Iterator[None]:
        """Set the precision in binary digits; division by zero raises, as in mpmath."""
        with self._gmpy2.context(self._gmpy2.get_context(), precision=digits, trap_divzero=True):
            yield

    def fdot(self, left: Sequence[Any], right: Sequence[Any]) -> Any:
        """Return the inner product of two sequences."""
        total = self.mpf(0)
        for a, b in zip(left, right, strict=True):
            total = self._gmpy2.fma(a, b, total)
        return total

    def nstr(self, value: Any, digits: int) -> str:
        """Format a number with some decimal digits."""
        return f"{value:.{digits}g}"


def fast() -> Gmpy | None:
    """Return the implementation with gmpy2, or None if gmpy2 is not installed."""
    try:
        import gmpy2
    except ImportError:
        return None
    return Gmpy(gmpy2)


mp: Any = fast() or mpmath.mp
mpf: Any = mp.mpf
