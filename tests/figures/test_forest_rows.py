"""Where the rows of a forest plot lie."""

import numpy as np

from nclab.figures.draw import draw
from nclab.figures.forest_rows import HEIGHT, ZERO, laid_out
from nclab.figures.interactive import spec
from nclab.figures.picture import EffectRow, Effects, Forest, Picture

GROUPS = (
    Effects(
        "small", 0.01, (EffectRow("a", 0.2, 0.1, 0.4), EffectRow("a", 0.1, None, None, hollow=True))
    ),
    Effects("large", 0.0, (EffectRow("b", -30.0, -50.0, -10.0, 1),)),
)
PICTURE = Picture("effects", "", (Forest("", GROUPS, "against", "for"),), 1)


def test_each_group_fills_its_half() -> None:
    rows, bands, _ = laid_out(Forest("", GROUPS))
    reach = [max(abs(row.low), abs(row.high)) for row in rows if row.effect is not None]
    assert reach == [1.0, 0.25, 1.0]
    assert bands[0].reach == 0.01 / 0.4  # the margin on the scale of its group
    assert bands[1].reach == 0.0


def test_a_margin_is_never_drawn_over_an_effect_beyond_it() -> None:
    rows, bands, _ = laid_out(Forest("", (Effects("g", 0.01, (EffectRow("a", 0.03, 0.02, 2.0),)),)))
    assert bands[0].reach < rows[1].low


def test_what_stands_beside_its_neighbour_says_that_it_is_of_here() -> None:
    rows, _, _ = laid_out(Forest("", GROUPS))
    assert [row.words for row in rows] == ["small", "a", "here", "large", "b"]
    assert rows[2].numbers == "0.1, no interval"
    assert rows[2].at - rows[1].at < rows[1].at - rows[0].at
    alone = Effects("g", 0.1, (EffectRow("c", 0.2, 0.1, 0.3, hollow=True),))
    rows, _, _ = laid_out(Forest("", (alone,)))
    assert (rows[1].words, rows[1].high) == ("here, c", 1.0)


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


def test_hollow_rows_do_not_set_the_scale_and_are_cut_off() -> None:
    rows, bands, _ = laid_out(Forest("", (WIDE,)))
    assert bands[0].reach == 0.01 / 0.4
    assert (rows[1].low, rows[1].high, rows[1].cut) == (0.25, 1.0, (False, False))
    assert (rows[2].low, rows[2].high, rows[2].cut) == (-1.0, 1.0, (True, True))
    assert rows[2].middle == 0.3 / 0.4
    assert rows[2].numbers == "0.3 [-20, 21]"
    assert (rows[4].low, rows[4].middle, rows[4].high) == (-1.0, None, -1.0)
    assert rows[4].cut == (True, False)


def test_both_renderers_draw_arrows_where_something_is_cut_off() -> None:
    picture = Picture("effects", "", (Forest("", (WIDE,)),), 1)
    sizes = [trace["marker"]["size"] for trace in spec(picture)["data"]]
    assert sizes == [[0, 8, 0], [9, 8, 9], [0, 8, 0], [9, 0, 0]]
    assert "here, a<br>0.3 [-20, 21]" in spec(picture)["data"][1]["hovertemplate"]
    axis = draw(picture).axes[0]
    assert [line.get_marker() for line in axis.lines].count("<") == 2
    assert [line.get_marker() for line in axis.lines].count(">") == 1
    assert "0.3 [-20, 21]" in {text.get_text() for text in axis.texts}


def test_both_renderers_draw_all_intervals() -> None:
    assert len(spec(PICTURE)["data"]) == 3
    texts = [text.get_text() for text in draw(PICTURE).axes[0].texts]
    assert {"small", "large", "a", "b", "-30 [-50, -10]"} <= set(texts)


def test_the_line_of_zero_leaves_the_words_alone() -> None:
    rows, _, _ = laid_out(Forest("", GROUPS))
    words = [row.at - HEIGHT / 2 for row in rows if row.words]
    zeros = [(row.at - ZERO[0], row.at + ZERO[1]) for row in rows if row.effect is not None]
    assert all(abs(end - at) > 0.3 for at in words for end in sum(zeros, ()))
    assert not any(top < at < bottom for at in words for top, bottom in zeros)
    lines = [one for one in spec(PICTURE)["layout"]["shapes"] if one["type"] == "line"]
    assert [(one["y0"], one["y1"]) for one in lines] == zeros
    drawn = [np.asarray(line.get_xydata()) for line in draw(PICTURE).axes[0].lines]
    upright = [
        points[:, 1] for points in drawn if points.shape == (2, 2) and not points[:, 0].any()
    ]
    assert [tuple(ends.tolist()) for ends in upright] == zeros


def test_a_page_knows_how_narrow_it_may_become() -> None:
    assert spec(PICTURE)["layout"]["meta"]["least"] > 400
