"""Tests of loss, gradient and margins against slow loops, and of lemmas on random points."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nclab.errors import DataError, NclabError
from nclab.ulpm.problem import (
    Array,
    Problem,
    invariants,
    largest_margin,
    log_gradient,
    log_loss,
    logit_gradient,
    optimal_log_loss,
    pair_margins,
    smallest_margin,
)
from nclab.ulpm.separation import optimal_point
from tests.reference.slow_ulpm import autograd_loss, slow_loss, slow_margin
from tests.ulpm.golden import GOLDEN

PROBLEMS = (Problem(2, 1, 1), Problem(3, 4, 2), Problem(5, 2, 7, "sum"), Problem(4, 1, 4, "sum"))


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_loss_and_margin_agree_with_slow_loops(problem: Problem, scale: float) -> None:
    theta = problem.initial(scale=scale, seed=3)
    W, H = problem.split(theta)
    expected = slow_loss(W, H, problem.per_class) * problem.share
    assert math.exp(log_loss(problem, theta)) == pytest.approx(expected, rel=1e-13)
    expected = slow_margin(W, H, problem.per_class)
    assert smallest_margin(problem, theta) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_gradient_agrees_with_autograd(problem: Problem, scale: float) -> None:
    theta = problem.initial(scale=scale, seed=4)
    flat = torch.tensor(theta).reshape(-1).requires_grad_()
    loss = autograd_loss(flat, problem.num_classes, problem.per_class, problem.dim)
    (expected,) = torch.autograd.grad(loss, flat)
    result = log_gradient(problem, theta)
    gradient = result.gradient * math.exp(result.log_loss)
    np.testing.assert_allclose(
        gradient.ravel(), expected.numpy() * problem.share, rtol=1e-11, atol=1e-14
    )


def test_loss_far_below_the_smallest_float() -> None:
    problem = Problem(3, 2, 2)
    theta = optimal_point(problem)
    margin = smallest_margin(problem, theta)
    for factor in (1.0, 30.0, 1e3):
        value, gradient = log_gradient(problem, theta * factor)
        best = optimal_log_loss(problem, float((theta**2).sum()) * factor**2)
        assert value == pytest.approx(best, rel=1e-12)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0.1
    assert value < -0.9e6 * margin


def test_loss_far_on_the_wrong_side() -> None:
    problem = Problem(3, 2, 2)
    W, H = problem.split(optimal_point(problem) * 1e3)
    value, weights = logit_gradient(problem, problem.join(W, -H))
    assert math.isfinite(value)
    assert np.isfinite(weights).all()
    assert math.exp(value) == pytest.approx(2e6 * 0.5, rel=1)


def test_reductions_differ_by_the_number_of_samples() -> None:
    mean, total = Problem(3, 4, 2), Problem(3, 4, 2, "sum")
    theta = mean.initial(scale=1.0)
    assert log_loss(total, theta) - log_loss(mean, theta) == pytest.approx(math.log(12))


def test_ten_thousand_draws_never_break_the_bound_of_lemma_3_1() -> None:
    generator = np.random.default_rng(0)
    largest = -math.inf
    for draw in range(10_000):
        classes, per_class = int(generator.integers(2, 7)), int(generator.integers(1, 5))
        problem = Problem(classes, per_class, classes - 1 + int(generator.integers(0, 4)))
        theta = generator.standard_normal(problem.shape)
        if draw % 2:  # Half of the points are near configurations that attain the bound.
            spread = 10.0 ** generator.uniform(-9, 0)
            theta = optimal_point(problem, seed=draw) + spread * theta
        bound = largest_margin(problem, float((theta**2).sum()))
        largest = max(largest, smallest_margin(problem, theta) / bound)
    assert 0.999 < largest <= 1 + 1e-14


@settings(deadline=None, max_examples=50)
@given(
    classes=st.integers(2, 6),
    per_class=st.integers(1, 4),
    extra=st.integers(0, 3),
    radius=st.floats(0.1, 50.0),
    seed=st.integers(0, 1000),
)
def test_no_point_of_a_sphere_is_below_theorem_3_3(
    classes: int, per_class: int, extra: int, radius: float, seed: int
) -> None:
    problem = Problem(classes, per_class, classes - 1 + extra)
    best = optimal_log_loss(problem, radius**2)
    for theta in (problem.initial(scale=1.0, seed=seed), optimal_point(problem, seed=seed)):
        scaled = theta * (radius / np.linalg.norm(theta))
        assert log_loss(problem, scaled) >= best - 1e-12 * max(1.0, abs(best))
    assert log_loss(problem, scaled) == pytest.approx(best, rel=1e-12, abs=1e-12)


def test_initial_numbers_equal_the_documented_ones() -> None:
    problem = Problem(5, 10, 20)
    W, H = problem.split(problem.initial(scale=1.0))
    assert W[0, 0] == GOLDEN["first_numbers_at_scale_1"]["W"]
    assert H[0, 0] == GOLDEN["first_numbers_at_scale_1"]["H"]


def test_margin_against_the_own_class_is_infinite() -> None:
    problem = Problem(3, 2, 2)
    margins = pair_margins(problem, problem.initial())
    assert np.isinf(margins).sum() == problem.samples
    assert np.isinf(margins[problem.rows, problem.labels]).all()


def test_invariants_of_a_rotated_point_rotate() -> None:
    problem = Problem(3, 2, 4)
    theta = problem.initial(scale=1.0)
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    before, after = invariants(problem, theta), invariants(problem, theta @ rotation)
    np.testing.assert_allclose(after.balance, rotation.T @ before.balance @ rotation, atol=1e-13)
    np.testing.assert_allclose(after.row_sum, before.row_sum @ rotation, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, 1, 1), "at least 2 classes, got 1"),
        ((3, 0, 2), "1 sample per class, got 0"),
        ((5, 1, 3), "dimension 4 or more, got 3"),
        ((3, 1, 2, "median"), "got 'median'"),
    ],
)
def test_invalid_sizes_raise(arguments: tuple[int, int, int], words: str) -> None:
    with pytest.raises(NclabError, match=words):
        Problem(*arguments)


def test_invalid_points_raise() -> None:
    problem = Problem(3, 1, 2)
    good: Array = np.ones((3, 2))
    with pytest.raises(DataError, match=r"Pass H\.T"):
        problem.join(good, good.T)
    with pytest.raises(DataError, match=r"W of shape \(3, 2\), got \(2, 2\)"):
        problem.join(good[:2], good)
    bad = good.copy()
    bad[1, 1] = np.nan
    with pytest.raises(DataError, match=r"got nan at H\[1, 1\]"):
        problem.join(good, bad)
    with pytest.raises(DataError, match="shape"):
        problem.checked(good)
    with pytest.raises(NclabError, match="positive scale"):
        problem.initial(scale=0.0)
