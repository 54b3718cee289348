"""Tests of the features that a monitor keeps for the 3-D picture."""

from pathlib import Path
from typing import Any

import pytest
import torch

import nclab
from nclab.measurement.geometry import PointSample, geometry
from nclab.monitor import RecordSink
from nclab.records import read_run
from nclab.report.run_data import run_data
from nclab.report.run_follower import RunFollower
from tests.monitor.loops import CLASSES, assert_same, batches, network, train

NAMES = ("cat", "dog", "fox")


def pictures(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the pictures of a training and of a final measurement of a loader."""
    model = network()
    with nclab.Monitor(model, sinks=[RecordSink(folder)], class_names=NAMES, **options) as monitor:
        train(model, monitor)
        monitor.measure(batches())
        monitor.measure(batches(seed=3), split="test")
    return [record for record in read_run(folder).records if record["kind"] == "geometry"]


def test_every_measurement_of_training_has_a_picture(tmp_path: Path) -> None:
    records = pictures(tmp_path / "run", points=12, preset="full")
    assert [(record["epoch"], record["layer"]) for record in records] == [
        (1.0, "5"),
        (2.0, "5"),
        (2.0, "5"),
    ]
    for record in records:
        assert record["labels"] == [0] * 4 + [1] * 4 + [2] * 4
        assert len(record["means"]) == len(record["weights"]) == len(record["etf"]) == CLASSES
    run = RunFollower(tmp_path / "run", root=tmp_path)
    run.refresh()
    (layer,) = run_data(run, slug="run")["geometry"]
    assert len(layer["frames"]) == 3
    assert layer["names"] == {"0": "cat", "1": "dog", "2": "fox"}


def test_no_features_are_kept_by_default(tmp_path: Path) -> None:
    assert pictures(tmp_path / "run") == []


def test_means_and_classifier_use_all_samples() -> None:
    model = network()
    monitor = nclab.Monitor(model, points=6)
    monitor.measure(batches())
    assert monitor.last is not None
    picture = monitor.last.picture
    assert picture is not None
    model.eval()
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    with torch.no_grad():
        features = model[:-1](inputs)
        expected = geometry(features, labels, model[-1].weight)
    for name in ("means", "weights", "etf"):  # the third axis is fitted to the kept features
        apart = torch.tensor(picture[name]) - torch.tensor(expected[name])
        assert apart[:, :2].abs().max() < 2e-3
    assert picture["share"] == pytest.approx(expected["share"], abs=1e-3)


def test_training_is_unchanged_by_pictures() -> None:
    watched, plain = network(), network()
    assert_same(
        train(watched, nclab.Monitor(watched, points=30, preset="full")), train(plain, None)
    )


def test_ignored_and_missing_classes_have_no_points() -> None:
    kept = PointSample(3)
    labels = torch.tensor([0, -1, 1, 5, 0, 2])
    kept.add(torch.arange(6.0)[:, None], labels, num_classes=6)
    assert kept.labels.tolist() == [0, 1, 2]
    assert kept.rows.flatten().tolist() == [4.0, 2.0, 5.0]
    kept.add(torch.tensor([[9.0]]), torch.tensor([1]), num_classes=6)
    assert kept.rows.flatten().tolist() == [4.0, 9.0, 5.0]


def test_features_that_are_not_finite_have_no_points() -> None:
    model = network()
    monitor = nclab.Monitor(model, points=30)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    for x, y in monitor.watch(batches()):
        model(x)
        assert len(y)
    assert monitor.last is not None
    assert monitor.last.picture is None


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "all"])
def test_points_must_be_a_count(wrong: Any) -> None:
    with pytest.raises(nclab.NclabError, match="the number of features to keep"):
        nclab.Monitor(network(), points=wrong)
