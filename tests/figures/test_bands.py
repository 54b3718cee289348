"""Bands of intervals in the pictures of a report, each around the line of its own data."""

import torch
from torch import nn

import nclab
from nclab.figures.picture import Panel

GENERATOR = torch.Generator().manual_seed(0)
Y = torch.arange(90) % 3
X = torch.randn(3, 4, generator=GENERATOR)[Y] + 0.5 * torch.randn(90, 4, generator=GENERATOR)
NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def test_lines_of_two_splits_have_bands_of_their_own() -> None:
    other = [(X[:60] + 0.3, Y[:60])]
    report = nclab.measure(NET, [(X, Y)], test=other, layers="all", intervals=True)
    assert report.test is not None
    parts = {"train": report.layers, "test": report.test.layers}
    banded = set()
    for panel in report._picture().panels:
        assert isinstance(panel, Panel)
        for line in panel.series:
            key, _, split = line.label.partition(", ")
            found = [(layer.intervals or {}).get(key) for layer in parts[split]]
            if not any(found):
                assert line.low is None
                continue
            banded.add((key, split))
            assert line.low is not None
            assert line.high is not None
            for place, interval in enumerate(found):
                assert interval is None or line.high[place] == interval.high
                low = None if interval is None else interval.low
                logarithm = panel.y_scale == "log" and (low or 0) <= 0
                assert line.low[place] == (line.y[place] if logarithm else low)
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
