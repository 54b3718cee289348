"""Rows as a pandas table; pandas is imported on first use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nclab.errors import MissingExtra

if TYPE_CHECKING:
    from pandas import DataFrame


def as_frame(
    rows: Iterable[Mapping[str, Any]], *, index: Sequence[str] | None = None
) -> "DataFrame":
    """Return a pandas table with one row per mapping.

    >>> as_frame([{"cdnv": 0.5}, {"cdnv": 0.25}])["cdnv"].tolist()
    [0.5, 0.25]
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise MissingExtra("to_frame()", package="pandas", extra="notebook") from error
    return DataFrame([dict(row) for row in rows], index=index)
