"""Measurements with shuffled labels."""

import pytest
import torch

import nclab
from nclab.measurement.arrays import SHUFFLE_SEED
from tests.clouds import cloud

DATA = cloud(num_classes=5, dim=7, per_class=60)


def test_labels_of_arrays_are_shuffled_as_a_whole() -> None:
    order = DATA.labels.argsort()
    collapse = nclab.measure_features(
        DATA.features[order], DATA.labels[order], DATA.weight, metrics="all", shuffled_labels=True
    )
    shuffled = collapse.shuffled_labels
    assert shuffled is not None
    assert set(shuffled) == set(collapse.values)
    assert shuffled["nc1_trace_ratio"] == pytest.approx(59 * 5 / 4, rel=0.4)
    assert shuffled["nc4_ncc_accuracy"] is not None
    assert shuffled["nc4_ncc_accuracy"] < 0.5
    assert shuffled["accuracy"] == pytest.approx(0.2, abs=0.1)
    assert shuffled["beta"] is None, "of the weights alone"
    assert shuffled["cdnv"] > 10 * collapse.cdnv  # type: ignore[operator]
    assert collapse.shuffled_labels != collapse.values


def test_values_equal_a_measurement_of_permuted_labels() -> None:
    shuffled = nclab.measure_features(*DATA, shuffled_labels=True).shuffled_labels
    generator = torch.Generator().manual_seed(SHUFFLE_SEED)
    labels = DATA.labels[torch.randperm(len(DATA.labels), generator=generator)]
    expected = nclab.measure_features(DATA.features, labels, DATA.weight, DATA.bias)
    assert shuffled is not None
    for name in ("cdnv", "nc1_trace_pinv", "centred_mean_intra", "loss", "nc4_agreement"):
        assert shuffled[name] == expected.values[name], name


def test_batches_raise() -> None:
    batches = list(zip(DATA.features.split(60), DATA.labels.split(60), strict=True))
    with pytest.raises(nclab.DataError, match=r"Expected arrays .* for shuffled_labels"):
        nclab.measure_features(batches, shuffled_labels=True)


def test_ignored_rows_are_not_shuffled() -> None:
    labels = DATA.labels.clone()
    labels[:100] = -100
    collapse = nclab.measure_features(DATA.features, labels, shuffled_labels=True)
    assert collapse.shuffled_labels is not None
    assert collapse.shuffled_labels["nc1_trace_ratio"] is not None
    assert collapse.samples == 200


def test_wrong_labels_in_later_batches_raise() -> None:
    labels = DATA.labels.clone()
    labels[-1] = 9
    with pytest.raises(nclab.NclabError, match=r"labels in \[0, 5\), got 9"):
        nclab.measure_features(DATA.features, labels, DATA.weight, shuffled_labels=True)
