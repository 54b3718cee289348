"""Where the rows of a forest plot lie."""

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


def test_what_stands_beside_its_neighbour_has_no_words() -> None:
    rows, _, _ = laid_out(Forest("", GROUPS))
    assert [row.words for row in rows] == ["small", "a", "", "large", "b"]
    assert rows[2].at - rows[1].at < rows[1].at - rows[0].at


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
    drawn = [line for line in draw(PICTURE).axes[0].lines if list(line.get_xdata()) == [0, 0]]
    assert [tuple(line.get_ydata()) for line in drawn] == zeros
