"""Tests of the landscape: curvature against autograd, kinds of points, escapes, minimisation."""

import math

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.ulpm import Problem, classify, descend, escape, landscape, minimise_on_sphere
from nclab.ulpm.examination import DIRECTION
from nclab.ulpm.landscape import (
    PointKind,
    along_circle,
    hessian_product,
    smallest_eigenpairs,
    tangent,
)
from nclab.ulpm.separation import optimal_point
from tests.reference.slow_ulpm import sphere_hessian

PROBLEM = Problem(4, 3, 5, "sum")


def test_hessian_agrees_with_autograd() -> None:
    theta = PROBLEM.initial(scale=0.8, seed=2)
    expected = sphere_hessian(theta, PROBLEM.num_classes, PROBLEM.per_class).numpy()
    apply = hessian_product(PROBLEM, theta)
    result = np.stack(
        [apply(axis.reshape(theta.shape)).ravel() for axis in np.eye(theta.size)], axis=1
    )
    result *= math.exp(tangent(PROBLEM, theta).log_loss)
    np.testing.assert_allclose(result, expected, atol=1e-11)


@pytest.mark.parametrize("count", [1, 4])
def test_dense_and_lanczos_agree(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    theta = PROBLEM.initial(scale=0.8, seed=2)
    dense = smallest_eigenpairs(PROBLEM, theta, count=count)
    monkeypatch.setattr(landscape, "DENSE", 1)
    lanczos = smallest_eigenpairs(PROBLEM, theta, count=count)
    np.testing.assert_allclose(lanczos.values, dense.values, atol=1e-8 * dense.size)
    assert lanczos.size == pytest.approx(dense.size, rel=0.05)
    for value, vector in zip(lanczos.values, lanczos.vectors, strict=True):
        image = hessian_product(PROBLEM, theta)(vector)
        np.testing.assert_allclose(image, value * vector, atol=1e-5 * dense.size)
        assert abs(float(np.vdot(vector, theta))) < 1e-7


def test_lanczos_classifies_a_minimum_with_zero_eigenvalues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(10, 8, 12)
    assert optimal_point(problem).size > landscape.DENSE
    result = classify(problem, 3 * optimal_point(problem, seed=2))
    assert result.kind is PointKind.global_minimum
    assert abs(result.relative_eigenvalue) < 1e-7
    assert result.negative_eigenvalues == 0


def test_lanczos_starts_beside_the_point() -> None:
    """The random start of Lanczos has the same seed as `initial`, but must not be parallel."""
    problem = Problem(10, 8, 12)
    result = classify(problem, problem.initial(scale=1.0))
    other = classify(problem, problem.initial(scale=1.0, seed=5))
    assert result.kind is other.kind is PointKind.not_critical
    assert result.smallest_eigenvalue < 0


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0, 40.0])
def test_simplex_etfs_are_global_minima_at_every_radius(factor: float) -> None:
    result = classify(PROBLEM, factor * optimal_point(PROBLEM, seed=4))
    assert result.kind is PointKind.global_minimum
    assert abs(result.log_gap) < 1e-11
    assert result.negative_eigenvalues == 0


def test_points_of_a_descent_are_not_critical() -> None:
    theta = descend(PROBLEM, steps=50, rate=0.2).theta
    result = classify(PROBLEM, theta)
    assert result.kind is PointKind.not_critical
    assert result.gap > 0
    descent = escape(PROBLEM, theta, angle=1e-4)
    assert descent is not None
    assert descent.order == 1
    assert descent.actual == pytest.approx(descent.predicted, rel=0.01)
    assert descent.actual < 0


def test_pairs_of_opposite_classes_are_a_strict_saddle_in_any_dimension() -> None:
    # This is Example 3.1 with two samples per class and three more dimensions.
    problem = Problem(4, 2, 7)
    W = np.zeros((4, 7))
    W[:, :4] = DIRECTION
    theta = problem.join(W, np.repeat(W, 2, axis=0) / math.sqrt(2))
    result = classify(problem, theta)
    assert result.kind is PointKind.strict_saddle
    assert result.relative_gradient < 1e-14
    descent = escape(problem, theta)
    assert descent is not None
    assert descent.order == 2
    assert descent.actual == pytest.approx(descent.predicted, rel=0.01)
    assert np.linalg.matrix_rank(np.concatenate([theta, descent.direction]), tol=1e-6) > 2


def test_no_escape_from_the_optimum() -> None:
    assert escape(PROBLEM, 2 * optimal_point(PROBLEM)) is None


def test_thirty_random_starts_reach_the_closed_form() -> None:
    for problem, radius in ((Problem(4, 1, 5), 3.0), (Problem(3, 2, 2), 2.0)):
        gaps = [minimise_on_sphere(problem, radius=radius, seed=s).log_gap for s in range(30)]
        assert np.abs(gaps).max() < 1e-12


def test_circles_stay_on_the_sphere() -> None:
    theta = PROBLEM.initial(scale=1.0)
    direction = tangent(PROBLEM, theta).gradient
    direction /= np.linalg.norm(direction)
    for angle in (0.1, 1.0, 3.0):
        moved = along_circle(theta, direction, angle)
        assert np.linalg.norm(moved) == pytest.approx(np.linalg.norm(theta), rel=1e-12)


def test_points_without_a_sphere_raise() -> None:
    with pytest.raises(NclabError, match="other than zero"):
        classify(PROBLEM, np.zeros(PROBLEM.shape))
    with pytest.raises(NclabError, match="positive radius"):
        minimise_on_sphere(PROBLEM, radius=-1.0)


def test_a_plateau_is_critical_though_its_gradient_is_rounding() -> None:
    """With W = 0 and equal class means the gradient is zero; the point is a strict saddle."""
    problem = Problem(3, 2, 2, "sum")
    pairs = np.array([[0.3, 0.7], [0.5, -0.1], [1.1, 0.2]])
    features = np.repeat(pairs, 2, axis=0) * np.tile([[1.0], [-1.0]], (3, 1)) + 0.1
    point = np.concatenate([np.zeros((3, 2)), features])
    assert tangent(problem, point).relative == 0
    assert classify(problem, point).kind is PointKind.strict_saddle
    descent = escape(problem, point)
    assert descent is not None
    assert descent.order == 2
    assert descent.actual < 0
    tiny = np.concatenate([np.zeros((3, 2)), 1e-7 * pairs.repeat(2, axis=0)])
    assert classify(problem, tiny).kind is PointKind.not_critical
