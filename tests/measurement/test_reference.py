"""Test data compared with the class means of training data."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.figures.picture import Panel
from nclab.metrics.catalogue import REFERENCE_METRICS
from nclab.statistics.second_pass import ReferencePass
from tests.contract import assert_same

C, D = 4, 6
GENERATOR = torch.Generator().manual_seed(0)
MEANS = torch.randn(C, D, generator=GENERATOR, dtype=torch.float64)
WEIGHT = MEANS + 0.3 * torch.randn(C, D, generator=GENERATOR, dtype=torch.float64)
BIAS = torch.randn(C, generator=GENERATOR, dtype=torch.float64)


def cloud(counts: list[int], noise: float, seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return `counts` points of each class around its mean."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    order = torch.randperm(len(labels), generator=generator)
    labels = labels[order]
    spread = torch.randn(len(labels), D, generator=generator, dtype=torch.float64)
    return MEANS[labels] + shift + noise * spread, labels


TRAIN = cloud([30, 20, 15, 25], 0.5, seed=1)
TESTS = {
    "balanced": cloud([9, 9, 9, 9], 0.8, seed=2, shift=0.1),
    "unbalanced": cloud([20, 2, 1, 7], 1.5, seed=3),
    "a class without samples": cloud([10, 0, 12, 5], 0.8, seed=4),
    "the last classes without samples": cloud([10, 7, 0, 0], 0.8, seed=5),
}


def slow(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the metrics by their definitions, sample by sample in plain Python."""
    rows, labels = (part.tolist() for part in train)
    classes = sorted(set(labels))

    def mean(points: list[list[float]]) -> list[float]:
        return [sum(column) / len(points) for column in zip(*points, strict=True)]

    def square(first: list[float], other: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(first, other, strict=True))

    groups = {c: [r for r, y in zip(rows, labels, strict=True) if y == c] for c in classes}
    mu = {c: mean(groups[c]) for c in classes}
    centre = mean(list(mu.values()))
    spread = sum(square(mu[c], centre) for c in classes) / len(classes)
    others, true_labels = (part.tolist() for part in test)
    nearest = [min(classes, key=lambda c: square(row, mu[c])) for row in others]
    scores = [
        [
            sum(w * x for w, x in zip(W, row, strict=True)) + b
            for W, b in zip(WEIGHT.tolist(), BIAS.tolist(), strict=True)
        ]
        for row in others
    ]
    decided = [max(range(C), key=lambda c: z[c]) for z in scores]
    count = len(others)
    strong = sum(square(row, mu[y]) for row, y in zip(others, true_labels, strict=True)) / count
    weak = 0.0
    for c in classes:
        cluster = [row for row, near in zip(others, nearest, strict=True) if near == c]
        if cluster:
            middle = mean(cluster)
            weak += sum(square(row, middle) for row in cluster)
    here = sorted(set(true_labels))
    parts = {c: [r for r, y in zip(others, true_labels, strict=True) if y == c] for c in here}
    shift = sum(square(mean(parts[c]), mu[c]) for c in here) / len(here)
    inside = {c: sum(square(r, mean(parts[c])) for r in parts[c]) / len(parts[c]) for c in here}
    before = {c: sum(square(r, mu[c]) for r in groups[c]) / len(groups[c]) for c in here}
    return {
        "reference_ncc_accuracy": sum(a == b for a, b in zip(nearest, true_labels, strict=True))
        / count,
        "reference_ncc_agreement": sum(a == b for a, b in zip(nearest, decided, strict=True))
        / count,
        "strong_test_collapse": strong / spread,
        "weak_test_collapse": weak / count / spread,
        "reference_mean_shift": shift / spread,
        "reference_spread_ratio": sum(inside.values()) / sum(before.values()),
    }


def against(test: tuple[Tensor, Tensor], reference: Any = None, **options: Any) -> nclab.Collapse:
    if reference is None:
        reference = nclab.measure_features(*TRAIN, WEIGHT, BIAS)
    return nclab.measure_features(*test, WEIGHT, BIAS, reference=reference, **options)


@pytest.mark.parametrize("name", TESTS)
def test_every_metric_equals_a_slow_loop(name: str) -> None:
    measured = against(TESTS[name]).values
    for metric, value in slow(TRAIN, TESTS[name]).items():
        assert measured[metric] == pytest.approx(value, rel=1e-10), metric
    assert {metric.name for metric in REFERENCE_METRICS} <= set(measured)


