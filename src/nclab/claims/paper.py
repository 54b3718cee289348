"""Paper: how to find a source and how to read its notation."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Paper:
    """One source; `PAPER` in the `__init__` of its folder."""

    key: str
    title: str
    authors: str
    year: int
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Their symbol -> ours, only where the two differ."""
    parts: tuple[str, ...] = ()
    """Modules of the folder in the order in which they are read and run; others follow."""
