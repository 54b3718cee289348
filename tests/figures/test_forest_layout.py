"""Positions of rows, margins and texts in a forest plot."""

import numpy as np

from nclab.figures.forest_layout import TEXT_ABOVE, ZERO_LINE, lay_out_forest
from nclab.figures.matplotlib_renderer import draw
from nclab.figures.picture import EffectRow, Effects, Forest, Picture
from nclab.figures.plotly_renderer import plotly_spec

GROUPS = (
    Effects(
        "small", 0.01, (EffectRow("a", 0.2, 0.1, 0.4), EffectRow("a", 0.1, None, None, hollow=True))
    ),
    Effects("large", 0.0, (EffectRow("b", -30.0, -50.0, -10.0, 1),)),
)
PICTURE = Picture("effects", "", (Forest("", GROUPS, "against", "for"),), 1)


def test_the_largest_effect_of_each_group_reaches_the_edge() -> None:
    rows, bands, _ = lay_out_forest(Forest("", GROUPS))
    reaches = [max(abs(row.low), abs(row.high)) for row in rows if row.effect is not None]
    assert reaches == [1.0, 0.25, 1.0]
    assert bands[0].half_width == 0.01 / 0.4  # the margin in the scale of its group
    assert bands[1].half_width == 0.0


def test_a_margin_ends_before_an_effect_beyond_it() -> None:
    rows, bands, _ = lay_out_forest(
        Forest("", (Effects("g", 0.01, (EffectRow("a", 0.03, 0.02, 2.0),)),))
    )
    assert bands[0].half_width < rows[1].low


def test_a_hollow_row_below_its_filled_row_is_labelled_here() -> None:
    rows, _, _ = lay_out_forest(Forest("", GROUPS))
    assert [row.label for row in rows] == ["small", "a", "here", "large", "b"]
    assert rows[2].numbers == "0.1, no interval"
    assert rows[2].y - rows[1].y < rows[1].y - rows[0].y
    alone = Effects("g", 0.1, (EffectRow("c", 0.2, 0.1, 0.3, hollow=True),))
    rows, _, _ = lay_out_forest(Forest("", (alone,)))
    assert (rows[1].label, rows[1].high) == ("here, c", 1.0)


WIDE = Effects(
    "g",
    0.01,
    (
        EffectRow("a", 0.2, 0.1, 0.4),
        EffectRow("a", 0.3, -20.0, 21.0, hollow=True),
        EffectRow("b", 0.2, 0.1, 0.3),
        EffectRow("b", -5.0, -6.0, -4.0, hollow=True),
    ),
)


def test_hollow_rows_do_not_set_the_scale_and_are_cut_at_the_edge() -> None:
    rows, bands, _ = lay_out_forest(Forest("", (WIDE,)))
    assert bands[0].half_width == 0.01 / 0.4
    assert (rows[1].low, rows[1].high, rows[1].cut) == (0.25, 1.0, (False, False))
    assert (rows[2].low, rows[2].high, rows[2].cut) == (-1.0, 1.0, (True, True))
    assert rows[2].estimate == 0.3 / 0.4
    assert rows[2].numbers == "0.3 [-20, 21]"
    assert (rows[4].low, rows[4].estimate, rows[4].high) == (-1.0, None, -1.0)
    assert rows[4].cut == (True, False)


def test_both_renderers_draw_arrows_at_cut_intervals() -> None:
    picture = Picture("effects", "", (Forest("", (WIDE,)),), 1)
    sizes = [trace["marker"]["size"] for trace in plotly_spec(picture)["data"]]
    assert sizes == [[0, 8, 0], [9, 8, 9], [0, 8, 0], [9, 0, 0]]
    assert "here, a<br>0.3 [-20, 21]" in plotly_spec(picture)["data"][1]["hovertemplate"]
    axis = draw(picture).axes[0]
    assert [line.get_marker() for line in axis.lines].count("<") == 2
    assert [line.get_marker() for line in axis.lines].count(">") == 1
    assert "0.3 [-20, 21]" in {text.get_text() for text in axis.texts}


def test_both_renderers_draw_all_intervals() -> None:
    assert len(plotly_spec(PICTURE)["data"]) == 3
    texts = [text.get_text() for text in draw(PICTURE).axes[0].texts]
    assert {"small", "large", "a", "b", "-30 [-50, -10]"} <= set(texts)


def test_the_zero_line_does_not_cross_the_text() -> None:
    rows, _, _ = lay_out_forest(Forest("", GROUPS))
    texts = [row.y - TEXT_ABOVE for row in rows if row.label]
    zeros = [(row.y - ZERO_LINE[0], row.y + ZERO_LINE[1]) for row in rows if row.effect is not None]
    assert all(abs(end - y) > 0.3 for y in texts for end in sum(zeros, ()))
    assert not any(top < y < bottom for y in texts for top, bottom in zeros)
    shapes = plotly_spec(PICTURE)["layout"]["shapes"]
    lines = [(shape["y0"], shape["y1"]) for shape in shapes if shape["type"] == "line"]
    assert lines == zeros
    segments = [np.asarray(line.get_xydata()) for line in draw(PICTURE).axes[0].lines]
    upright = [
        points[:, 1] for points in segments if points.shape == (2, 2) and not points[:, 0].any()
    ]
    assert [tuple(ends.tolist()) for ends in upright] == zeros


def test_a_page_knows_the_smallest_width_of_a_forest_plot() -> None:
    assert plotly_spec(PICTURE)["layout"]["meta"]["least"] > 400
