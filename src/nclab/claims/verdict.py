"""What a check says about a claim: a verdict, and the numbers it was derived from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The outcomes a check can have; the first three are for statements, the rest for results."""

    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    REFUTED = "refuted"
    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT_REPRODUCED = "not reproduced"
    OPEN = "open"


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
        """Plain JSON values."""
        return {
            "verdict": self.verdict.value,
            "evidence": self.evidence,
            "numbers": dict(self.numbers),
        }
