"""The smallest loss in too few dimensions for a simplex ETF, by search."""

import math

import numpy as np

from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import sample_losses


def lowest_loss(num_classes: int, dim: int, *, product: float, starts: int = 4) -> float:
    """The smallest loss found for one feature a class with alpha beta = `product`.

    >>> from nclab.theory.layer_peeled import g
    >>> bool(abs(lowest_loss(3, 2, product=2.0, starts=1) / g(2.0, 3) - 1) < 1e-6)
    True
    """
    from scipy.optimize import minimize

    size = math.sqrt(num_classes * product)

    def loss(flat: FloatArray) -> float:
        W, H = flat.reshape(2, num_classes, dim)
        W, H = (size * part / np.linalg.norm(part) for part in (W, H))
        return float(sample_losses(W, H[:, None]).mean())

    rng = np.random.default_rng(0)
    found = (
        minimize(loss, rng.normal(size=2 * num_classes * dim), method="L-BFGS-B").fun
        for _ in range(starts)
    )
    return float(min(found))
