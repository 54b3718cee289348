"""Lemmas 2.4.1 to 2.4.3 on at least 10,000 data sets."""

import math

import numpy as np
import pytest

from nclab_papers.pan2023.jensen import (
    exp_excess,
    exponential_subset_mean,
    jensen_subset_mean,
    jensen_variance,
    jensen_weighted,
)
from nclab_papers.pan2023.loss_steps import loss_strong_convexity
from tests.nclab_papers.pan2023.lemma_data import SIZES, assert_true, numbers, softplus


@pytest.mark.parametrize("classes", [2, 10])
def test_subset_means_of_the_loss(classes: int) -> None:
    """Lemma 2.4.1 and Corollary 2.4.1 with the loss itself, and lambda from the data's range."""
    rng = np.random.default_rng(0)
    means, variances = [], []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
        means.append(jensen_subset_mean(x, chosen, softplus(classes), convexity))
        variances.append(jensen_variance(x, softplus(classes), convexity))
    assert_true(means)
    assert_true(variances)


def test_subset_means_of_a_parabola() -> None:
    """Lemma 2.4.1 is tight: two-valued data reach it."""
    rng = np.random.default_rng(1)
    batches, ratios = [], []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        both = jensen_subset_mean(x, chosen, np.square, 2.0)
        batches.append(both)
        ratios.append((both.left / np.maximum(both.right, 1e-3)).max())
    assert_true(batches)
    assert max(ratios) == pytest.approx(1.0, abs=1e-6)


def test_weighted_jensen() -> None:
    """Lemma 2.4.2, for a parabola with equality and for a function above it."""
    rng = np.random.default_rng(2)
    batches = []
    for size in SIZES:
        x, _ = numbers(rng, size)
        shares = rng.dirichlet(np.full(size, 0.5), size=len(x))
        equal = jensen_weighted(x, shares, np.square, 1.0)
        assert (np.abs(equal.slack) <= equal.tolerance).all()
        batches += [equal, jensen_weighted(x, shares, lambda t: np.square(t) + t**4, 1.0)]
    assert_true(batches)


def test_subset_means_of_the_exponential() -> None:
    """Lemma 2.4.3."""
    rng = np.random.default_rng(3)
    bounds = []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        bounds.append(exponential_subset_mean(x, chosen))
    assert_true(bounds)


def test_printed_bound_of_the_exponential_is_approached_by_rare_subsets() -> None:
    """The ratio of Lemma 2.4.3 tends to 1 as the subset's share goes to 0, 1/sqrt 2 at a half."""
    ratios = []
    for size in (2, 100_000):
        x = np.zeros(size)
        x[0] = 1e-3
        both = exponential_subset_mean(x, x > 0)
        ratios.append(float((both.left - x.mean()) / (both.right - x.mean())))
    assert ratios == pytest.approx([math.sqrt(0.5), 1.0], abs=1e-3)


def test_exponential_excess_is_accurate() -> None:
    """Against the exactly rounded sum of the series."""
    x = np.array([1e-12, 1e-4, 0.029, 0.031, 1.0, -0.029, -3.0])
    exact = [math.fsum(t**k / math.factorial(k) for k in range(2, 40)) for t in x.tolist()]
    np.testing.assert_allclose(exp_excess(x), exact, rtol=2e-14)
