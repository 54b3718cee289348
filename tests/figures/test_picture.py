"""Pictures are stored as JSON."""

import json

import numpy as np

from nclab.figures.picture import Panel, Picture, Series, from_json, to_json
from tests.figures.pictures import ALL


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
