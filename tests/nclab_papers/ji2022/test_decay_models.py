"""Laws of decay told apart by the points they have not seen."""

import math

import numpy as np
import pytest

from nclab_papers.ji2022.decay_models import LAWS, advantage, fall, held_out

TIMES = [100, 115, 130, 150, 175, 200, 230, 260, 300, 340, 390, 440, 500]
CURVES = {
    "(log t)^-r": lambda t: math.log(t) ** -1.0,
    "power law": lambda t: t**-0.3,
    "exponential": lambda t: math.exp(-t / 1000),
}


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_recognised_through_noise(law: str) -> None:
    rng = np.random.default_rng(0)
    right = 0
    for _ in range(20):
        values = [CURVES[law](t) * math.exp(0.002 * rng.normal()) for t in TIMES]
        found = {name: held_out(TIMES, values, name) for name in LAWS}
        right += max(found, key=lambda name: found[name]) == law
    assert right >= 18


def test_every_monotone_curve_does_not_pass() -> None:
    for name, curve in CURVES.items():
        values = [curve(t) for t in TIMES]
        assert (advantage(TIMES, values) > 0) is (name == "(log t)^-r")
        assert fall(TIMES, values) > 0


def test_too_few_points_say_nothing() -> None:
    with pytest.raises(ValueError, match="4 points; 5 are needed"):
        held_out(TIMES[:4], [1.0] * 4, "power law")
