r"""The loss on the sphere $\|W\|_F^2+\|H\|_F^2=r^2$: what a point is, and the ways down."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.curvature import smallest_eigenpairs, square_norm, tangent
from nclab.ulpm.problem import Array, Problem, as_problem, log_loss, optimal_log_loss


class PointKind(StrEnum):
    """What a point of the sphere is."""

    not_critical = "not critical"
    strict_saddle = "strict saddle"
    global_minimum = "global minimum"
    degenerate = "degenerate critical point"
    """Neither descent direction nor negative curvature within the tolerance, yet not optimal."""


@dataclass(frozen=True)
class Landscape:
    """What a point is on its sphere, and how far above the best."""

    kind: PointKind
    smallest_eigenvalue: float
    """Of the Hessian of L on the sphere; 0 when L itself is below 1e-308."""
    relative_eigenvalue: float
    """The smallest eigenvalue over the largest in absolute value."""
    negative_eigenvalues: int
    """How many of the eigenvalues computed are negative beyond the tolerance."""
    relative_gradient: float
    """Norm of the Riemannian gradient over that of the full gradient."""
    log_loss: float
    optimal_log_loss: float
    """Of the best point of this norm, ji2022, Thm 3.3."""
    radius: float

    @property
    def gap(self) -> float:
        """L minus the least of this norm."""
        best = math.exp(min(self.optimal_log_loss, 700.0))
        return best * math.expm1(min(self.log_gap, 700.0))

    @property
    def log_gap(self) -> float:
        """log of L over the least of this norm: the relative gap, at any scale."""
        return self.log_loss - self.optimal_log_loss

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        # In this order; what is empty here and all the rest come as they are.
        first = {"kind": "", "smallest_eigenvalue": 0.0, "gap": self.gap, "log_gap": self.log_gap}
        return {**first, **vars(self), "kind": self.kind.value}


def classify(problem: Problem, theta: Array, *, tolerance: float = 1e-7) -> Landscape:
    """Say whether a point is no critical point of its sphere, a strict saddle or a minimum.

    Source: ji2022, Thm 3.3 and Thm 3.4

    Args:
        tolerance: on the relative gradient and relative eigenvalue; the gap of a minimum, being
            of second order, may be its square (but not below 1e-12).

    >>> from nclab.ulpm.separation import optimal_point
    >>> problem = Problem(3, 1, 2, "sum")
    >>> classify(problem, 2 * optimal_point(problem)).kind.value
    'global minimum'
    """
    theta = as_problem(problem).checked(theta)
    if not theta.any():
        raise NclabError("Expected a point other than zero: a sphere needs a radius.")
    here = tangent(problem, theta)
    pairs = smallest_eigenpairs(problem, theta)
    square = square_norm(theta)
    best = optimal_log_loss(problem, square)
    relative = float(pairs.values[0]) / pairs.size if pairs.size > 0 else 0.0
    if here.relative > tolerance:
        kind = PointKind.not_critical
    elif relative < -tolerance:  # before the gap: near zero even a saddle's is below rounding
        kind = PointKind.strict_saddle
    elif here.log_loss - best <= max(tolerance**2, 1e-12):
        kind = PointKind.global_minimum
    else:
        kind = PointKind.degenerate
    return Landscape(
        kind,
        smallest_eigenvalue=float(pairs.values[0]) * math.exp(min(here.log_loss, 700.0)),
        relative_eigenvalue=relative,
        negative_eigenvalues=int((pairs.values < -tolerance * pairs.size).sum()),
        relative_gradient=here.relative,
        log_loss=here.log_loss,
        optimal_log_loss=best,
        radius=math.sqrt(square),
    )


@dataclass(frozen=True)
class Escape:
    """A direction in the tangent space along which the loss falls."""

    direction: Array
    """(C + CN, d) of unit norm, orthogonal to the point."""
    order: int
    """1: along the gradient; 2: along negative curvature."""
    angle: float
    """How far to go, as an angle seen from the centre of the sphere."""
    predicted: float
    """Relative change of the loss, to leading order."""
    actual: float
    """Relative change of the loss."""


def escape(problem: Problem, theta: Array, *, angle: float = 0.01) -> Escape | None:
    r"""A way down on the sphere from a point that is not optimal, or None where there is none.

    $$\Delta L \approx -s\,r\,\|P\nabla L\| \quad\text{or, at a critical point,}\quad
      \tfrac12 s^2 r^2\lambda_{\min}$$

    Source: ji2022, Thm 3.4 (made strict: as printed, with <=, a rotation of W and H satisfies it)

    Args:
        angle: s, the angle to go along the great circle.

    >>> from nclab.ulpm.examples import example_point, example_problem
    >>> found = escape(example_problem(), example_point(1.0))
    >>> found.order, abs(found.actual / found.predicted - 1) < 0.01
    (2, True)
    """
    here = tangent(as_problem(problem), theta)
    radius = math.sqrt(square_norm(theta))
    if here.relative > 1e-7:
        size = float(np.linalg.norm(here.gradient))
        direction, order = here.gradient / -size, 1
        predicted = -angle * radius * size
    else:
        pairs = smallest_eigenpairs(problem, theta, count=1)
        if pairs.values[0] >= -1e-7 * pairs.size:
            return None
        direction, order = pairs.vectors[0], 2
        predicted = 0.5 * (angle * radius) ** 2 * float(pairs.values[0])
    moved = along_circle(theta, direction, angle)
    actual = math.expm1(log_loss(problem, moved) - here.log_loss)
    return Escape(direction, order, angle, predicted, actual)


def along_circle(theta: Array, direction: Array, angle: float) -> Array:
    """The point at an angle along the great circle that leaves in a unit tangent direction.

    >>> along_circle(np.array([[2.0], [0.0]]), np.array([[0.0], [1.0]]), math.pi / 2).round(12)
    array([[0.], [2.]])
    """
    radius = math.sqrt(square_norm(theta))
    return math.cos(angle) * theta + (math.sin(angle) * radius) * direction


class Slice(NamedTuple):
    """The loss on a two-dimensional piece of the sphere."""

    angles: Array
    """(p,) along each of two orthogonal directions, 0 in the middle."""
    log_losses: Array
    """(p, p) log L; the second direction varies along rows."""


def sphere_slice(
    problem: Problem, theta: Array, directions: Array, *, reach: float = 1.2, points: int = 61
) -> Slice:
    """The loss around a point, over the plane of two orthonormal tangent directions (2, C + CN, d).

    A point (a, b) of the plane is reached along the great circle that leaves towards it.

    >>> from nclab.ulpm.examples import example_point, example_problem
    >>> problem, point = example_problem(), example_point()
    >>> lowest = smallest_eigenpairs(problem, point, count=2).vectors
    >>> piece = sphere_slice(problem, point, lowest, reach=0.5, points=3)
    >>> bool(piece.log_losses[1, 1] > piece.log_losses[1, 2])
    True
    """
    angles = np.linspace(-reach, reach, points)
    log_losses = np.empty((points, points))
    for row, second in enumerate(angles):
        for column, first in enumerate(angles):
            angle = math.hypot(first, second)
            towards = first * directions[0] + second * directions[1]
            towards = towards / angle if angle > 0 else towards
            log_losses[row, column] = log_loss(problem, along_circle(theta, towards, angle))
    return Slice(angles, log_losses)


@dataclass(frozen=True)
class SphereSolution:
    """What minimisation on a sphere found."""

    theta: Array
    log_loss: float
    log_gap: float
    """log of the loss over the closed-form optimum of ji2022, Thm 3.3."""
    evaluations: int


def minimise_on_sphere(problem: Problem, *, radius: float, seed: int = 0) -> SphereSolution:
    r"""Minimise the loss on a sphere from a random start, by L-BFGS on $\theta = r u/\|u\|$.

    Source: ji2022, Thm 3.3

    >>> abs(minimise_on_sphere(Problem(3, 1, 2), radius=3.0).log_gap) < 1e-12
    True
    """
    from scipy.optimize import minimize

    as_problem(problem)
    if not (math.isfinite(radius) and radius > 0):
        raise NclabError(f"Expected a positive radius, got {radius}.")

    def objective(flat: Array) -> tuple[float, Array]:
        size = math.sqrt(float(flat @ flat))
        found = tangent(problem, flat.reshape(problem.shape) * (radius / size))
        return found.log_loss, found.gradient.ravel() * (radius / size)

    start = problem.initial(scale=1.0, seed=seed).ravel()
    start *= radius / math.sqrt(float(start @ start))
    options: dict[str, Any] = {"maxiter": 20_000, "maxcor": 30, "gtol": 1e-12, "ftol": 0.0}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    theta = found.x.reshape(problem.shape)
    theta = theta * (radius / math.sqrt(square_norm(theta)))
    value = log_loss(problem, theta)
    best = optimal_log_loss(problem, radius**2)
    return SphereSolution(theta, value, value - best, int(found.nfev))
