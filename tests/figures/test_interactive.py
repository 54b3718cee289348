"""plotly gets the same numbers, and text stays text."""

import json
from typing import Any

import pytest

from nclab.figures.interactive import CONFIG, figure, spec
from nclab.figures.palette import DARK, LIGHT
from nclab.figures.picture import Picture
from tests.figures.pictures import ALL, BAND, COSINES, POINTS, SLICE


def test_every_series_is_a_trace_with_its_numbers() -> None:
    drawn = spec(ALL)
    named = {trace["name"]: trace for trace in drawn["data"] if trace.get("name")}
    assert named["trained"]["y"] == [0.1, 0.2, None]
    assert named["trained"]["error_y"]["array"] == [pytest.approx(0.1), pytest.approx(0.1), None]
    assert named["trained"]["marker"]["symbol"] == "circle-open"
    assert named["line"]["line"]["dash"] == "dot"
    assert [trace["type"] for trace in drawn["data"]].count("heatmap") == 2
    json.dumps(drawn, allow_nan=False)


def test_a_band_fills_between_its_edges() -> None:
    low, high, middle, _ = spec(Picture("p", "", (BAND,)))["data"]
    assert (low["y"], high["y"], middle["y"][0]) == ([1.5, 0.8, 0.4], [2.5, 1.2, 0.6], 2.0)
    assert high["fill"] == "tonexty"


def test_axes_have_their_scales_and_references_their_places() -> None:
    layout = spec(Picture("p", "", (BAND, POINTS)))["layout"]
    assert layout["yaxis"]["type"] == "log"
    assert layout["shapes"][0]["y0"] == 0.7
    assert layout["xaxis2"]["tickvals"] == list(POINTS.x_ticks)
    assert layout["yaxis2"]["range"] == [0.0, 0.5]


def test_text_never_becomes_html() -> None:
    text = json.dumps(spec(ALL))
    assert "<b>" not in text
    assert "&lt;b&gt;odd" in text


def test_a_diverging_map_parts_at_its_centre() -> None:
    trace = spec(Picture("p", "", (SLICE,)))["data"][0]
    middle = [place for place, colour in trace["colorscale"] if colour == LIGHT.diverging[2][1]]
    assert middle == [pytest.approx(0.1 / 1.1)]
    assert spec(Picture("p", "", (COSINES,)))["data"][0]["zmin"] == -1.0


def test_a_continuous_map_has_a_line_at_its_centre() -> None:
    shade, level = spec(Picture("p", "", (SLICE,)))["data"]
    assert (level["type"], level["z"]) == ("contour", shade["z"])
    assert level["contours"]["start"] == level["contours"]["end"] == SLICE.centre
    assert len(spec(Picture("p", "", (COSINES,)))["data"]) == 1
    assert len(spec(Picture("p", "", (SLICE._replace(centre=None),)))["data"]) == 1


def test_names_of_ticks_stay_text() -> None:
    named = BAND._replace(x_ticks=(1.0,), x_names=("<b>\ntwo",))
    axis = spec(Picture("p", "", (named,)))["layout"]["xaxis"]
    assert axis["ticktext"] == ["&lt;b&gt;<br>two"]


def test_panels_with_their_own_words_have_their_own_legends() -> None:
    other = BAND._replace(series=(BAND.series[0]._replace(label="other"),))
    drawn = spec(Picture("p", "", (BAND, other)))
    assert {trace["legend"] for trace in drawn["data"]} == {"legend", "legend2"}
    legends = [drawn["layout"][name] for name in ("legend", "legend2")]
    assert [one["orientation"] for one in legends] == ["v", "v"]  # none runs into the next
    shared = spec(Picture("p", "", (BAND, BAND)))["layout"]
    assert shared["legend"]["orientation"] == "h"


def test_legends_of_many_lines_have_room_below() -> None:
    one = BAND.series[0]
    many = BAND._replace(series=tuple(one._replace(label=f"line {n}") for n in range(6)))
    layout = spec(Picture("p", "", (BAND, many)))["layout"]
    few = spec(Picture("p", "", (BAND, many._replace(series=many.series[:1]))))["layout"]
    below = layout["margin"]["b"] - few["margin"]["b"]
    assert below > 60
    assert layout["height"] - few["height"] == below


def test_plotly_accepts_it_in_light_and_dark() -> None:
    for dark, paper in ((False, LIGHT), (True, DARK)):
        made: Any = figure(ALL, dark)
        assert made.layout.paper_bgcolor == paper.background
    assert CONFIG["plotlyServerURL"] == ""
