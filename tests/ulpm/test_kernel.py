"""Tests of the exponential function of the compiled kernel."""

import numpy as np

from nclab.ulpm import kernel


def test_exponential_is_accurate_to_the_last_place() -> None:
    x = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-1, 1, 4001)])
    expected = np.exp(x)
    bits = np.empty(len(x), dtype=np.int64)
    kernel.exponentials(x, bits, bits.view(np.float64))
    assert np.abs(x / expected - 1).max() < 5e-16


def test_exponential_is_limited_for_extreme_arguments() -> None:
    x = np.array([-np.inf, -1e9, 1e9])
    bits = np.empty(3, dtype=np.int64)
    kernel.exponentials(x, bits, bits.view(np.float64))
    assert (x[:2] < 1e-300).all()
    assert (x[:2] >= 0).all()
    assert x[2] > 1e300
