"""Figure 3 of ji2022 as plain data."""

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.figures.draw import draw
from nclab.figures.interactive import figure
from nclab.figures.picture import Panel
from nclab.papers.ji2022.fig3_picture import PANELS, panels

QUANTITIES = [name for _, curves in PANELS for name, _ in curves]
ROWS = [
    {"seed": seed, "epoch": epoch} | {name: (place + 1) / (epoch + 1 + seed)}
    for seed in (0, 1)
    for epoch in (0, 1, 2, 5, 10)
    for place, name in enumerate(QUANTITIES[:1])
]
ROWS = [
    row | {name: row[QUANTITIES[0]] * (1 + i) for i, name in enumerate(QUANTITIES)} for row in ROWS
]


def test_lines_are_means_and_bands_the_range() -> None:
    picture = panels(ROWS, title="two seeds")
    assert [len(panel.series) for panel in picture.panels if isinstance(panel, Panel)] == [
        2,
        1,
        2,
        1,
    ]
    first = picture.panels[0]
    assert isinstance(first, Panel)
    assert (first.x_scale, first.y_scale) == ("loglog", "log")
    assert [line.y for line in first.references] == [0.1]
    means, weights = first.series
    assert list(means.x) == pytest.approx(np.log([2, 5, 10]))
    assert means.low is not None
    assert means.high is not None
    assert means.high[0] == pytest.approx(1 / 3)
    assert means.low[0] == pytest.approx(1 / 4)
    assert means.y[0] == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert weights.y[2] == pytest.approx(1 / 11 + 1 / 12)
    assert (means.style, weights.style) == ("solid", "dashed")


def test_one_seed_has_no_band() -> None:
    picture = panels([row for row in ROWS if row["seed"] == 0], title="one")
    panel = picture.panels[0]
    assert isinstance(panel, Panel)
    assert panel.series[0].low is None
    assert "seeds" not in picture.caption


def test_epochs_that_a_seed_lacks_are_left_out() -> None:
    rows = [row for row in ROWS if (row["seed"], row["epoch"]) != (1, 5)]
    panel = panels(rows, title="").panels[0]
    assert isinstance(panel, Panel)
    assert list(panel.series[0].x) == pytest.approx(np.log([2, 10]))


def test_too_few_measurements_say_so() -> None:
    with pytest.raises(NclabError, match="Train for longer"):
        panels(ROWS[:3], title="")


def test_drawn_on_paper_and_on_pages() -> None:
    picture = panels(ROWS, title="two seeds")
    assert len(draw(picture).axes) == 4
    assert len(figure(picture).data) >= 6


def test_what_was_not_measured_is_not_drawn() -> None:
    name = QUANTITIES[2]
    rows = [row | ({name: None} if row["epoch"] == 5 else {}) for row in ROWS]
    panel = panels(rows, title="").panels[1]
    assert isinstance(panel, Panel)
    assert [y is None for y in panel.series[0].y] == [False, True, False]
