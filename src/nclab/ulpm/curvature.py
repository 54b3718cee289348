r"""First and second derivatives of the loss on the sphere $\|W\|_F^2+\|H\|_F^2=r^2$.

Derivatives are those of L divided by L, so that points with a loss of 1e-400 can be examined too.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.problem import Array, Problem, log_gradient, pull

DENSE = 600
"""Up to this many variables the Hessian is formed; beyond, its smallest pairs by Lanczos."""

ROUNDING = 1e-14
"""A gradient of log L that is smaller than this times the point is 0 but for rounding."""


class Tangent(NamedTuple):
    """First-order information at a point of the sphere."""

    log_loss: float
    gradient: Array
    """(C + CN, d) Riemannian gradient of L, divided by L."""
    radial: float
    """Inner product of the gradient of L with the point, divided by L."""
    steepness: float
    """Norm of the full gradient of L, divided by L."""

    @property
    def relative(self) -> float:
        """Norm of the Riemannian gradient over that of the full one."""
        size = float(np.linalg.norm(self.gradient))
        return size / self.steepness if self.steepness > 0 else 0.0


def tangent(problem: Problem, theta: Array) -> Tangent:
    r"""The gradient of the loss in the tangent space of the sphere, over L.

    $$P\nabla L/L,\qquad P = I-\theta\theta^T/\|\theta\|^2$$

    Source: ji2022, Def. 3.2

    >>> problem = Problem(2, 1, 1, "sum")
    >>> found = tangent(problem, np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    >>> found.relative < 1e-15
    True
    """
    value, gradient = log_gradient(problem, theta)
    radial = float(np.vdot(gradient, theta))
    along = gradient - theta * (radial / square_norm(theta))
    steepness = float(np.linalg.norm(gradient))
    if steepness <= ROUNDING * math.sqrt(square_norm(theta)):
        # All of the gradient is rounding, as where W = 0 and all class means agree.
        along = np.zeros_like(along)
    return Tangent(value, along, radial, steepness)


def hessian_product(problem: Problem, theta: Array) -> Callable[[Array], Array]:
    r"""The map v -> Hessian of the loss on the sphere times v, over L; v need not be tangent.

    $$P\nabla^2L\,P - \frac{\langle\nabla L,\theta\rangle}{\|\theta\|^2}P$$

    Source: ji2022, Thm 3.4 (the operator its proof needs)

    Costs four products of the size of H Wᵀ; nothing of the size of the Hessian is formed.

    >>> problem = Problem(2, 1, 1, "sum")
    >>> point = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    >>> apply = hessian_product(problem, point)
    >>> float(abs(apply(point)).max()) < 1e-15
    True
    """
    W, H = problem.split(theta)
    value, weights = pull(problem, theta)  # (CN, C) (softmax - onehot) share / L
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
        # d weights_j = weights_j (dz_j - sum_l p_l dz_l), with dz taken from that of the label.
        mean = (probability * moved).sum(1, keepdims=True)
        bent = off_label * (moved - mean)
        bent[problem.rows, problem.labels] = -bent.sum(1)
        curved = np.concatenate([bent.T @ H + weights.T @ dH, bent @ W + weights @ dW])
        return project(curved) - radial * v

    return apply


class Eigenpairs(NamedTuple):
    """The lowest end of the spectrum of the Hessian on the sphere, over L."""

    values: Array
    """(k,) ascending."""
    vectors: Array
    """(k, C + CN, d) of unit norm."""
    size: float
    """Largest absolute eigenvalue, or an estimate of it."""


def smallest_eigenpairs(problem: Problem, theta: Array, *, count: int = 4) -> Eigenpairs:
    """The smallest eigenvalues of the Hessian in the tangent space, over L.

    Dense up to 600 variables, beyond by Lanczos (ARPACK) from products with the Hessian.

    Source: ji2022, Thm 3.4

    >>> problem = Problem(2, 1, 1, "sum")
    >>> pairs = smallest_eigenpairs(problem, np.array([[1.0], [-1.0], [1.0], [-1.0]]), count=1)
    >>> bool(pairs.values[0] > 0)
    True
    """
    apply = hessian_product(problem, theta)
    size = theta.size
    count = min(count, size - 1)
    if size <= DENSE:
        # An orthonormal basis of the tangent space: a Householder reflection of all but one axis.
        unit = theta.ravel() / math.sqrt(square_norm(theta))
        basis = _complement(unit)
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
    shape = (theta.size, theta.size)

    def product(v: Array) -> Array:
        return apply(v.reshape(theta.shape)).ravel()

    def shifted(v: Array) -> Array:
        # The smallest eigenvalue becomes the largest in absolute value, to which ARPACK's
        # tolerance is relative; the point itself, not a tangent direction, goes to the far end.
        return product(v) - size * v + (size * float(unit @ v)) * unit

    plain = LinearOperator(shape, product, dtype=np.float64)
    largest = float(np.abs(eigsh(plain, 1, which="LM", v0=start, tol=1e-2)[0][0]))
    size = 1.1 * largest
    operator = LinearOperator(shape, shifted, dtype=np.float64)
    room = min(theta.size - 1, max(60, 4 * count))
    for tolerance in (1e-9, 1e-5):
        try:
            values, vectors = eigsh(
                operator, count, which="LM", v0=start, ncv=room, tol=tolerance, maxiter=60
            )
            break
        except ArpackNoConvergence as failure:
            values, vectors = failure.eigenvalues, failure.eigenvectors
    if len(values) == 0:
        raise NclabError(
            f"Expected the smallest eigenvalues of {theta.size} variables within {60 * room} "
            "products, got none: they are too close together. Examine a smaller problem."
        )
    order = np.argsort(values)
    found = vectors.T[order].reshape(len(order), *theta.shape)
    return Eigenpairs(values[order] + size, found, largest)


def square_norm(theta: Array) -> float:
    """Squared Frobenius norm.

    >>> square_norm(np.array([[3.0, 4.0]]))
    25.0
    """
    return float(np.vdot(theta, theta))


def _complement(unit: Array) -> Array:
    """(n, n - 1) orthonormal columns orthogonal to a unit vector."""
    reflected = unit.copy()
    reflected[0] += math.copysign(1.0, unit[0])
    reflected /= np.linalg.norm(reflected)
    basis: Array = np.eye(len(unit))[:, 1:] - 2 * np.outer(reflected, reflected[1:])
    return basis
