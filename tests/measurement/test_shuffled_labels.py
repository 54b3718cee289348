"""Measurements with shuffled labels."""

import pytest
import torch

import nclab
from nclab.measurement.resampling import NOT_MIXED
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
    """Labels of batches are shuffled within each batch."""
    from nclab.measurement.resampling import shuffle_generator

    batches = list(zip(DATA.features.split(50), DATA.labels.split(50), strict=True))
    shuffled = nclab.measure_features(
        batches, weight=DATA.weight, bias=DATA.bias, shuffled_labels=True
    ).shuffled_labels
    rows_before, labels = 0, []
    for _, batch_labels in batches:
        labels.append(
            batch_labels[
                torch.randperm(len(batch_labels), generator=shuffle_generator(rows_before))
            ]
        )
        rows_before += len(batch_labels)
    expected = nclab.measure_features(DATA.features, torch.cat(labels), DATA.weight, DATA.bias)
    assert shuffled is not None
    for name in ("cdnv", "nc1_trace_pinv", "centred_mean_intra", "loss", "nc4_agreement"):
        assert shuffled[name] == pytest.approx(expected.values[name], rel=1e-9), name


def test_batches_of_one_class_give_a_warning_and_no_values() -> None:
    order = DATA.labels.argsort()
    batches = list(zip(DATA.features[order].split(60), DATA.labels[order].split(60), strict=True))
    collapse = nclab.measure_features(batches, shuffled_labels=True)
    assert collapse.shuffled_labels is None
    assert NOT_MIXED in collapse.warnings


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


@pytest.mark.parametrize(("samples", "classes"), [(24, 3), (24, 5), (60, 3), (66, 5)])
def test_a_mixed_array_always_has_values_for_shuffled_labels(samples: int, classes: int) -> None:
    features = torch.randn(samples, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(samples) % classes
    assert (
        nclab.measure_features(features, labels, shuffled_labels=True).shuffled_labels is not None
    )
    assert (
        nclab.measure_features([(features, labels)], shuffled_labels=True).shuffled_labels
        is not None
    )
