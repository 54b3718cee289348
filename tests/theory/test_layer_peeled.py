"""The function g, its slope and its inverse, from losses of 1e-300 to far above chance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nclab.metrics.cross_entropy import optimal_loss
from nclab.theory.layer_peeled import (
    g,
    g_inverse,
    g_prime,
    g_rise,
    g_rise_inverse,
    wrong_probability,
)

CLASSES = st.integers(2, 1000)


@given(CLASSES, st.floats(-50, 300))
def test_inverse_undoes_g(num_classes: int, s: float) -> None:
    scale = max(1.0, abs(s))
    assert g_inverse(g(s, num_classes), num_classes) == pytest.approx(s, abs=1e-9 * scale)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 1000])
def test_tiny_losses_keep_their_digits(num_classes: int) -> None:
    others = num_classes - 1
    s = others / num_classes * (math.log(others) + 300 * math.log(10))
    assert g(s, num_classes) == pytest.approx(1e-300, rel=1e-9)
    assert g_inverse(1e-300, num_classes) == pytest.approx(s, rel=1e-14)


def test_chance_and_above() -> None:
    assert g_inverse(math.log(7), 7) == pytest.approx(0.0, abs=1e-15)
    assert g_inverse(5.0, 7) < 0
    assert g(g_inverse(5000.0, 7), 7) == pytest.approx(5000.0)
    assert g_inverse(0.0, 7) == math.inf


@given(CLASSES, st.floats(-5, 30))
def test_slope_is_the_derivative(num_classes: int, s: float) -> None:
    step = 1e-5
    numeric = (g(s + step, num_classes) - g(s - step, num_classes)) / (2 * step)
    assert g_prime(s, num_classes) == pytest.approx(numeric, rel=1e-5, abs=1e-9)
    assert wrong_probability(s, num_classes) == pytest.approx(
        -math.expm1(-g(s, num_classes)), rel=1e-9
    )


def test_arrays_agree_with_scalars() -> None:
    s = np.linspace(-5.0, 700.0, 11)
    for function in (g, g_prime, wrong_probability):
        assert function(s, 10) == pytest.approx([function(float(x), 10) for x in s])
    losses = np.array([1e-300, 1e-9, 0.3, 40.0])
    assert g_inverse(losses, 10) == pytest.approx([g_inverse(float(x), 10) for x in losses])


def test_optimal_loss_is_g() -> None:
    assert optimal_loss(10, 5.0) == g(5.0, 10)


@given(CLASSES, st.floats(0.1, 30), st.floats(-20, 20))
def test_rise_and_its_inverse(num_classes: int, start: float, step: float) -> None:
    rise = g_rise(np.array(step), num_classes, start)
    direct = g(start + step, num_classes) - g(start, num_classes)
    assert float(rise) == pytest.approx(direct, rel=1e-9, abs=1e-12)
    if step < 1:
        back = float(g_rise_inverse(rise, num_classes, start))
        assert back == pytest.approx(step, rel=1e-9, abs=1e-9)