@pytest.mark.parametrize("name", TESTS)
def test_weak_test_collapse_is_at_most_strong_test_collapse(name: str) -> None:
    measured = against(TESTS[name])
    weak, strong = measured.weak_test_collapse, measured.strong_test_collapse
    assert weak is not None
    assert strong is not None
    assert weak <= strong


def test_training_against_itself() -> None:
    measured = against(TRAIN)
    assert measured.strong_test_collapse == pytest.approx(measured.nc1_trace_ratio, rel=1e-10)
    assert measured.reference_ncc_accuracy == measured.nc4_ncc_accuracy
    assert measured.reference_ncc_agreement == measured.nc4_agreement
    assert measured.reference_mean_shift == pytest.approx(0, abs=1e-20)
    assert measured.reference_spread_ratio == pytest.approx(1, rel=1e-12)


def test_a_closed_form() -> None:
    """Train means at -1 and 1; test points at their means moved by t: shift t², no spread."""
    t = 0.3
    train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    test = nclab.measure_features([[-1.0 + t], [1.0 + t]], [0, 1], reference=train)
    assert test.strong_test_collapse == pytest.approx(t**2, rel=1e-12)
    assert test.reference_mean_shift == pytest.approx(t**2, rel=1e-12)
    assert test.weak_test_collapse == pytest.approx(0, abs=1e-15)
    assert test.reference_spread_ratio == 0
    assert test.reference_ncc_agreement is None
    assert test.notes["reference_ncc_agreement"] == "no classifier weights were given"


@pytest.mark.parametrize("change", ["rotation", "translation", "scale", "order"])
def test_invariances(change: str) -> None:
    (a, y), (b, z) = TRAIN, TESTS["unbalanced"]
    rotation = torch.linalg.qr(
        torch.randn(D, D, generator=torch.Generator().manual_seed(9)).double()
    ).Q
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(9))
    changes: dict[str, Any] = {
        "rotation": ((a @ rotation, y), (b @ rotation, z)),
        "translation": ((a + 5, y), (b + 5, z)),
        "scale": ((a * 17, y), (b * 17, z)),
        "order": ((a, y), (b[order], z[order])),
    }
    names = [first.name for first in REFERENCE_METRICS if first.name != "reference_ncc_agreement"]
    before = nclab.measure_features(b, z, reference=nclab.measure_features(a, y)).values
    train, test = changes[change]
    after = nclab.measure_features(*test, reference=nclab.measure_features(*train)).values
    for name in names:
        assert after[name] == pytest.approx(before[name], rel=1e-9), name


def test_batches_moments_and_measurements_agree() -> None:
    rows, labels = TESTS["balanced"]
    whole = against((rows, labels)).values
    batches = [(rows[i : i + 5], labels[i : i + 5]) for i in range(0, len(rows), 5)]
    collapse = nclab.measure_features(*TRAIN)
    for reference in (collapse, collapse.moments):
        measured = nclab.measure_features(batches, weight=WEIGHT, bias=BIAS, reference=reference)
        assert_same(measured.values, whole, relative=1e-10)


def test_merged_looks_are_those_of_all() -> None:
    rows, labels = TESTS["balanced"]
    moments = nclab.measure_features(*TRAIN).moments
    whole, left, right = (ReferencePass(moments) for _ in range(3))
    whole.add(rows, labels, labels)
    left.add(rows[:11], labels[:11], labels[:11])
    other = ReferencePass(moments)
    other.add(rows[11:], labels[11:], labels[11:])
    right.load_sums(other.sums())
    left.merge(right)
    for name, value in whole.sums().items():
        assert torch.allclose(left.sums()[name].double(), value.double(), rtol=1e-12), name


def test_a_reference_that_lacks_a_class() -> None:
    rows, labels = TRAIN
    keep = labels != 1
    reference = nclab.measure_features(rows[keep], labels[keep], num_classes=C, min_count=1)
    test = TESTS["a class without samples"]
    measured = against(test, reference)
    expected = slow((rows[keep], labels[keep]), test)
    assert measured.strong_test_collapse == pytest.approx(
        expected["strong_test_collapse"], rel=1e-10
    )
    assert measured.reference_ncc_accuracy == expected["reference_ncc_accuracy"]
    with pytest.raises(nclab.DataError, match="that the reference has samples of, got class 1"):
        against(TESTS["balanced"], reference)


