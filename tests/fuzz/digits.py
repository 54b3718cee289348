"""Numbers of as many binary digits as asked for: gmpy2's where it is installed, else mpmath's.

Both are called by the names of mpmath. gmpy2 takes a tenth of the time, and that is most of the
numerical campaign's.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mpmath


class Gmpy:
    """What the campaign asks of `mpmath.mp`, by gmpy2."""

    def __init__(self, gmpy2: ModuleType) -> None:
        self._own = gmpy2
        self.mpf = gmpy2.mpfr
        self.sqrt, self.exp, self.log, self.log1p = (
            getattr(gmpy2, name) for name in ("sqrt", "exp", "log", "log1p")
        )
        self.isfinite = gmpy2.is_finite
        self.inf, self.nan = gmpy2.inf(), gmpy2.nan()

    @property
    def prec(self) -> int:
        """Binary digits in use."""
        return int(self._own.get_context().precision)

    @contextmanager
    def workprec(self, digits: int) -> Iterator[None]:
        """So many binary digits; a division by zero is an error, as it is in mpmath."""
        with self._own.context(self._own.get_context(), precision=digits, trap_divzero=True):
            yield

    def fdot(self, left: Sequence[Any], right: Sequence[Any]) -> Any:
        total = self.mpf(0)
        for a, b in zip(left, right, strict=True):
            total = self._own.fma(a, b, total)
        return total

    def nstr(self, value: Any, digits: int) -> str:
        return f"{value:.{digits}g}"


def fast() -> Gmpy | None:
    """By gmpy2; None where it is not installed."""
    try:
        import gmpy2
    except ImportError:
        return None
    return Gmpy(gmpy2)


mp: Any = fast() or mpmath.mp
mpf: Any = mp.mpf
