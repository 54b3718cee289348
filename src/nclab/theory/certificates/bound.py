"""One guarantee: its value, whether it holds, why not, and where it comes from."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bound:
    """A number that is guaranteed when `valid`; otherwise `reason` says what is missing.

    `value` is None where there is no number at all; a bound that is not valid but has a value
    keeps it only for comparison (a vacuous constant, an asymptotic form).
    """

    value: float | None
    valid: bool
    reason: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "value": self.value,
            "valid": self.valid,
            "reason": self.reason,
            "source": self.source,
        }
