"""Figures 1.1, 2.1 and 3.2: the network has all its edges, the points are in their cones."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nclab.figures.matplotlib_renderer import draw
from nclab.figures.picture import Panel, from_json, to_json
from nclab.figures.plotly_renderer import plotly_spec
from nclab_papers.pan2023 import drawings


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return drawings.run(drawings.Config(), seeds=(0,), out=Path("unused"))


def test_every_weight_is_an_edge_and_every_entry_a_node(numbers: dict[str, Any]) -> None:
    widths = numbers["widths"]
    assert widths == [3, 5, 5, 5, 4]
    weights = sum(a * b for a, b in pairwise(widths))
    whole, peeled, _ = drawings.pictures(numbers)
    for picture in (whole, peeled):
        (panel,) = picture.panels
        assert isinstance(panel, Panel)
        lines = [one for one in panel.series if one.style != "none" and one.low is None]
        assert sum(list(one.x).count(None) for one in lines) == weights
        nodes = [one for one in panel.series if one.marker == "filled"]
        assert sum(len(one.x) for one in nodes) == sum(widths)
    (panel,) = peeled.panels
    assert isinstance(panel, Panel)
    box, kept = panel.series[0], panel.series[-1]
    assert max(x for x in box.x if x is not None) < min(x for x in kept.x if x is not None)


def test_points_lie_between_the_rays_of_their_class(numbers: dict[str, Any]) -> None:
    angles = drawings.Config().angles
    for (x, y), label in zip(numbers["points"], numbers["labels"], strict=True):
        turn = math.degrees(math.atan2(y, x)) % 360
        expected = (sum(turn > angle for angle in angles) - 1) % len(angles)
        assert label == expected


def test_drawings_have_no_axes_in_either_renderer(numbers: dict[str, Any]) -> None:
    for picture in drawings.pictures(numbers):
        assert from_json(to_json(picture)).panels[0].title == ""
        (axis,) = draw(picture).axes
        assert axis.get_aspect() == 1.0
        assert not len(axis.get_yticks())
        assert not any(spine.get_visible() for spine in axis.spines.values())
        layout = plotly_spec(picture)["layout"]
        assert layout["yaxis"]["showticklabels"] is False
        assert layout["yaxis"]["scaleanchor"] == "x"
    grey = [
        trace for trace in plotly_spec(drawings.pictures(numbers)[1])["data"] if "fill" in trace
    ]
    assert [(trace["name"], trace["showlegend"]) for trace in grey] == [("peeled off", True)]


def test_the_table_counts_what_is_drawn(numbers: dict[str, Any]) -> None:
    (table,) = drawings.tables(numbers)
    assert sum(int(points) for _, points in table.rows) == drawings.Config().samples
