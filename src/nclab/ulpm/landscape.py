r"""The loss L on the sphere $\|W\|_F^2+\|H\|_F^2=r^2$: derivatives and kinds of critical points.

Derivatives are divided by L, so that they are accurate for losses as small as 1e-400.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.problem import (
    Array,
    Problem,
    log_gradient,
    log_loss,
    logit_gradient,
    optimal_log_loss,
)

DENSE = 600
"""Largest number of variables for which the Hessian is formed; otherwise Lanczos is used."""
ROUNDING = 1e-14
"""The gradient of log L counts as zero if its norm is at most this share of the point's norm."""


class Tangent(NamedTuple):
    """Loss and first derivatives at a point of the sphere."""

    log_loss: float
    gradient: Array
    """(C + CN, d) Riemannian gradient of L on the sphere, divided by L."""
    radial: float
    """Inner product of the gradient of L with the point, divided by L."""
    steepness: float
    """Norm of the full gradient of L, divided by L."""

    @property
    def relative(self) -> float:
        """Norm of the Riemannian gradient divided by the norm of the full gradient."""
        size = float(np.linalg.norm(self.gradient))
        return size / self.steepness if self.steepness > 0 else 0.0


def tangent(problem: Problem, theta: Array) -> Tangent:
    r"""Return the gradient of the loss L in the tangent space of the sphere, divided by L.

    $$P\nabla L/L,\qquad P = I-\theta\theta^T/\|\theta\|^2$$

    P projects onto the tangent space at the point $\theta$.

    Source: ji2022, Def. 3.2
    """
    value, gradient = log_gradient(problem, theta)
    radial = float(np.vdot(gradient, theta))
    along = gradient - theta * (radial / square_norm(theta))
    steepness = float(np.linalg.norm(gradient))
    if steepness <= ROUNDING * math.sqrt(square_norm(theta)):
        # The gradient is mere rounding, for example where W = 0 and all class means agree.
        along = np.zeros_like(along)
    return Tangent(value, along, radial, steepness)


def hessian_product(problem: Problem, theta: Array) -> Callable[[Array], Array]:
    r"""Return a function that multiplies a vector by the Hessian of the loss L, divided by L.

    $$P\nabla^2L\,P - \frac{\langle\nabla L,\theta\rangle}{\|\theta\|^2}P$$

    This is the Hessian on the sphere, with P the projection onto the tangent space at $\theta$. A
    product costs four matrix products of the size of H Wᵀ; the Hessian is never formed.

    Source: ji2022, Thm 3.4 (the operator its proof needs)
    """
    W, H = problem.split(theta)
    value, weights = logit_gradient(problem, theta)  # (CN, C) (softmax - onehot) share / L
    off_label = weights.copy()
    off_label[problem.rows, problem.labels] = 0.0
    probability = off_label * (math.exp(value) / problem.share)
    square = square_norm(theta)
    radial = float(np.vdot(weights, H @ W.T)) * 2 / square

    def project(v: Array) -> Array:
        return v - theta * (float(np.vdot(v, theta)) / square)

    def apply(v: Array) -> Array:
        v = project(v)
        dW, dH = problem.split(v)
        moved = dH @ W.T + H @ dW.T  # (CN, C) change of the logits
        moved -= moved[problem.rows, problem.labels][:, None]
        # d weights_j = weights_j (dz_j - sum_l p_l dz_l), with dz relative to the label's dz.
        mean = (probability * moved).sum(1, keepdims=True)
        change = off_label * (moved - mean)
        change[problem.rows, problem.labels] = -change.sum(1)
        product = np.concatenate([change.T @ H + weights.T @ dH, change @ W + weights @ dW])
        return project(product) - radial * v

    return apply


