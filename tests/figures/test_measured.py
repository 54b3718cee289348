"""Pictures of measurements hold the numbers measured."""

from typing import Any

from nclab.figures.measured import layer_picture, layers_picture, mini_map
from nclab.figures.picture import HeatMap, Panel

ROW: dict[str, Any] = {
    "layer": "<fc>",
    "num_classes": 3,
    "classes": [0, 1, 4],
    "intra_cosine": [1.0, 0.9, 0.8],
    "nc3_alignment": [0.7, 0.6, 0.5],
    "class_loss": [0.1, 0.2, 0.3],
    "optimal_loss": 0.05,
    "inter_cosine": [[1.0, -0.5, -0.4], [-0.5, 0.9, -0.5], [-0.4, -0.5, 0.8]],
    "min_intra": 0.8,
    "max_inter": -0.4,
    "nc1_trace_pinv": 0.01,
    "nc2_equiangularity_means": 0.0,
    "nc4_ncc_accuracy": None,
}


def test_one_layer_shows_every_class() -> None:
    cosines, classes, loss = layer_picture(ROW).panels
    assert isinstance(cosines, HeatMap)
    assert cosines.x_names == ("0", "1", "4")
    assert isinstance(classes, Panel)
    assert [one.y for one in classes.series] == [[1.0, 0.9, 0.8], [0.7, 0.6, 0.5]]
    assert classes.series[0].x == [0, 1, 4]
    assert isinstance(loss, Panel)
    assert loss.references[0].y == 0.05


def test_layers_follow_each_other_and_logs_get_positive_numbers() -> None:
    rows = [ROW, {**ROW, "layer": "second", "min_intra": 0.9, "nc1_trace_pinv": 0.0}]
    cosines, nc1 = layers_picture(rows).panels
    assert isinstance(cosines, Panel)
    assert cosines.series[0].y == [0.8, 0.9]
    assert cosines.references[1].y == -0.5
    assert isinstance(nc1, Panel)
    assert nc1.series[0].y == [0.01, None]
    assert "1 = <fc>, 2 = second" in layers_picture(rows).caption


def test_the_small_map_has_a_cell_for_every_pair() -> None:
    drawn = mini_map(ROW)
    assert drawn.count("<rect") == 9
    assert "1, 4: -0.500" in drawn
    assert mini_map({**ROW, "inter_cosine": None}) == ""
    assert mini_map({**ROW, "inter_cosine": [[1.0] * 21] * 21}) == ""
