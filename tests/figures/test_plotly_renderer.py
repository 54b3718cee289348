"""plotly draws the numbers of a picture, and labels never become HTML."""

import json
from typing import Any

import pytest

from nclab.figures.picture import DARK, LIGHT, Picture
from nclab.figures.plotly_renderer import PLOTLY_CONFIG, plotly_figure, plotly_spec
from tests.figures.pictures import ALL, BAND, COSINES, POINTS, SLICE


def test_every_series_is_a_trace_with_its_numbers() -> None:
    figure = plotly_spec(ALL)
    named = {trace["name"]: trace for trace in figure["data"] if trace.get("name")}
    assert named["trained"]["y"] == [0.1, 0.2, None]
    assert named["trained"]["error_y"]["array"] == [pytest.approx(0.1), pytest.approx(0.1), None]
    assert named["trained"]["marker"]["symbol"] == "circle-open"
    assert named["line"]["line"]["dash"] == "dot"
    assert [trace["type"] for trace in figure["data"]].count("heatmap") == 2
    json.dumps(figure, allow_nan=False)


def test_a_band_fills_between_its_edges() -> None:
    low, high, middle, _ = plotly_spec(Picture("p", "", (BAND,)))["data"]
    assert (low["y"], high["y"], middle["y"][0]) == ([1.5, 0.8, 0.4], [2.5, 1.2, 0.6], 2.0)
    assert high["fill"] == "tonexty"


def test_axes_have_their_scales_and_references_their_positions() -> None:
    layout = plotly_spec(Picture("p", "", (BAND, POINTS)))["layout"]
    assert layout["yaxis"]["type"] == "log"
    assert layout["shapes"][0]["y0"] == 0.7
    assert layout["xaxis2"]["tickvals"] == list(POINTS.x_ticks)
    assert layout["yaxis2"]["range"] == [0.0, 0.5]


def test_text_never_becomes_html() -> None:
    text = json.dumps(plotly_spec(ALL))
    assert "<b>" not in text
    assert "&lt;b&gt;odd" in text


def test_a_diverging_map_changes_colour_at_its_centre() -> None:
    trace = plotly_spec(Picture("p", "", (SLICE,)))["data"][0]
    middle = [stop for stop, colour in trace["colorscale"] if colour == LIGHT.diverging[2][1]]
    assert middle == [pytest.approx(0.1 / 1.1)]
    assert plotly_spec(Picture("p", "", (COSINES,)))["data"][0]["zmin"] == -1.0


def test_a_continuous_map_has_a_line_at_its_centre() -> None:
    shade, level = plotly_spec(Picture("p", "", (SLICE,)))["data"]
    assert (level["type"], level["z"]) == ("contour", shade["z"])
    assert level["contours"]["start"] == level["contours"]["end"] == SLICE.centre
    assert len(plotly_spec(Picture("p", "", (COSINES,)))["data"]) == 1
    assert len(plotly_spec(Picture("p", "", (SLICE._replace(centre=None),)))["data"]) == 1


def test_html_in_tick_labels_is_escaped() -> None:
    named = BAND._replace(x_ticks=(1.0,), x_names=("<b>\ntwo",))
    axis = plotly_spec(Picture("p", "", (named,)))["layout"]["xaxis"]
    assert axis["ticktext"] == ["&lt;b&gt;<br>two"]


def test_panels_with_different_labels_have_separate_legends() -> None:
    other = BAND._replace(series=(BAND.series[0]._replace(label="other"),))
    figure = plotly_spec(Picture("p", "", (BAND, other)))
    assert {trace["legend"] for trace in figure["data"]} == {"legend", "legend2"}
    legends = [figure["layout"][name] for name in ("legend", "legend2")]
    assert [legend["orientation"] for legend in legends] == ["v", "v"]  # so that none overlap
    shared = plotly_spec(Picture("p", "", (BAND, BAND)))["layout"]
    assert shared["legend"]["orientation"] == "h"


def test_long_legends_enlarge_the_bottom_margin() -> None:
    line = BAND.series[0]
    many = BAND._replace(series=tuple(line._replace(label=f"line {n}") for n in range(6)))
    layout = plotly_spec(Picture("p", "", (BAND, many)))["layout"]
    few = plotly_spec(Picture("p", "", (BAND, many._replace(series=many.series[:1]))))["layout"]
    below = layout["margin"]["b"] - few["margin"]["b"]
    assert below > 60
    assert layout["height"] - few["height"] == below


def test_plotly_accepts_the_figure_in_light_and_dark() -> None:
    for dark, colours in ((False, LIGHT), (True, DARK)):
        drawn: Any = plotly_figure(ALL, dark)
        assert drawn.layout.paper_bgcolor == colours.background
    assert PLOTLY_CONFIG["plotlyServerURL"] == ""
