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
    reason: str
    """Why it does not hold; empty where it does."""
    source: str

    @property
    def valid(self) -> bool:
        """Whether the number is guaranteed."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"value": self.value, "valid": self.valid, **vars(self)}