class Eigenpairs(NamedTuple):
    """Smallest eigenvalues of the Hessian of L on the sphere, divided by L, with eigenvectors."""

    values: Array
    """(k,) eigenvalues in ascending order."""
    vectors: Array
    """(k, C + CN, d) eigenvectors of unit norm."""
    size: float
    """Largest absolute eigenvalue; an estimate for large problems."""


def smallest_eigenpairs(problem: Problem, theta: Array, *, count: int = 4) -> Eigenpairs:
    """Return the `count` smallest eigenvalues of the Hessian of L on the sphere, divided by L.

    With at most 600 variables, the Hessian is formed. For larger problems, the Lanczos method
    (ARPACK) only multiplies vectors by it.

    Source: ji2022, Thm 3.4
    """
    apply = hessian_product(problem, theta)
    size = theta.size
    count = min(count, size - 1)
    if size <= DENSE:
        # A Householder reflection of all axes but one is an orthonormal basis of the tangent space.
        normal = theta.ravel() / math.sqrt(square_norm(theta))
        normal[0] += math.copysign(1.0, normal[0])
        normal /= np.linalg.norm(normal)
        basis = np.eye(size)[:, 1:] - 2 * np.outer(normal, normal[1:])
        images = np.stack([apply(column.reshape(theta.shape)).ravel() for column in basis.T], 1)
        matrix = basis.T @ images
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        lowest = (basis @ vectors[:, :count]).T.reshape(count, *theta.shape)
        return Eigenpairs(values[:count], lowest, float(np.abs(values).max()))
    return _lanczos(apply, theta, count)


def _lanczos(apply: Callable[[Array], Array], theta: Array, count: int) -> Eigenpairs:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    unit = theta.ravel() / math.sqrt(square_norm(theta))
    start = np.random.default_rng(0).standard_normal(theta.size)
    if abs(float(unit @ start)) > 0.5 * float(np.linalg.norm(start)):
        # `Problem.initial(seed=0)` draws the same numbers, which have no tangent part.
        start = np.random.default_rng(1).standard_normal(theta.size)
    shape = (theta.size, theta.size)

    def product(v: Array) -> Array:
        return apply(v.reshape(theta.shape)).ravel()

    def shifted(v: Array) -> Array:
        # The shift makes the smallest eigenvalue the largest in absolute value, to which ARPACK's
        # tolerance is relative. The point itself, which is not tangent, gets the eigenvalue 0.
        return product(v) - size * v + (size * float(unit @ v)) * unit

    plain = LinearOperator(shape, product, dtype=np.float64)
    largest = float(np.abs(eigsh(plain, 1, which="LM", v0=start, tol=1e-2)[0][0]))
    size = 1.1 * largest
    operator = LinearOperator(shape, shifted, dtype=np.float64)
    subspace = min(theta.size - 1, max(60, 4 * count))
    for tolerance in (1e-9, 1e-5):
        try:
            values, vectors = eigsh(
                operator, count, which="LM", v0=start, ncv=subspace, tol=tolerance, maxiter=60
            )
            break
        except ArpackNoConvergence as failure:
            values, vectors = failure.eigenvalues, failure.eigenvectors
    if len(values) == 0:
        raise NclabError(
            f"The smallest eigenvalues of the Hessian in {theta.size} variables are too close "
            f"together: the Lanczos method found none in {60 * subspace} steps. Use a smaller "
            "problem."
        )
    order = np.argsort(values)
    lowest = vectors.T[order].reshape(len(order), *theta.shape)
    return Eigenpairs(values[order] + size, lowest, largest)


def square_norm(theta: Array) -> float:
    return float(np.vdot(theta, theta))


class PointKind(StrEnum):
    """The kinds of points on the sphere."""

    not_critical = "not critical"
    strict_saddle = "strict saddle"
    global_minimum = "global minimum"
    degenerate = "degenerate critical point"
    """A critical point that is not optimal and has no direction of negative curvature."""


