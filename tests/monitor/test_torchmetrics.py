"""Tests that the torchmetrics Metric agrees with measure_features for any batches."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nclab
from tests.monitor.pair import run_pair
from tests.monitor.two_metrics import CLASSES, DIM, cloud, parts

torchmetrics = pytest.importorskip("torchmetrics", reason="needs the extra torchmetrics")

from nclab.monitor.torchmetrics import NeuralCollapse  # noqa: E402


def updated(metric: Any, *batches: tuple[Tensor, Tensor]) -> Any:
    """Return a metric after its updates."""
    for features, labels in batches:
        metric.update(features, labels)
    return metric


def assert_close(ours: dict[str, Any], expected: nclab.Collapse, *, prefix: str = "") -> None:
    """Assert that all values agree with measure_features to 1e-10."""
    assert len(ours) == 11
    for name, value in ours.items():
        target = getattr(expected, name.removeprefix(prefix))
        assert math.isclose(float(value), target, rel_tol=1e-10, abs_tol=1e-10), name


def test_batches_agree_with_one_measurement() -> None:
    features, labels = cloud()
    metric = updated(
        NeuralCollapse(CLASSES, DIM), *zip(features.split(7), labels.split(7), strict=True)
    )
    values = metric.compute()
    assert_close(values, nclab.measure_features(features, labels))
    assert {value.dtype for value in values.values()} == {torch.float64}


def test_forward_gives_the_batch_and_adds_it() -> None:
    features, labels = cloud()
    metric = NeuralCollapse(CLASSES, DIM)
    for rows, classes in zip(features.split(30), labels.split(30), strict=True):
        assert_close(metric(rows, classes), nclab.measure_features(rows, classes))
    assert_close(metric.compute(), nclab.measure_features(features, labels))


def test_reset_clone_pickle_and_merge() -> None:
    first, second = parts()
    metric = updated(NeuralCollapse(CLASSES, DIM), first)
    copies = [metric.clone(), pickle.loads(pickle.dumps(metric))]
    metric.reset()
    assert int(metric.layout.moments(metric.sums).total) == 0
    updated(metric, second)
    expected = nclab.measure_features(*cloud())
    for copy in copies:
        copy.merge_state(metric)
        assert_close(copy.compute(), expected)


def test_a_state_dict_carries_the_sums() -> None:
    first, second = parts()
    metric = updated(NeuralCollapse(CLASSES, DIM), first)
    metric.persistent(True)
    other = NeuralCollapse(CLASSES, DIM)
    other.load_state_dict(metric.state_dict())
    assert_close(updated(other, second).compute(), nclab.measure_features(*cloud()))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: model.to(torch.float32),
        lambda model: model.to("cpu", torch.bfloat16),
        lambda model: model[0].set_dtype(torch.float16) and model,
    ],
    ids=["half", "to float32", "to bfloat16", "set_dtype"],
)
def test_float64_is_kept_when_the_model_changes_dtype(change: Any) -> None:
    first, second = parts()
    metric = updated(NeuralCollapse(CLASSES, DIM), first)
    metric.compute()  # the cached value must not be rounded
    change(nn.Sequential(metric, nn.Linear(2, 2)))
    assert metric.sums.dtype == torch.float64
    assert_close(updated(metric, second).compute(), nclab.measure_features(*cloud()))
    metric.reset()
    assert metric.sums.dtype == torch.float64


def test_a_spread_of_eight_digits_is_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % CLASSES
    noise = torch.randn(60, DIM, generator=generator, dtype=torch.float64)
    features = 1e4 * torch.eye(DIM, dtype=torch.float64)[labels] + 1e-4 * noise
    metric = NeuralCollapse(CLASSES, DIM).to(torch.float32)
    for rows, classes in zip(features.split(20), labels.split(20), strict=True):
        metric(rows, classes)
    expected = nclab.measure_features(features, labels).nc1_trace_ratio
    assert expected is not None
    assert 0 < expected < 1e-14
    assert float(metric.compute()["nc1_trace_ratio"]) == pytest.approx(expected, rel=1e-6)


def test_a_collection_names_layers() -> None:
    features, labels = cloud()
    collection = torchmetrics.MetricCollection(
        {
            "first": NeuralCollapse(CLASSES, DIM, layer="first"),
            "last": NeuralCollapse(CLASSES, DIM, layer="last"),
        }
    )
    for rows, classes in zip(features.split(30), labels.split(30), strict=True):
        collection.update(rows, classes)
    values = collection.compute()
    expected = nclab.measure_features(features, labels)
    for layer in ("first", "last"):
        prefix = f"nc/{layer}/"
        named = {name: value for name, value in values.items() if name.startswith(prefix)}
        assert_close(named, expected, prefix=prefix)


def test_absent_classes_are_skipped_and_one_class_gives_nan() -> None:
    features, labels = cloud()
    metric = NeuralCollapse(CLASSES, DIM)
    only = labels == 1
    assert all(value.isnan() for value in metric(features[only], labels[only]).values())
    two = metric(features[labels != 0], labels[labels != 0])
    expected = nclab.measure_features(
        features[labels != 0], labels[labels != 0], num_classes=CLASSES, min_count=1
    )
    assert_close(two, expected)


def test_ignored_rows_are_skipped_and_wrong_labels_raise() -> None:
    features, labels = cloud()
    marked = labels.clone()
    marked[::5] = -100
    metric = updated(NeuralCollapse(CLASSES, DIM), (features, marked))
    kept = marked >= 0
    assert_close(metric.compute(), nclab.measure_features(features[kept], labels[kept]))
    with pytest.raises(nclab.DataError, match=r"got 7\. Pass num_classes=8"):
        metric.update(features, labels + 5)
    with pytest.raises(nclab.DataError, match="at least 2 classes"):
        NeuralCollapse(1, DIM)


def test_updates_continue_after_inference_mode() -> None:
    first, second = parts()
    metric = NeuralCollapse(CLASSES, DIM)
    with torch.inference_mode():
        metric.reset()
        updated(metric, first)
    assert_close(updated(metric, second).compute(), nclab.measure_features(*cloud()))


def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    expected = nclab.measure_features(*cloud())
    printed = run_pair("tests.monitor.two_metrics", tmp_path / "meeting")
    for result, (features, labels) in zip(printed, parts(), strict=True):
        assert_close(result["together"], expected)
        alone = nclab.measure_features(features, labels, num_classes=CLASSES, min_count=1)
        assert_close(result["alone"], alone)
