"""The smallest e of each conjecture, against the conjectures themselves."""

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nclab.metrics.nc4_nearest_center import effective_depth
from nclab_papers.pan2023.conjectures import (
    smallest_decay_slack,
    smallest_depth_error,
    smallest_layer_slack,
)

DECAYS = (1e-4, 3e-4, 1e-3, 3e-3)
gaps = st.lists(st.floats(-1, 2), min_size=4, max_size=4)
accuracies = st.lists(
    st.lists(st.integers(0, 20).map(lambda hits: hits / 20), min_size=5, max_size=5),
    min_size=4,
    max_size=4,
)


@given(gaps)
def test_weight_decay_conjecture_holds_with_it_and_not_with_less(values: list[float]) -> None:
    slack = smallest_decay_slack(DECAYS, values)

    def holds(e: float) -> bool:
        return all(
            values[j] - values[i] >= -e * math.log(DECAYS[j] / DECAYS[i]) - 1e-12
            for i, j in combinations(range(4), 2)
        )

    assert holds(slack)
    assert slack == 0 or not holds(0.99 * slack - 1e-9)


@given(gaps)
def test_layer_conjecture_holds_with_it_and_not_with_less(values: list[float]) -> None:
    slack = smallest_layer_slack(values)
    steps = [after - before for before, after in pairwise(values)]
    assert min(steps) >= -slack - 1e-12
    assert slack == 0 or min(steps) <= -slack + 1e-12


@given(accuracies)
def test_depth_conjecture_holds_at_it_and_nowhere_below(layers: list[list[float]]) -> None:
    error = smallest_depth_error(DECAYS, layers)

    def holds(epsilon: float) -> bool:
        depths = [effective_depth(own, epsilon=epsilon) for own in layers]
        return depths == sorted(depths, reverse=True)

    assert error == 1.0 or holds(error)
    reached = max(min(1 - value for value in own) for own in layers)
    assert error >= reached
    tried = [step / 40 for step in range(40) if reached <= step / 40 < error - 1e-9]
    assert not any(holds(epsilon) for epsilon in tried)


def test_depths_that_are_equal_because_none_is_reached_do_not_count() -> None:
    layers = [[0.5, 0.9, 0.9], [0.5, 0.7, 0.95]]
    assert effective_depth(layers[0], epsilon=0.0) == effective_depth(layers[1], epsilon=0.0)
    assert smallest_depth_error([1e-4, 1e-3], layers) == pytest.approx(0.3)


def test_weight_decays_may_come_in_any_order() -> None:
    assert smallest_decay_slack([1e-2, 1e-4], [1.0, 0.5]) == 0.0
    assert smallest_decay_slack([1e-4, 1e-2], [1.0, 0.5]) == pytest.approx(0.5 / math.log(100))
