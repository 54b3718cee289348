"""Pictures survive JSON, and what is no picture is refused."""

import json
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.figures.interactive import spec
from nclab.figures.picture import Panel, Picture, Series, from_json, to_json
from nclab.report.picture_csv import picture_csv
from tests.figures.pictures import ALL
from tests.report.damage import damaged


def test_a_picture_survives_json() -> None:
    text = json.dumps(to_json(ALL), allow_nan=False)
    again = from_json(json.loads(text))
    assert json.dumps(to_json(again), allow_nan=False) == text
    assert again.panels[1].x_ticks == ALL.panels[1].x_ticks  # type: ignore[union-attr]
    assert again.panel_size == ALL.panel_size
    assert again.panels[0].references == ALL.panels[0].references  # type: ignore[union-attr]


def test_arrays_become_plain_numbers_and_nothing_where_not_finite() -> None:
    series = Series("run", np.arange(2), np.array([np.nan, 1.5]))  # type: ignore[arg-type]
    content = to_json(Picture("p", "", (Panel("", "", "", (series,)),)))
    assert content["panels"][0]["series"][0]["y"] == [None, 1.5]


@pytest.mark.parametrize(
    "content", [{}, {"panels": [{"kind": "pie"}]}, {"panels": [], "name": "p", "panel_size": 3}]
)
def test_what_is_no_picture_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(NclabError, match="Make the figures anew"):
        from_json(content)


def test_what_is_read_can_be_drawn() -> None:
    content = json.loads(json.dumps(to_json(ALL)))
    refused = kept = 0
    for spoiled in islice(damaged(content), 0, None, 3):
        picture = None
        with suppress(NclabError):
            picture = from_json(spoiled)
        refused, kept = refused + (picture is None), kept + (picture is not None)
        if picture is not None:
            json.dumps([spec(picture), to_json(picture)], allow_nan=False)
            picture_csv(picture)
    assert refused > kept > 100
