"""What a check says about a claim: a verdict, and the numbers it was derived from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Verdict(StrEnum):
    """The outcomes a check can have.

    Statements hold, hold with a correction or are refuted. A result is reproduced where the whole
    interval of its effect lies on the claimed side of the margin, contradicted where it lies on
    the other side, without effect where it lies inside, and else undecided. What nobody has
    measured at the size of its source is open.
    """

    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    REFUTED = "refuted"
    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    NO_EFFECT = "no effect"
    UNDECIDED = "undecided"
    OPEN = "open"

    @property
    def look(self) -> "Look":
        """How the verdict is shown, wherever it is.

        >>> Verdict.REFUTED.look
        Look(mark='✗', tone='bad')
        """
        return LOOKS[self]


class Look(NamedTuple):
    """A mark for texts, a tone for colours: good, fair, bad or open for the claim."""

    mark: str
    tone: str


LOOKS = {
    Verdict.HOLDS: Look("✓", "good"),
    Verdict.REPRODUCED: Look("✓", "good"),
    Verdict.CORRECTED: Look("◐", "fair"),
    Verdict.REFUTED: Look("✗", "bad"),
    Verdict.CONTRADICTED: Look("✗", "bad"),
    Verdict.NO_EFFECT: Look("○", "bad"),
    Verdict.UNDECIDED: Look("~", "open"),
    Verdict.OPEN: Look("?", "open"),
}
STYLES = {"good": "green", "fair": "yellow", "bad": "red", "open": "dim"}
"""Of the tones in the terminal; pages have theirs in their style sheet."""


@dataclass(frozen=True)
class Finding:
    """A verdict with its evidence.

    >>> Finding(Verdict.HOLDS, "largest gap 1e-15 in 30 draws", {"gap": 1e-15}).verdict.value
    'holds'
    """

    verdict: Verdict
    evidence: str
    """One sentence with the numbers that decided."""
    numbers: Mapping[str, Any]
    """Those numbers, as plain JSON values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the look."""
        return {
            "verdict": self.verdict.value,
            **self.verdict.look._asdict(),
            "evidence": self.evidence,
            "numbers": dict(self.numbers),
        }