@dataclass(frozen=True)
class Landscape:
    """The kind of a point on its sphere, and its loss relative to the smallest loss."""

    kind: PointKind
    smallest_eigenvalue: float
    """Smallest eigenvalue of the Hessian of L on the sphere; 0 if L itself is below 1e-308."""
    relative_eigenvalue: float
    """Smallest eigenvalue divided by the largest absolute eigenvalue."""
    negative_eigenvalues: int
    """Number of computed eigenvalues that are negative by more than the tolerance."""
    relative_gradient: float
    """Norm of the Riemannian gradient divided by the norm of the full gradient."""
    log_loss: float
    optimal_log_loss: float
    """Logarithm of the smallest loss on this sphere (ji2022, Thm 3.3)."""
    radius: float

    @property
    def gap(self) -> float:
        """L minus the smallest loss on this sphere."""
        best = math.exp(min(self.optimal_log_loss, 700.0))
        return best * math.expm1(min(self.log_gap, 700.0))

    @property
    def log_gap(self) -> float:
        """Logarithm of the ratio of L to the smallest loss on this sphere; 0 at the optimum."""
        return self.log_loss - self.optimal_log_loss

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        # This dict fixes the order; the empty values are replaced below.
        first = {"kind": "", "smallest_eigenvalue": 0.0, "gap": self.gap, "log_gap": self.log_gap}
        return {**first, **vars(self), "kind": self.kind.value}


def classify(problem: Problem, theta: Array, *, tolerance: float = 1e-7) -> Landscape:
    """Return the kind of a point on its sphere: minimum, strict saddle, degenerate, not critical.

    Source: ji2022, Thm 3.3 and Thm 3.4

    Args:
        tolerance: a point is critical if its `relative_gradient` is at most this; an eigenvalue is
            negative if `relative_eigenvalue` is below minus this. A critical point is a minimum if
            `log_gap` is at most the square of the tolerance, or 1e-12 if that is larger.
    """
    theta = problem.checked(theta)
    if not theta.any():
        raise NclabError("Expected a point other than zero: a sphere needs a radius.")
    derivatives = tangent(problem, theta)
    pairs = smallest_eigenpairs(problem, theta)
    square = square_norm(theta)
    best = optimal_log_loss(problem, square)
    relative = float(pairs.values[0]) / pairs.size if pairs.size > 0 else 0.0
    if derivatives.relative > tolerance:
        kind = PointKind.not_critical
    elif relative < -tolerance:  # Before the gap, which is below rounding near zero.
        kind = PointKind.strict_saddle
    elif derivatives.log_loss - best <= max(tolerance**2, 1e-12):
        kind = PointKind.global_minimum
    else:
        kind = PointKind.degenerate
    return Landscape(
        kind,
        smallest_eigenvalue=float(pairs.values[0]) * math.exp(min(derivatives.log_loss, 700.0)),
        relative_eigenvalue=relative,
        negative_eigenvalues=int((pairs.values < -tolerance * pairs.size).sum()),
        relative_gradient=derivatives.relative,
        log_loss=derivatives.log_loss,
        optimal_log_loss=best,
        radius=math.sqrt(square),
    )


@dataclass(frozen=True)
class Escape:
    """A direction in the tangent space along which the loss falls."""

    direction: Array
    """(C + CN, d) direction of unit norm, orthogonal to the point."""
    order: int
    """1 if the direction is minus the gradient; 2 if it is one of negative curvature."""
    angle: float
    """Length of a step, as an angle seen from the centre of the sphere."""
    predicted: float
    """Change of the loss by the step, divided by the loss, as predicted to leading order."""
    actual: float
    """Change of the loss by the step, divided by the loss."""


