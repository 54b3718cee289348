"""Pictures of a training: curves of layers and splits."""

import pytest

from nclab.errors import NclabError
from nclab.figures.history import history_picture
from nclab.figures.picture import Panel

ROWS = [
    {"epoch": epoch, "layer": layer, "split": split, "loss": 1.0 / epoch, "cdnv": epoch - 2.0}
    for epoch in (1, 2, 3)
    for layer in ("a", "b")
    for split in ("train", "test")
]


def test_a_curve_for_each_layer_and_split() -> None:
    loss, cdnv = history_picture(ROWS, ["loss", "cdnv"]).panels
    assert isinstance(loss, Panel)
    assert isinstance(cdnv, Panel)
    assert loss.y_scale == "log"
    assert cdnv.y_scale == "linear"  # it is not positive
    assert [line.label for line in loss.series] == ["a, train", "a, test", "b, train", "b, test"]
    assert [line.style for line in loss.series] == ["solid", "dashed", "solid", "dashed"]
    assert loss.series[0].x == [1, 2, 3]
    assert loss.series[0].y == [1.0, 0.5, 1.0 / 3]


def test_one_curve_needs_no_legend_and_gaps_are_left_out() -> None:
    rows = [{"epoch": 1, "layer": "a", "loss": 2.0}, {"epoch": 2, "layer": "a", "loss": None}]
    [panel] = history_picture(rows).panels
    assert isinstance(panel, Panel)
    assert [(line.label, line.x, line.y) for line in panel.series] == [("", [1], [2.0])]


@pytest.mark.parametrize(
    ("rows", "names", "words"),
    [
        (ROWS, ["nc1"], "got 'nc1'. Choose from cdnv, loss."),
        ([], [], "got a history without any. Measure first."),
    ],
)
def test_what_was_not_measured_is_said(
    rows: list[dict[str, object]], names: list[str], words: str
) -> None:
    with pytest.raises(NclabError, match="Expected a metric that was measured") as error:
        history_picture(rows, names)
    assert words in str(error.value)
