"""The picture of collapse against the complexity of the data."""

import pytest

from nclab_papers.pan2023 import attacks, complexity
from tests.nclab_papers.pan2023.tiny import panel


def test_the_axis_is_the_depth_of_the_teacher() -> None:
    picture = complexity.pictures(attacks.complexity())[0]
    assert len(picture.panels) == 2
    assert list(panel(picture).series[0].x) == [1, 3, 6, 9]
    assert panel(picture).x_ticks == (1, 3, 6, 9)
    assert panel(picture).series[0].y[0] == pytest.approx(0.96)
