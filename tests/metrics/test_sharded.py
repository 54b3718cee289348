"""Sharded moments in one process own all classes and have the metrics of ClassMoments."""

import pytest
import torch

import nclab
from nclab.metrics.sharded import sharded_metrics
from nclab.statistics import ShardedMoments
from tests.clouds import cloud

OF_LOSSES = {"accuracy", "loss", "balanced_loss", "excess_loss", "margin", "normalised_margin"}


@pytest.mark.parametrize("classes", [2, 6, 30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_process_alone(classes: int, dtype: torch.dtype) -> None:
    made = cloud(classes, 7, balanced=False)
    features = made.features.to(dtype)
    moments = ShardedMoments(classes, 7, scatter=True)
    moments.read(zip(features.split(10), made.labels.split(10), strict=True))
    one = nclab.measure_features(features, made.labels, weight=made.weight, second_pass=False)
    expected = {name: value for name, value in one.values.items() if value is not None}
    found = sharded_metrics(moments, made.weight)
    assert found == pytest.approx({name: expected[name] for name in found}, rel=1e-10, abs=1e-10)
    assert expected.keys() - found.keys() == OF_LOSSES


def test_coinciding_means_are_infinitely_close() -> None:
    rows, labels = [[1.0, 0.0], [1.0, 2.0], [1.0, 1.0], [4.0, 1.0]], [0, 0, 1, 2]
    moments = ShardedMoments(3, 2)
    moments.update(rows, labels)
    one = nclab.measure_features(rows, labels, second_pass=False)
    found = sharded_metrics(moments)
    assert found["cdnv"] == one.cdnv == float("inf")
    assert found == pytest.approx({name: one.values[name] for name in found}, abs=1e-12)


def test_bad_input_is_one_line() -> None:
    moments = ShardedMoments(4, 2)
    with pytest.raises(nclab.DataError, match="at least 2 classes, got 0"):
        sharded_metrics(moments)
    moments.update(torch.eye(2), [0, 1])
    with pytest.raises(nclab.DataError, match=r"weight of shape \(4, 2\), or the 4 rows"):
        sharded_metrics(moments, torch.eye(3))
    with pytest.raises(nclab.DataError, match=r"Expected labels in \[0, 4\)"):
        moments.update(torch.eye(2), [0, 4])
