"""Tests of problem (5): solver, certificates, and the lemma that relates it to the loss."""

import math

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.ulpm import Problem, approximate_kkt, certify, flow, solve_separation
from nclab.ulpm.problem import logit_gradient, pair_margins, smallest_margin
from nclab.ulpm.separation import (
    margin_gradient,
    optimal_multiplier,
    optimal_point,
    optimal_value,
    ray_value,
)


@pytest.mark.parametrize("sizes", [(3, 1), (4, 2), (5, 10)])
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_solver_finds_the_optimum_and_proves_it(
    sizes: tuple[int, int], extra: int, seed: int
) -> None:
    problem = Problem(*sizes, sizes[0] - 1 + extra)
    certificate = solve_separation(problem, seed=seed)
    assert certificate.value == pytest.approx((sizes[0] - 1) * math.sqrt(sizes[1]), abs=1e-6)
    assert certificate.residual < 1e-6
    assert smallest_margin(problem, certificate.theta) == pytest.approx(1.0, abs=1e-12)
    assert certificate.kind() == "global minimum"
    others = np.isfinite(pair_margins(problem, certificate.theta))
    result = certificate.multipliers[others]
    np.testing.assert_allclose(result, optimal_multiplier(problem), atol=1e-6)
    W, H = problem.split(certificate.theta)
    size = math.sqrt(sizes[1]) * (sizes[0] - 1) / sizes[0]
    np.testing.assert_allclose((W**2).sum(1), size, atol=1e-5)
    np.testing.assert_allclose((H**2).sum(1), size / sizes[1], atol=1e-5)


def test_closed_form_is_certified_without_given_multipliers() -> None:
    for sizes in ((2, 1, 1), (3, 1, 2), (4, 2, 5), (5, 3, 4)):
        problem = Problem(*sizes)
        certificate = certify(problem, 7 * optimal_point(problem, seed=1))
        assert certificate.kind(1e-9) == "global minimum"
        assert certificate.value == pytest.approx(optimal_value(problem), rel=1e-12)


def test_points_that_are_not_kkt() -> None:
    problem = Problem(3, 2, 2)
    theta = optimal_point(problem)
    theta[0] *= 1.3
    certificate = certify(problem, theta)
    assert certificate.kind() == "not a KKT point"
    assert certificate.gap > 0.01
    with pytest.raises(NclabError, match="separates the classes, got a smallest margin of"):
        certify(problem, problem.initial())


def test_lemma_3_2_along_a_flow() -> None:
    problem = Problem(4, 3, 5)
    for log_time in (4.0, 10.0, 100.0):
        theta = flow(problem, log_time=log_time).theta
        result = approximate_kkt(problem, theta)
        margin, square = smallest_margin(problem, theta), float((theta**2).sum())
        # The equality for epsilon follows from its definition, stationarity at the scaled point.
        weights = logit_gradient(problem, theta).weights
        gradient = np.concatenate([weights.T @ theta[4:], weights @ theta[:4]])
        multipliers = np.maximum(weights, 0) * math.sqrt(square) / np.linalg.norm(gradient)
        scaled = theta / math.sqrt(margin)
        residual = np.linalg.norm(scaled - margin_gradient(problem, scaled, multipliers))
        assert result.epsilon == pytest.approx(float(residual), rel=1e-8)
        kappa = margin / square
        printed = math.sqrt(2 * (1 - result.alignment) / kappa)
        assert result.epsilon == pytest.approx(printed, rel=1e-6)
        assert 0 <= result.delta <= result.delta_bound < problem.num_classes / (2 * kappa * margin)


def test_before_separation_there_is_no_kkt_point() -> None:
    problem = Problem(3, 2, 2)
    result = approximate_kkt(problem, problem.initial())
    assert math.isnan(result.epsilon)
    assert math.isfinite(result.alignment)
    assert math.isnan(approximate_kkt(problem, np.zeros(problem.shape)).alignment)


def test_value_on_a_ray_equals_the_value_at_margin_one() -> None:
    problem = Problem(4, 3, 5)
    theta = flow(problem, log_time=10.0).theta
    assert ray_value(problem, theta) == pytest.approx(certify(problem, theta).value, rel=1e-12)
    assert ray_value(problem, theta) == pytest.approx(ray_value(problem, 3 * theta), rel=1e-12)