def escape(problem: Problem, theta: Array, *, angle: float = 0.01) -> Escape | None:
    r"""Return a direction of descent on the sphere from a point, or None if there is none.

    $$\Delta L \approx -s\,r\,\|P\nabla L\| \quad\text{or, at a critical point,}\quad
      \tfrac12 s^2 r^2\lambda_{\min}$$

    $\Delta L$ is the change of the loss by a step of angle s on the sphere of radius r, P the
    projection onto the tangent space and $\lambda_{\min}$ the smallest eigenvalue of the Hessian.

    Source: ji2022, Thm 3.4 (with < for the printed <=, which a rotation of W and H satisfies)

    Args:
        angle: s, the length of the step along the great circle.
    """
    derivatives = tangent(problem, theta)
    radius = math.sqrt(square_norm(theta))
    if derivatives.relative > 1e-7:
        size = float(np.linalg.norm(derivatives.gradient))
        direction, order = derivatives.gradient / -size, 1
        predicted = -angle * radius * size
    else:
        pairs = smallest_eigenpairs(problem, theta, count=1)
        if pairs.values[0] >= -1e-7 * pairs.size:
            return None
        direction, order = pairs.vectors[0], 2
        predicted = 0.5 * (angle * radius) ** 2 * float(pairs.values[0])
    moved = along_circle(theta, direction, angle)
    actual = math.expm1(log_loss(problem, moved) - derivatives.log_loss)
    return Escape(direction, order, angle, predicted, actual)


def along_circle(theta: Array, direction: Array, angle: float) -> Array:
    """Follow the great circle from `theta` in a unit direction by an angle; return its end."""
    radius = math.sqrt(square_norm(theta))
    return math.cos(angle) * theta + (math.sin(angle) * radius) * direction


def sphere_slice(
    problem: Problem, theta: Array, directions: Array, *, reach: float = 1.2, points: int = 61
) -> tuple[Array, Array]:
    """Return the loss on a grid around a point of the sphere, for a figure.

    The grid lies in two orthonormal tangent directions, (2, C + CN, d). Return (p,) angles along
    each direction, with 0 in the middle, and (p, p) values of log L; the second direction varies
    from row to row. A great circle in the tangent direction (a, b) leads to the grid point (a, b).
    """
    angles = np.linspace(-reach, reach, points)
    log_losses = np.empty((points, points))
    for row, second in enumerate(angles):
        for column, first in enumerate(angles):
            angle = math.hypot(first, second)
            direction = first * directions[0] + second * directions[1]
            direction = direction / angle if angle > 0 else direction
            log_losses[row, column] = log_loss(problem, along_circle(theta, direction, angle))
    return angles, log_losses


@dataclass(frozen=True)
class SphereSolution:
    """Result of minimising the loss on a sphere."""

    theta: Array
    log_loss: float
    log_gap: float
    """Logarithm of the ratio of the loss to the smallest one on the sphere (ji2022, Thm 3.3)."""


def minimise_on_sphere(problem: Problem, *, radius: float, seed: int = 0) -> SphereSolution:
    r"""Minimise the loss on a sphere from a random start, by L-BFGS on $\theta = r u/\|u\|$.

    Source: ji2022, Thm 3.3
    """
    from scipy.optimize import minimize

    if not (math.isfinite(radius) and radius > 0):
        raise NclabError(f"Expected a positive radius, got {radius}.")

    def objective(flat: Array) -> tuple[float, Array]:
        size = math.sqrt(float(flat @ flat))
        derivatives = tangent(problem, flat.reshape(problem.shape) * (radius / size))
        return derivatives.log_loss, derivatives.gradient.ravel() * (radius / size)

    start = problem.initial(scale=1.0, seed=seed).ravel()
    start *= radius / math.sqrt(float(start @ start))
    options: dict[str, Any] = {"maxiter": 20_000, "maxcor": 30, "gtol": 1e-12, "ftol": 0.0}
    result = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    theta = result.x.reshape(problem.shape)
    theta = theta * (radius / math.sqrt(square_norm(theta)))
    value = log_loss(problem, theta)
    best = optimal_log_loss(problem, radius**2)
    return SphereSolution(theta, value, value - best)
