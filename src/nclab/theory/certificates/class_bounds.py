"""Bounds for every class from its own measured loss and norms."""

import math
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from nclab.errors import DataError
from nclab.theory.certificates.alignment import class_alignment_lower
from nclab.theory.certificates.intra import class_intra_lower
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.scores import bias_shift
from nclab.theory.layer_peeled import FloatArray

AGREEMENT = 1e-4
"""Largest relative difference between the class arrays and their totals."""


class ClassArrays(TypedDict, total=False):
    """Losses and norms of every class; pass all three or none."""

    class_losses: ArrayLike | None
    """(C,) mean cross-entropy."""
    class_alphas: ArrayLike | None
    """(C,) rms feature norm."""
    class_betas: ArrayLike | None
    """(C,) norm of the centred classifier row."""


class CountedArrays(ClassArrays, total=False):
    """Class arrays, with the counts and targets that a mean over samples needs."""

    counts: ArrayLike | None
    """(C,) number of samples of every class."""
    targets: ArrayLike | None
    """(C, C) soft targets, one column per class; hard targets by default."""


def class_bounds(
    inputs: NormsAndLoss,
    alpha: float,
    beta: float,
    *,
    class_losses: ArrayLike | None = None,
    class_alphas: ArrayLike | None = None,
    class_betas: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray] | None:
    r"""Return lower bounds on alignment and intra-class cosine of every class, or None.

    The result is None if no class arrays are given.

    $$\rho_c \ge \frac{g^{-1}(L_c)-\dot b_c}{\alpha_c\beta_c},\qquad \mathrm{intra}_c \ge R_c^2$$

    Source: pan2023, Thm 2.3.1
    Range: [-1, 1]^C and [0, 1]^C.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> inputs = norms_and_loss(10, 2.0, 2.5, 0.05)
    >>> norms = {"class_alphas": [2.0] * 10, "class_betas": [2.5] * 10}
    >>> rows = class_bounds(inputs, 2.0, 2.5, class_losses=[0.05] * 10, **norms)
    >>> [round(float(row[0]), 3) for row in rows]
    [0.93, 0.865]
    """
    arrays = {
        "class_losses": class_losses,
        "class_alphas": class_alphas,
        "class_betas": class_betas,
    }
    absent = [name for name, values in arrays.items() if values is None]
    if len(absent) == 3:
        return None
    if absent:
        raise DataError(
            "Expected class_losses, class_alphas and class_betas together, or none of them; "
            f"{absent[0]} is missing."
        )
    losses, alphas, betas = (
        _class_array(name, values, inputs.num_classes) for name, values in arrays.items()
    )
    _agree("class_losses", float(losses.mean()), "loss", inputs.loss)
    _agree("class_alphas", math.sqrt(float((alphas**2).mean())), "alpha", float(alpha))
    rms = math.sqrt(float((betas**2).mean()))
    if rms > beta * (1 + AGREEMENT):
        raise DataError(
            f"Expected class_betas with rms at most beta = {beta:.6g}, got {rms:.6g}. "
            "They are the norms of the centred rows."
        )
    shift = bias_shift(inputs)
    products = alphas * betas
    best = class_alignment_lower(inputs.num_classes, losses, products, shift=shift, clip=False)
    if (best > 1 + 1e-6).any():
        c = int(np.argmax(best))
        raise DataError(
            f"Loss {losses[c]:.6g} of class {c} contradicts its norms: {alphas[c]:.6g} * "
            f"{betas[c]:.6g} allows no loss so small. Pass bias_norm if the classifier has a bias."
        )
    rho = np.minimum(best, 1.0)
    return rho, class_intra_lower(inputs.num_classes, losses, products, rho, shift=shift)[0]


def _class_array(name: str, values: ArrayLike | None, num_classes: int) -> FloatArray:
    """Return the array as finite non-negative float64 of shape (C,), or raise."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected {name} as numbers, got {values!r}.") from error
    if array.shape != (num_classes,):
        raise DataError(f"Expected {name} of shape ({num_classes},), got {array.shape}.")
    valid = np.isfinite(array) & (array >= 0)
    if not valid.all():
        bad = int(np.argmin(valid))
        raise DataError(f"Expected finite {name} >= 0, got {array[bad]} for class {bad}.")
    return array


def _agree(name: str, mean: float, total_name: str, total: float) -> None:
    """Raise if the mean of a class array differs from its total."""
    if abs(mean - total) > AGREEMENT * total:
        raise DataError(
            f"Expected {name} that average to {total_name} = {total:.6g}, got {mean:.6g}. "
            "All classes have equal weight, whatever their counts."
        )
