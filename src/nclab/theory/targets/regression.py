"""Regression with a free bias: the classifier's Gram is a root of the targets' covariance."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nclab.errors import DataError

FloatArray = NDArray[np.float64]


class RegressionTarget(NamedTuple):
    """The optimum of half the mean squared error with penalties of W and mean squared features."""

    weight_gram: FloatArray
    """(q, q) W W^T."""
    mse: float
    """Mean squared norm of the residuals."""
    residual: FloatArray
    """(q, q) residuals are this times the centred targets."""
    objective: float
    lost: int
    """Directions of the targets that are given up."""


def regression_target(covariance: ArrayLike, weight_decay: tuple[float, float]) -> RegressionTarget:
    r"""Where features and weights of a regression go, with c^2 the product of the two decays.

    $$WW^\top = \sqrt{\lambda_H/\lambda_W}\,(\Sigma^{1/2}-cI)_+,\qquad
    \text{residual} = -c\,\Sigma^{-1/2}(y-\bar y)$$

    So the mean squared error is $c^2 q$ while $c^2$ is below the least eigenvalue of the
    covariance. Derived in docs/targets.md; cf. Andriopoulos et al. 2024.

    >>> found = regression_target([[4.0, 0.0], [0.0, 1.0]], (0.01, 0.04))
    >>> round(found.mse, 12), found.weight_gram.diagonal().round(6).tolist()
    (0.0008, [3.96, 1.96])
    """
    S = np.atleast_2d(np.asarray(covariance, dtype=np.float64))
    on_weights, on_features = weight_decay
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not np.allclose(S, S.T):
        raise DataError(f"Expected a symmetric covariance, got shape {S.shape}.")
    if min(weight_decay) <= 0:
        raise DataError(f"Expected positive weight decays, got {weight_decay}.")
    values, vectors = np.linalg.eigh(S)
    if values.min() < -1e-9 * max(values.max(), 1e-300):
        raise DataError(f"Expected a covariance without negative directions, got {values.min():g}.")
    roots = np.sqrt(np.maximum(values, 0.0))
    c = math.sqrt(on_weights * on_features)
    kept = np.maximum(roots - c, 0.0)
    left = np.minimum(roots, c)  # what is not fitted of each root
    gram = (vectors * (kept * math.sqrt(on_features / on_weights))) @ vectors.T
    ratio = np.divide(left, roots, out=np.zeros_like(left), where=roots > 0)
    mse = float((left**2).sum())
    objective = mse / 2 + c * float(kept.sum())
    return RegressionTarget(
        gram, mse, -(vectors * ratio) @ vectors.T, objective, int((kept == 0).sum())
    )
