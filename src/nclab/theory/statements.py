"""Tools to check a paper's inequality on data: both sides, their rounding, and exact losses."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from nclab.errors import DataError
from nclab.theory.layer_peeled import FloatArray

BoolArray = NDArray[np.bool_]

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Relative rounding error allowed for a number computed from one row of data."""


@dataclass(frozen=True)
class Inequality:
    """Two sides of an inequality or identity, with one entry for every data set of a batch.

    >>> both = Inequality(np.array([1.0, 3.0]), "<=", np.array([2.0, 2.0]))
    >>> both.holds.tolist(), both.always, both.slack.tolist()
    ([True, False], False, [1.0, -1.0])
    """

    left: FloatArray
    relation: Literal["<=", ">=", "=="]
    right: FloatArray
    applies: BoolArray | bool = True
    """Whether each data set meets the hypotheses."""
    tolerance: FloatArray | float = 0.0
    """Largest violation that counts as rounding error; `holds` is then still true."""

    @property
    def slack(self) -> FloatArray:
        """Margin by which the inequality holds; negative where it fails."""
        if self.relation == "==":
            return -np.abs(self.left - self.right)
        small, large = (self.left, self.right)[:: 1 if self.relation == "<=" else -1]
        return np.asarray(large - small)

    @property
    def holds(self) -> BoolArray:
        """Whether the inequality holds or its hypotheses are not met; False for nan."""
        verdict: BoolArray = ~np.asarray(self.applies) | (self.slack >= -np.asarray(self.tolerance))
        return verdict

    @property
    def always(self) -> bool:
        """Whether the inequality holds for every data set of the batch."""
        return bool(self.holds.all())

    @property
    def tested(self) -> int:
        """Number of data sets that meet the hypotheses."""
        return int(np.broadcast_to(self.applies, self.holds.shape).sum())


def vectors(data: ArrayLike, name: str, axes: int) -> FloatArray:
    """Return the data as float64; raise if an entry is not finite or there are too few axes."""
    array = np.asarray(data, dtype=np.float64)
    if array.ndim < axes or 0 in array.shape:
        raise DataError(
            f"Expected {name} with at least {axes} axes, none of length 0, got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise DataError(f"Expected finite {name}, got nan or infinity. Drop those rows first.")
    return array


def norms(rows: FloatArray) -> FloatArray:
    """Return the Euclidean norms along the last axis."""
    result: FloatArray = np.sqrt(np.square(rows).sum(-1))
    return result


def units(rows: FloatArray) -> FloatArray:
    """Return the rows scaled to norm one; a zero row stays zero."""
    lengths = norms(rows)[..., None]
    result: FloatArray = rows / np.where(lengths > 0, lengths, 1.0)
    return result


def sample_losses(weight: ArrayLike, features: ArrayLike) -> FloatArray:
    r"""Return the cross-entropy of every sample, exact for losses far below 1e-16.

    $$\ell_{c,i} = \log\bigl(1+\sum_{j\ne c}e^{(w_j-w_c)\cdot h_{c,i}}\bigr)$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf), shape (..., C, N).

    >>> [[loss]] = sample_losses([[1.0], [-1.0]], [[[20.0]], [[-20.0]]])[:1].tolist()
    >>> loss == float(np.exp(-40.0))
    True
    """
    w, h = weights_and_features(weight, features)
    logits = np.einsum("...cnd,...jd->...cnj", h, w)
    is_label = np.eye(w.shape[-2], dtype=bool)[:, None, :]
    gaps = logits - np.where(is_label, logits, 0.0).sum(-1, keepdims=True)
    result: FloatArray = np.logaddexp(0.0, logsumexp(np.where(is_label, -np.inf, gaps), axis=-1))
    return result


def weights_and_features(weight: ArrayLike, features: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return weights and features as float64 arrays; raise if a number or shape is wrong."""
    w = vectors(weight, "weights (..., C, d)", 2)
    h = vectors(features, "features (..., C, N, d)", 3)
    if w.shape[-2] != h.shape[-3] or w.shape[-1] != h.shape[-1] or w.shape[-2] < 2:
        raise DataError(
            f"Expected weights (..., C, d) and features (..., C, N, d) with the same C >= 2 and d, "
            f"got {w.shape} and {h.shape}."
        )
    return w, h