def test_what_is_no_reference_is_refused() -> None:
    with pytest.raises(nclab.DataError, match="reference= a measurement of nclab"):
        against(TRAIN, reference=7)
    other = nclab.measure_features(TRAIN[0][:, :3], TRAIN[1])
    with pytest.raises(nclab.DataError, match="dimension 3, as the reference has, got 6"):
        against(TRAIN, reference=other)
    with pytest.raises(AttributeError, match="only if measured with reference="):
        nclab.measure_features(*TRAIN).strong_test_collapse  # noqa: B018


class Net(nn.Module):
    """Two hidden layers and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(D, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh())
        self.head = nn.Linear(8, C)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


@pytest.mark.parametrize("name", TESTS)
def test_a_model_on_train_and_test(name: str) -> None:
    model, test = Net(), TESTS[name]
    report = nclab.measure(model, [TRAIN], test=[test], layers="all")
    plain = nclab.measure(model, [TRAIN], layers="all")
    for ours, theirs in zip(report.layers, plain.layers, strict=True):
        assert_same(ours.values, theirs.values, relative=0, absolute=0)
    assert report.test is not None
    with torch.no_grad():
        train_h, test_h = model.body(TRAIN[0]), model.body(test[0])
        mu = torch.stack([train_h[TRAIN[1] == c].mean(0) for c in range(C)])
        nearest = torch.cdist(test_h, mu).argmin(1)
        decided = model(test[0]).argmax(1)
    last = report.test.last
    assert last.reference_ncc_accuracy == float((nearest == test[1]).double().mean())
    assert last.reference_ncc_agreement == float((nearest == decided).double().mean())
    assert last.samples == len(test[1])
    assert [(row["split"], row["layer"]) for row in report.to_dicts()] == [
        (split, layer.layer) for split in ("train", "test") for layer in report.layers
    ]
    text = str(report)
    assert "train" in text
    assert "test" in text
    assert f"{len(TRAIN[1])} train and {len(test[1])} test samples" in text
    again = nclab.measure(model, [test], layers="all", reference=plain)
    assert_same(again.last.values, last.values, relative=1e-12)


def test_the_picture_of_two_sets_has_a_line_for_each() -> None:
    model = Net()
    report = nclab.measure(model, [TRAIN], test=[TESTS["balanced"]], layers="all")
    panels = [panel for panel in report._picture().panels if isinstance(panel, Panel)]
    labels = [first.label for panel in panels for first in panel.series]
    assert "min_intra, train" in labels
    assert "min_intra, test" in labels
    assert "reference_ncc_accuracy, test" in labels
    first = nclab.measure(model, [TRAIN], test=[TESTS["a class without samples"]])
    titles = [panel.title for panel in first._picture().panels]
    assert titles[:2] == ["cosines between classes, train", "cosines between classes, test"]
    assert not any(math.isnan(value) for value in first.last.values.values() if value is not None)


def test_metrics_of_a_reference_have_no_interval() -> None:
    train = nclab.measure_features(*TRAIN)
    measured = nclab.measure_features(
        *TESTS["balanced"], reference=train, intervals=True, shuffled_labels=True
    )
    assert measured.intervals is not None
    assert "cdnv" in measured.intervals
    assert measured.no_interval["strong_test_collapse"].startswith(
        "the sampling error of the reference"
    )
    assert "reference_ncc_agreement" not in measured.no_interval, "it was not measured"
    assert "no interval, the sampling error of the reference" in str(measured)
    plain = nclab.measure_features(*TESTS["balanced"], reference=train)
    assert_same(measured.values, plain.values, relative=0, absolute=0)


def test_a_warning_about_underflow_names_metrics_of_a_reference_only_with_one() -> None:
    rows, labels = TRAIN
    arguments = (1e-145 * rows, labels, 1e-149 * WEIGHT)
    train = nclab.measure_features(*arguments)
    test = nclab.measure_features(*arguments, reference=train)
    for measured, expected in ((train, False), (test, True)):
        [warning] = [text for text in measured.warnings if "Rescale the classifier" in text]
        assert ("reference_ncc_agreement" in warning) == expected
