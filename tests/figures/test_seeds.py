"""Lines of means over seeds."""

from nclab.figures.seeds import column, mean_over_seeds


def test_one_seed_has_no_band() -> None:
    line = mean_over_seeds([{"x": 1, "v": 0.5}], "x", column("v"), "v")
    assert line.low is None
    assert line.y == [0.5]
