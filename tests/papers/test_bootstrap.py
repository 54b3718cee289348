"""Bootstrap intervals of the median."""

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.papers.bootstrap import median_interval


def test_it_surrounds_the_median_and_stays_within_the_values() -> None:
    values = [0.1, 0.5, 0.2, 0.9, 0.4]
    found = median_interval(values)
    assert found.median == 0.4
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found == median_interval(values)


def test_it_covers_the_true_median_about_as_often_as_it_says() -> None:
    stream = np.random.Generator(np.random.PCG64(1))
    draws = stream.standard_normal((200, 25))
    found = [median_interval(list(row), draws=500) for row in draws]
    covered = sum(one.low <= 0 <= one.high for one in found)
    assert 180 <= covered <= 199


def test_nothing_has_no_interval() -> None:
    with pytest.raises(NclabError, match="at least one value"):
        median_interval([])
