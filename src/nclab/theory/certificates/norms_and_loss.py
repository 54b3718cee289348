"""Checked inputs of every certificate, and the type of one guaranteed bound."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nclab.errors import DataError
from nclab.metrics.cross_entropy import optimal_loss


@dataclass(frozen=True)
class Bound:
    """A guaranteed number if `valid`; otherwise `reason` says what is missing.

    `value` is None if there is no number. The value of a bound that is not valid is only for
    comparison: a vacuous constant or an asymptotic form.
    """

    value: float | None
    reason: str
    """Why the bound does not hold; empty if it holds."""
    source: str

    @property
    def valid(self) -> bool:
        """Whether the number is guaranteed."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"value": self.value, "valid": self.valid, **vars(self)}


TOLERANCE = 1e-6
"""Largest shortfall of a loss below the optimal loss, relative to it, that counts as rounding."""

SMALLEST_PRODUCT = 1e-100
"""Smallest product of norms; the squares of smaller ones underflow."""

MOST_CLASSES = 10**9
"""Largest number of classes for which products with it keep their digits."""


@dataclass(frozen=True)
class NormsAndLoss:
    """Checked inputs of every certificate, with the excess loss widened by rounding."""

    num_classes: int
    product: float
    """Product alpha * beta."""
    optimal_loss: float
    """Smallest loss m that these norms allow."""
    excess: float
    """Loss above m, plus the largest possible rounding error of the inputs."""
    bias_norm: float
    """Norm of the centred bias."""

    @property
    def loss(self) -> float:
        """Loss that the certificates assume: optimal loss plus excess."""
        return self.optimal_loss + self.excess


def as_number(name: str, value: object) -> float:
    """Return the value as a finite float, or raise an error that shows the value.

    >>> as_number("alpha", 2)
    2.0
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"Expected {name} as a number, got {value!r}.") from error
    if isinstance(value, str) or not math.isfinite(number):
        raise DataError(f"Expected a finite number as {name}, got {value!r}.")
    return number


def norms_and_loss(
    num_classes: int, alpha: float, beta: float, loss: float, *, bias_norm: float = 0.0
) -> NormsAndLoss:
    r"""Check the inputs of a certificate and return them with the excess loss.

    $$\varepsilon = L - m(\alpha\beta)$$

    Source: pan2023, Thm 2.3.1
    Range: excess >= 0.

    >>> inputs = norms_and_loss(10, 2.0, 2.5, 0.0352017)
    >>> round(inputs.optimal_loss, 6), round(inputs.excess, 6)
    (0.034202, 0.001)
    """
    if as_number("a number of classes", num_classes) % 1 or not 2 <= num_classes <= MOST_CLASSES:
        raise DataError(
            f"Expected a whole number of classes from 2 to {MOST_CLASSES:.0e}, got {num_classes}."
        )
    for name, value in (("alpha", alpha), ("beta", beta), ("loss", loss)):
        if as_number(name, value) <= 0:
            raise DataError(f"Expected a positive finite {name}, got {value}.")
    if as_number("bias norm", bias_norm) < 0:
        raise DataError(f"Expected a finite bias norm >= 0, got {bias_norm}.")
    # Inputs may be tensors with one element.
    alpha, beta, loss = float(alpha), float(beta), float(loss)
    product = alpha * beta
    if not SMALLEST_PRODUCT < product < 1 / SMALLEST_PRODUCT:
        raise DataError(
            f"Expected alpha * beta between {SMALLEST_PRODUCT:g} and {1 / SMALLEST_PRODUCT:g}, "
            f"got {product:g}."
        )
    best = optimal_loss(int(num_classes), product)
    excess = loss - best
    if excess < -TOLERANCE * (1 + product) * best:
        raise DataError(
            f"Loss {loss:.6g} contradicts the norms: alpha * beta = {product:.6g} and "
            f"{num_classes} classes allow no loss below {best:.6g}. Is the loss averaged over "
            "classes, and are alpha and beta those of the features and weights that gave it?"
        )
    # Rounding of the norms moves m by about (1 + product) ulps; a shortfall counts as error too.
    padding = 4 * np.finfo(float).eps * (1 + product) * best + max(-excess, 0.0)
    return NormsAndLoss(
        int(num_classes), product, best, max(excess, 0.0) + float(padding), float(bias_norm)
    )
