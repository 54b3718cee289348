"""Effective depth, counted from 1."""

import pytest

import nclab
from nclab.metrics import effective_depth


@pytest.mark.parametrize(
    ("accuracies", "epsilon", "depth"),
    [
        ([0.5, 0.99, 1.0], 0.01, 2),  # an error of exactly epsilon is enough
        ([0.5, 0.98, 1.0], 0.01, 3),
        ([1.0, 0.2, 0.3], 0.0, 1),
        ([0.5, 0.6, 0.7], 0.1, 3),  # none is good enough: the number of layers
    ],
)
def test_depth(accuracies: list[float], epsilon: float, depth: int) -> None:
    assert effective_depth(accuracies, epsilon=epsilon) == depth


def test_bad_input() -> None:
    with pytest.raises(nclab.NclabError, match="at least one layer"):
        effective_depth([])
    with pytest.raises(nclab.NclabError, match=r"in \[0, 1\), got 2"):
        effective_depth([1.0], epsilon=2)
