"""Warnings about numbers that contradict each other or the data."""

import pytest
import torch
from torch import Tensor

import nclab
from nclab.metrics import simplex_etf


def separated(
    num_classes: int = 10, dim: int = 30, per_class: int = 40
) -> tuple[Tensor, Tensor, Tensor]:
    """Features around a simplex ETF, labels, and the classifier that reads them."""
    generator = torch.Generator().manual_seed(0)
    etf = simplex_etf(num_classes, dim, generator=generator)
    labels = torch.arange(num_classes * per_class) % num_classes
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return etf[labels] + 0.05 * noise, labels, 20 * etf


def warns(collapse: nclab.Collapse, words: str) -> bool:
    """Whether one of the warnings contains these words."""
    return any(words in warning for warning in collapse.warnings)


def test_good_data_are_not_accused() -> None:
    features, labels, weight = separated()
    assert nclab.measure_features(features, labels, weight).warnings == ()


def test_noise_in_many_dimensions_is_named_with_its_level() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(40, 2000, generator=generator), torch.arange(40) % 10
    collapse = nclab.measure_features(rows, labels)
    assert collapse.nc1_trace_pinv == pytest.approx(0.013, abs=0.002)
    assert warns(collapse, "pure noise would score nc1_trace_pinv 0.01357")
    assert warns(collapse, "nc4_ncc_accuracy 1.00")
    assert "No class structure" in collapse.verdict
    etf = simplex_etf(10, 2000, generator=generator)
    collapsed = nclab.measure_features(etf[labels] + 1e-4 * rows / 45, labels)
    assert not warns(collapsed, "pure noise")


@pytest.mark.parametrize("wrong", ["labels off by one", "rows of W permuted"])
def test_a_classifier_of_other_labels_is_noticed(wrong: str) -> None:
    features, labels, weight = separated()
    if wrong == "rows of W permuted":
        weight = weight.roll(1, 0)
    else:
        labels = (labels + 1) % 10
    collapse = nclab.measure_features(features, labels, weight)
    assert collapse.accuracy == 0.0
    assert warns(collapse, "right on 0.0% of the samples, the nearest class mean on 100.0%")


def test_an_accuracy_at_chance_is_named() -> None:
    features, labels, weight = separated()
    generator = torch.Generator().manual_seed(1)
    shuffled = labels[torch.randperm(len(labels), generator=generator)]
    collapse = nclab.measure_features(features, shuffled, weight)
    assert warns(collapse, "is that of random guessing, 0.1")


def test_always_naming_the_largest_class_is_named() -> None:
    features, labels, weight = separated()
    keep = (labels == 0) | (torch.arange(len(labels)) < 100)
    bias = torch.zeros(10, dtype=torch.float64)
    bias[0] = 1e4
    collapse = nclab.measure_features(features[keep], labels[keep], weight, bias)
    assert warns(collapse, "no better than always predicting the largest class")


def test_outputs_instead_of_features_are_noticed() -> None:
    features, labels, weight = separated()
    logits = features @ weight.T
    assert warns(nclab.measure_features(logits, labels), "look like logits")
    assert warns(nclab.measure_features(logits.softmax(1), labels), "look like softmax outputs")


def test_imbalance_beside_balanced_ideals_is_named() -> None:
    features, labels, weight = separated(num_classes=3, per_class=300)
    keep = (labels != 2) | (torch.arange(len(labels)) < 9)
    collapse = nclab.measure_features(features[keep], labels[keep], weight)
    assert warns(collapse, "The largest class has 100 times the samples of the smallest")


def test_ideals_that_relu_features_cannot_reach_are_named() -> None:
    """Exactly collapsed, after a ReLU: orthogonal means on a common offset."""
    means = torch.eye(10, 12, dtype=torch.float64) + 0.8
    labels = torch.arange(200) % 10
    collapse = nclab.measure_features(means[labels], labels)
    assert collapse.max_inter == pytest.approx(0.9, abs=0.1)
    assert collapse.non_negative
    assert warns(collapse, "cannot reach -0.1111")
    assert warns(collapse, "after centring, max_inter is -0.1111")
    row = next(line for line in str(collapse).splitlines() if " max_inter " in line)
    assert "≥ 0" in row
    assert "-0.1111" not in row
    assert collapse._picture().panels[0].title == "cosines between classes, centred"


def test_layers_of_relu_features_show_centred_cosines() -> None:
    torch.manual_seed(0)
    parts = [torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts, torch.nn.Linear(16, 4))
    loader = [(torch.randn(200, 6), torch.arange(200) % 4)]
    report = nclab.measure(net, loader, layers="all")
    assert report.last.non_negative
    assert str(report).count("centred") >= 2, "two columns"
    assert report._picture().panels[0].series[0].label == "centred_min_intra"  # type: ignore[union-attr]
