"""The compiled kernel's own arithmetic."""

import numpy as np
import pytest

from nclab.ulpm import kernel
from nclab.ulpm.problem import Problem, log_gradient


def test_exponential_to_the_last_place() -> None:
    x = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-1, 1, 4001)])
    expected = np.exp(x)
    bits = np.empty(len(x), dtype=np.int64)
    kernel.exponentials(x, bits, bits.view(np.float64))
    assert np.abs(x / expected - 1).max() < 5e-16


def test_exponential_is_cut_off_and_not_wrong() -> None:
    x = np.array([-np.inf, -1e9, 1e9])
    bits = np.empty(3, dtype=np.int64)
    kernel.exponentials(x, bits, bits.view(np.float64))
    assert (x[:2] < 1e-300).all()
    assert (x[:2] >= 0).all()
    assert x[2] > 1e300


@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 5, 2), (7, 3, 6), (4, 9, 11)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_gradient_is_that_of_the_portable_way(sizes: tuple[int, int, int], scale: float) -> None:
    problem = Problem(*sizes)
    theta = problem.initial(scale=scale, seed=2)
    expected = log_gradient(problem, theta)
    gradient = np.empty_like(theta)
    value = kernel.log_gradient(theta, problem.num_classes, problem.share, gradient)
    assert value == pytest.approx(expected.log_loss, rel=1e-12, abs=1e-13)
    size = np.abs(expected.gradient).max()
    np.testing.assert_allclose(gradient, expected.gradient, rtol=1e-10, atol=1e-11 * size)
