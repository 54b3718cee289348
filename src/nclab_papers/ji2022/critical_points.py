"""Critical points of the layer-peeled loss on a sphere, found by search."""

import math

import numpy as np

from nclab.ulpm.landscape import square_norm, tangent
from nclab.ulpm.problem import Array, Problem

CRITICAL = 1e-9
"""Norm of the gradient of the log loss on the sphere, times the radius, that counts as zero."""


def steepness(problem: Problem, theta: Array) -> float:
    """Norm of the gradient of the log loss on the sphere, times the radius.

    >>> from nclab.ulpm.examination import example_point, example_problem
    >>> steepness(example_problem(), example_point()) < 1e-12
    True
    """
    slope = tangent(problem, theta).gradient
    return float(np.linalg.norm(slope)) * math.sqrt(square_norm(theta))


def critical_points(problem: Problem, *, radius: float, starts: int) -> list[Array]:
    """Points of the sphere where the loss is critical, by least squares on its gradient.

    Starts that end elsewhere are left out; minima are as welcome as saddles.

    >>> problem = Problem(3, 1, 2, "sum")
    >>> points = critical_points(problem, radius=3.0, starts=2)
    >>> len(points), all(steepness(problem, point) < 1e-9 for point in points)
    (2, True)
    """
    from scipy.optimize import least_squares

    def on_sphere(flat: Array) -> Array:
        point: Array = flat.reshape(problem.shape) * (radius / np.linalg.norm(flat))
        return point

    def residual(flat: Array) -> Array:
        slope = tangent(problem, on_sphere(flat)).gradient.ravel()
        return np.append(slope, np.linalg.norm(flat) - radius)

    found = []
    for seed in range(starts):
        start = problem.initial(scale=1.0, seed=seed).ravel()
        end = least_squares(residual, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200).x
        if steepness(problem, on_sphere(end)) <= CRITICAL:
            found.append(on_sphere(end))
    return found
