"""Pictures are stored as JSON, and damaged ones raise an error."""

import json
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Series, from_json, to_json
from nclab.figures.plotly_renderer import plotly_spec
from nclab.report.site import picture_csv
from tests.figures.pictures import ALL
from tests.report.damage import damaged


def test_a_picture_read_from_json_is_the_same() -> None:
    text = json.dumps(to_json(ALL), allow_nan=False)
    again = from_json(json.loads(text))
    assert json.dumps(to_json(again), allow_nan=False) == text
    assert again.panels[1].x_ticks == ALL.panels[1].x_ticks  # type: ignore[union-attr]
    assert again.panel_size == ALL.panel_size
    assert again.panels[0].references == ALL.panels[0].references  # type: ignore[union-attr]


def test_arrays_become_plain_numbers_and_nan_becomes_none() -> None:
    series = Series("run", np.arange(2), np.array([np.nan, 1.5]))  # type: ignore[arg-type]
    content = to_json(Picture("p", "", (Panel("", "", "", (series,)),)))
    assert content["panels"][0]["series"][0]["y"] == [None, 1.5]


@pytest.mark.parametrize(
    "content", [{}, {"panels": [{"kind": "pie"}]}, {"panels": [], "name": "p", "panel_size": 3}]
)
def test_damaged_content_raises(content: dict[str, object]) -> None:
    with pytest.raises(NclabError, match="Draw the figures again"):
        from_json(content)


def test_every_picture_that_can_be_read_can_be_drawn() -> None:
    content = json.loads(json.dumps(to_json(ALL)))
    rejected = accepted = 0
    for spoiled in islice(damaged(content), 0, None, 3):
        picture = None
        with suppress(NclabError):
            picture = from_json(spoiled)
        rejected += picture is None
        accepted += picture is not None
        if picture is not None:
            json.dumps([plotly_spec(picture), to_json(picture)], allow_nan=False)
            picture_csv(picture)
    assert rejected > accepted > 100
