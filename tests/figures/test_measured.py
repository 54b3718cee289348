"""Pictures of measurements hold the measured numbers, with their intervals as bands."""

from typing import Any

import pytest
import torch
from torch import nn

import nclab
from nclab.errors import NclabError
from nclab.figures.measured import history_picture, layer_picture, layers_picture
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
    assert [line.y for line in classes.series] == [[1.0, 0.9, 0.8], [0.7, 0.6, 0.5]]
    assert classes.series[0].x == [0, 1, 4]
    assert isinstance(loss, Panel)
    assert loss.references[0].y == 0.05


def test_layers_keep_their_order_and_log_axes_get_positive_numbers() -> None:
    rows = [ROW, {**ROW, "layer": "second", "min_intra": 0.9, "nc1_trace_pinv": 0.0}]
    cosines, nc1 = layers_picture(rows).panels
    assert isinstance(cosines, Panel)
    assert cosines.series[0].y == [0.8, 0.9]
    assert cosines.references[1].y == -0.5
    assert isinstance(nc1, Panel)
    assert nc1.series[0].y == [0.01, None]
    assert "1 = <fc>, 2 = second" in layers_picture(rows).caption


GENERATOR = torch.Generator().manual_seed(0)
Y = torch.arange(90) % 3
X = torch.randn(3, 4, generator=GENERATOR)[Y] + 0.5 * torch.randn(90, 4, generator=GENERATOR)
NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def test_each_split_has_its_own_bands() -> None:
    other = [(X[:60] + 0.3, Y[:60])]
    report = nclab.measure(NET, [(X, Y)], test=other, layers="all", intervals=True)
    assert report.test is not None
    parts = {"train": report.layers, "test": report.test.layers}
    banded = set()
    for panel in report._picture().panels:
        assert isinstance(panel, Panel)
        for line in panel.series:
            key, _, split = line.label.partition(", ")
            intervals = [(layer.intervals or {}).get(key) for layer in parts[split]]
            if not any(intervals):
                assert line.low is None
                continue
            banded.add((key, split))
            assert line.low is not None
            assert line.high is not None
            for index, interval in enumerate(intervals):
                assert interval is None or line.high[index] == interval.high
                low = None if interval is None else interval.low
                logarithm = panel.y_scale == "log" and (low or 0) <= 0
                assert line.low[index] == (line.y[index] if logarithm else low)
    assert {("cdnv", "train"), ("cdnv", "test"), ("nc4_ncc_accuracy", "test")} <= banded


def test_non_negative_features_show_centred_cosines_of_both_splits() -> None:
    report = nclab.measure(NET, [(X, Y)], test=[(X + 0.1, Y)], layers="all")
    panel = report._picture().panels[0]
    assert isinstance(panel, Panel)
    assert [line.label for line in panel.series] == [
        f"centred_{key}, {split}"
        for split in ("train", "test")
        for key in ("min_intra", "max_inter")
    ]


HISTORY = [
    {"epoch": epoch, "layer": layer, "split": split, "loss": 1.0 / epoch, "cdnv": epoch - 2.0}
    for epoch in (1, 2, 3)
    for layer in ("a", "b")
    for split in ("train", "test")
]


def test_every_split_is_drawn_and_differs_from_the_others() -> None:
    splits = ("train", "val", "test", "shifted", "noisy")
    rows = [{**ROW, "split": split, "epoch": 1.0} for split in splits]
    [loss] = history_picture(rows, ["min_intra"]).panels
    cosines = layers_picture(rows).panels[0]
    for panel, count in ((loss, 5), (cosines, 10)):
        assert isinstance(panel, Panel)
        assert len({line.label for line in panel.series}) == count
        assert len({(line.colour, line.style) for line in panel.series}) == count


def test_a_history_has_a_curve_for_each_layer_and_split() -> None:
    loss, cdnv = history_picture(HISTORY, ["loss", "cdnv"]).panels
    assert isinstance(loss, Panel)
    assert isinstance(cdnv, Panel)
    assert loss.y_scale == "log"
    assert cdnv.y_scale == "linear"  # some values are negative
    assert [line.label for line in loss.series] == ["a, train", "a, test", "b, train", "b, test"]
    assert [line.style for line in loss.series] == ["solid", "dashed", "solid", "dashed"]
    assert loss.series[0].x == [1, 2, 3]
    assert loss.series[0].y == [1.0, 0.5, 1.0 / 3]


def test_a_single_curve_has_no_label_and_skips_missing_values() -> None:
    rows = [{"epoch": 1, "layer": "a", "loss": 2.0}, {"epoch": 2, "layer": "a", "loss": None}]
    [panel] = history_picture(rows).panels
    assert isinstance(panel, Panel)
    assert [(line.label, line.x, line.y) for line in panel.series] == [("", [1], [2.0])]


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        (HISTORY, ["nc1"], "got 'nc1'. Choose from cdnv, loss."),
        ([], [], "got a history without any. Measure first."),
    ],
)
def test_a_metric_that_was_not_measured_raises(
    rows: list[dict[str, object]], names: list[str], message: str
) -> None:
    with pytest.raises(NclabError, match="Expected a metric that was measured") as error:
        history_picture(rows, names)
    assert message in str(error.value)
