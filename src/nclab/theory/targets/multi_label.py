"""Several labels a sample under pick-all-labels cross-entropy: scaled sums of the single ones."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from nclab.errors import DataError


class MultiLabelTarget(NamedTuple):
    """The optimum for n_m copies of every set of m labels."""

    sizes: dict[int, float]
    """a_m: logits of a set S of m labels are a_m (1_S - m/C)."""
    loss: float
    objective: float

    def scale(self, labels: int) -> float:
        """The mean of a set of m labels is a_m / a_1 times the sum of its labels' means."""
        return self.sizes[labels] / self.sizes[1]


def multi_label_target(
    num_classes: int, copies: Mapping[int, float], weight: float
) -> MultiLabelTarget:
    r"""The optimum of pick-all-labels cross-entropy with t = `weight`.

    $$\min_a \sum_m \tfrac{n_m\binom Cm}{N}\,m\log\bigl(m+(C-m)e^{-a_m}\bigr)
    + t(C-1)\sqrt{\textstyle\sum_m n_m\binom{C-2}{m-1}a_m^2}$$

    Convex. Derived in docs/targets.md; cf. Li et al. 2023.

    Args:
        copies: how often every set of m labels is there, by m.

    >>> found = multi_label_target(4, {1: 1, 2: 1}, 0.01)
    >>> round(found.objective, 9), round(found.sizes[1], 6), round(found.sizes[2], 6)
    (1.079620164, 4.101308, 3.568079)
    """
    C = num_classes
    many = np.array([m for m in sorted(copies) if copies[m]])
    if C < 2 or not len(many) or many.min() < 1 or many.max() >= C:
        raise DataError(f"Expected sets of 1 to {C - 1} labels of {C} classes, got {dict(copies)}.")
    if min(copies.values()) < 0 or not weight > 0:
        raise DataError(f"Expected copies >= 0 and a positive weight, got {copies} and {weight}.")
    n = np.array([float(copies[int(m)]) for m in many])
    sets = n * np.array([math.comb(C, int(m)) for m in many])
    share = sets / sets.sum()
    cost = n * np.array([math.comb(C - 2, int(m) - 1) for m in many])

    def function(a: np.ndarray) -> tuple[float, np.ndarray]:
        wrong = (C - many) * np.exp(-a)
        loss = share @ (many * np.log(many + wrong))
        size = math.sqrt(max(cost @ a**2, 1e-300))
        slope = -share * many * wrong / (many + wrong) + weight * (C - 1) * cost * a / size
        return float(loss + weight * (C - 1) * size), slope

    start = np.full(len(many), 3.0)
    options = {"ftol": 1e-16, "gtol": 1e-13, "maxiter": 5000}
    bounds = [(0.0, None)] * len(many)
    found = minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    best, value = found.x, function(found.x)[0]
    nothing = float(share @ (many * math.log(C)))
    if nothing <= value:
        best, value = np.zeros(len(many)), nothing
    loss = float(share @ (many * np.log(many + (C - many) * np.exp(-best))))
    sizes = {int(m): float(a) for m, a in zip(many, best, strict=True)}
    return MultiLabelTarget(sizes, loss, value)
