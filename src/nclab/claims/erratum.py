"""One erratum: what a paper prints, what it should say, why, and which claims show it."""

from dataclasses import dataclass
from typing import Literal

from nclab.claims.links import slug


@dataclass(frozen=True)
class Erratum:
    """A place of a paper put right.

    >>> Erratum("ji2022, Eq. (9)", "a", "b", "c", ("ji2022/eq-9",)).anchor
    'docs/errata.md#ji2022-eq-9'
    """

    where: str
    """Paper key and place; the heading of the entry, so every one is different."""
    printed: str
    correct: str
    why: str
    claims: tuple[str, ...] = ()
    """Ids of the claims whose checks show it; none for a slip that has no consequence."""
    confidence: Literal["certain", "likely", "scan"] = "certain"
    """certain: a counterexample, or the text contradicts itself; scan: it may be our copy."""

    @property
    def paper(self) -> str:
        """The key of the paper."""
        return self.where.split(",")[0]

    @property
    def anchor(self) -> str:
        """Where the page of errata has it."""
        return f"docs/errata.md#{slug(self.where)}"
