"""Lines with the spread over seeds."""

from nclab.figures.spread import Look, column, spread


def test_one_seed_has_no_band() -> None:
    line = spread([{"x": 1, "v": 0.5}], "x", column("v"), Look("v", 0))
    assert line.low is None
    assert line.y == [0.5]
