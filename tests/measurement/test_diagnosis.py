"""Diagnosis of a measurement: the verdict, scores of pure noise, and warnings."""

import pytest
import torch
from torch import Tensor

import nclab
from nclab.measurement.diagnosis import (
    noise_nc1_trace_pinv,
    noise_nc1_trace_ratio,
    noise_ncc_accuracy,
)
from nclab.metrics import simplex_etf
from tests.clouds import cloud


def test_the_verdict_of_a_collapsed_network() -> None:
    etf = simplex_etf(4, 6)
    labels = torch.arange(80) % 4
    verdict = nclab.measure_features(etf[labels], labels, weight=9 * etf).verdict
    assert verdict.startswith("Collapsed: the spread within classes is 0 times the spread between")
    assert "(0 = collapsed; random labels would give 25.33)." in verdict
    assert "The class means form a simplex ETF: their cosines differ" in verdict
    assert "The classifier is aligned with the class means" in verdict


def test_the_verdict_lists_merged_zero_and_unlearnt_classes() -> None:
    etf = simplex_etf(5, 8)
    etf[1] = etf[0] + 0.01
    etf[3] = 0.0
    labels = torch.arange(100) % 5
    weight = 5 * etf
    weight[4] = -weight[4]
    verdict = nclab.measure_features(etf[labels], labels, weight).verdict
    assert "Classes 0 and 1 merge (centred cosine" in verdict
    assert "All features are zero in class 3." in verdict
    assert "The loss is no better than guessing in classes 3, 4." in verdict


def test_the_verdict_uses_class_names() -> None:
    etf = simplex_etf(5, 8)
    etf[1] = etf[0] + 0.01
    etf[3] = 0.0
    labels = torch.arange(100) % 5
    kept = labels != 2  # the places of the others move
    measured = nclab.measure_features(
        etf[labels][kept], labels[kept], 5 * etf, class_names=list("abcde"), min_count=1
    )
    assert "Classes a and b merge (centred cosine" in measured.verdict
    assert "All features are zero in class d." in measured.verdict
    assert measured.summary()[0] == measured.verdict


def test_the_verdict_of_coinciding_class_means() -> None:
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]] * 4)
    verdict = nclab.measure_features(rows, [0, 0, 1, 1] * 2).verdict
    assert verdict == "All class means coincide: no class structure."


def test_the_verdict_of_too_many_classes_for_a_simplex() -> None:
    data = cloud(num_classes=9, dim=4, per_class=30, noise=0.1)
    assert (
        "too many class means for a simplex ETF in dimension 4"
        in nclab.measure_features(*data).verdict
    )


def test_the_verdict_is_below_every_table() -> None:
    collapse = nclab.measure_features(*cloud())
    assert collapse.verdict in " ".join(str(collapse).split())
    assert collapse.to_dict()["verdict"] == collapse.verdict
    assert "the spread within classes" in collapse._repr_html_()


@pytest.mark.parametrize(
    ("num_classes", "per_class", "dim"),
    [(10, 4, 2000), (5, 6, 40), (10, 20, 60), (40, 5, 12), (3, 2, 300)],
)
def test_formulas_agree_with_simulated_noise(num_classes: int, per_class: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_classes * per_class) % num_classes
    measured: dict[str, list[float]] = {}
    for _ in range(12):
        rows = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
        values = nclab.measure_features(rows, labels).values
        for name in ("nc1_trace_pinv", "nc1_trace_ratio", "nc4_ncc_accuracy"):
            measured.setdefault(name, []).append(values[name] or 0.0)
    mean = {name: sum(values) / len(values) for name, values in measured.items()}
    expected = noise_nc1_trace_pinv(num_classes, per_class, dim)
    assert mean["nc1_trace_pinv"] == pytest.approx(expected, rel=0.15)
    expected = noise_nc1_trace_ratio(num_classes, per_class)
    assert mean["nc1_trace_ratio"] == pytest.approx(expected, rel=0.1)
    expected = noise_ncc_accuracy(num_classes, per_class, dim)
    assert mean["nc4_ncc_accuracy"] == pytest.approx(expected, abs=0.05)


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


def test_good_data_give_no_warning() -> None:
    features, labels, weight = separated()
    assert nclab.measure_features(features, labels, weight).warnings == ()


def test_noise_in_many_dimensions_gives_a_warning_with_its_scores() -> None:
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
def test_labels_that_do_not_fit_the_classifier_give_a_warning(wrong: str) -> None:
    features, labels, weight = separated()
    if wrong == "rows of W permuted":
        weight = weight.roll(1, 0)
    else:
        labels = (labels + 1) % 10
    collapse = nclab.measure_features(features, labels, weight)
    assert collapse.accuracy == 0.0
    assert warns(collapse, "right on 0.0% of the samples, the nearest class mean on 100.0%")


def test_an_accuracy_at_chance_gives_a_warning() -> None:
    features, labels, weight = separated()
    generator = torch.Generator().manual_seed(1)
    shuffled = labels[torch.randperm(len(labels), generator=generator)]
    collapse = nclab.measure_features(features, shuffled, weight)
    assert warns(collapse, "is that of random guessing, 0.1")


def test_always_predicting_the_largest_class_gives_a_warning() -> None:
    features, labels, weight = separated()
    keep = (labels == 0) | (torch.arange(len(labels)) < 100)
    bias = torch.zeros(10, dtype=torch.float64)
    bias[0] = 1e4
    collapse = nclab.measure_features(features[keep], labels[keep], weight, bias)
    assert warns(collapse, "no better than always predicting the largest class")


def test_outputs_instead_of_features_give_a_warning() -> None:
    features, labels, weight = separated()
    logits = features @ weight.T
    assert warns(nclab.measure_features(logits, labels), "look like logits")
    assert warns(nclab.measure_features(logits.softmax(1), labels), "look like softmax outputs")


def test_unequal_classes_give_a_warning_about_ideal_values() -> None:
    features, labels, weight = separated(num_classes=3, per_class=300)
    keep = (labels != 2) | (torch.arange(len(labels)) < 9)
    collapse = nclab.measure_features(features[keep], labels[keep], weight)
    assert warns(collapse, "The largest class has 100 times the samples of the smallest")


def test_relu_features_give_a_warning_about_cosines() -> None:
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
