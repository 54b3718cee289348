"""A monitor keeps features for the 3-D picture where one asks for it, and none otherwise."""

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
    """The pictures of a watched training, measured over a loader at its end."""
    model = network()
    with nclab.Monitor(model, sinks=[RecordSink(folder)], class_names=NAMES, **options) as monitor:
        train(model, monitor)
        monitor.measure(batches())
        monitor.measure(batches(seed=3), split="test")
    return [one for one in read_run(folder).records if one["kind"] == "geometry"]


def test_every_measurement_of_training_has_one(tmp_path: Path) -> None:
    found = pictures(tmp_path / "run", points=12, preset="full")
    assert [(one["epoch"], one["layer"]) for one in found] == [(1.0, "5"), (2.0, "5"), (2.0, "5")]
    for one in found:
        assert one["labels"] == [0] * 4 + [1] * 4 + [2] * 4
        assert len(one["means"]) == len(one["weights"]) == len(one["etf"]) == CLASSES
    run = RunFollower(tmp_path / "run", root=tmp_path)
    run.refresh()
    (layer,) = run_data(run, slug="run")["geometry"]
    assert len(layer["frames"]) == 3
    assert layer["names"] == {"0": "cat", "1": "dog", "2": "fox"}


def test_none_are_kept_unless_asked_for(tmp_path: Path) -> None:
    assert pictures(tmp_path / "run") == []


def test_means_and_classifier_are_those_of_all_samples() -> None:
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
        whole = geometry(features, labels, model[-1].weight)
    for name in ("means", "weights", "etf"):  # the third axis is of the features that are seen
        apart = torch.tensor(picture[name]) - torch.tensor(whole[name])
        assert apart[:, :2].abs().max() < 2e-3
    assert picture["share"] == pytest.approx(whole["share"], abs=1e-3)


def test_training_is_the_same_with_pictures() -> None:
    watched, plain = network(), network()
    assert_same(
        train(watched, nclab.Monitor(watched, points=30, preset="full")), train(plain, None)
    )


def test_ignored_lost_and_surplus_classes_have_no_points() -> None:
    kept = PointSample(3)
    labels = torch.tensor([0, -1, 1, 5, 0, 2])
    kept.add(torch.arange(6.0)[:, None], labels, num_classes=6)
    assert kept.labels.tolist() == [0, 1, 2]
    assert kept.rows.flatten().tolist() == [4.0, 2.0, 5.0]
    kept.add(torch.tensor([[9.0]]), torch.tensor([1]), num_classes=6)
    assert kept.rows.flatten().tolist() == [4.0, 9.0, 5.0]


def test_features_that_are_not_finite_are_no_points() -> None:
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
def test_how_many_is_a_number(wrong: Any) -> None:
    with pytest.raises(nclab.NclabError, match="the number of features to keep"):
        nclab.Monitor(network(), points=wrong)
