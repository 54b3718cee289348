"""Inequalities and the verdict on their data."""

import math

import numpy as np

from nclab.theory.statements import Inequality


def test_nan_does_not_hold() -> None:
    """A side that is nan never counts as holding."""
    both = Inequality(np.array([math.nan]), "<=", np.array([1.0]))
    assert not both.always
