"""Intervals of the jackknife, compared with measurements without each group."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nclab
from nclab.measurement.heavy_tails import NOT_CHECKED, LossTails, SpreadTails
from nclab.measurement.options import MeasureOptions
from nclab.measurement.resampling import (
    EXTREME,
    FIXED,
    NEAR_ZERO,
    OTHER_ORDER,
    RATIOS,
    SINGLE,
    GroupJackknife,
    jackknife,
    log_jackknife,
    share_interval,
)
from nclab.measurement.results import Interval
from nclab.metrics.catalogue import EXTRAS, METRICS
from tests.clouds import cloud

DATA = cloud(per_class=30, noise=0.8)


def assigned_groups(labels: Tensor, count: int = 10) -> Tensor:
    """Return the group of each sample."""
    moments = nclab.ClassMoments(int(labels.max()) + 1, 2)
    return GroupJackknife(moments, None, MeasureOptions(groups=count))._assign(labels)


def test_intervals_equal_those_of_measurements_without_each_group() -> None:
    collapse = nclab.measure_features(*DATA, metrics="all", intervals=True)
    groups = assigned_groups(DATA.labels)
    without = []
    for group in range(10):
        others = groups != group
        part = DATA._replace(features=DATA.features[others], labels=DATA.labels[others])
        without.append(nclab.measure_features(*part, metrics="all").values)
    assert collapse.intervals is not None
    checked = 0
    for name, interval in collapse.intervals.items():
        value = collapse.values[name]
        assert value is not None
        method = log_jackknife if name in RATIOS else jackknife
        expected = method(value, [one[name] or 0.0 for one in without])
        if name.startswith("nc4") or name == "accuracy":
            hits = round(150 * value)
            if min(hits, 150 - hits) < 10:
                assert interval == share_interval(hits, 150)
                continue
            expected = Interval(max(0.0, value - expected.half), min(1.0, value + expected.half))
        assert interval == pytest.approx(expected, rel=1e-6, abs=1e-9), name
        checked += 1
    assert checked > 20


def test_every_scalar_has_an_interval_or_a_reason() -> None:
    plain = nclab.measure_features(*DATA, metrics="all")
    collapse = nclab.measure_features(*DATA, metrics="all", intervals=True)
    assert collapse.values == plain.values
    assert collapse.intervals is not None
    assert plain.intervals is None
    measured = {name for name, value in plain.values.items() if value is not None}
    assert set(collapse.intervals) | set(collapse.no_interval) == measured
    assert not set(collapse.intervals) & set(collapse.no_interval)
    for metric in (*METRICS, *EXTRAS):
        if metric.extreme:
            assert collapse.no_interval[metric.name] == EXTREME
        if metric.of_weights:
            assert collapse.no_interval[metric.name] == FIXED


def test_batches_give_the_intervals_of_arrays() -> None:
    whole = nclab.measure_features(*DATA, intervals=True).intervals
    batches = list(zip(DATA.features.split(13), DATA.labels.split(13), strict=True))
    parts = nclab.measure_features(
        batches, weight=DATA.weight, bias=DATA.bias, intervals=True
    ).intervals
    assert whole is not None
    assert parts is not None
    assert set(whole) == set(parts)
    for name, interval in whole.items():
        assert parts[name] == pytest.approx(interval, rel=1e-8, abs=1e-10), name


def test_groups_have_equal_shares_of_every_class() -> None:
    labels = torch.randint(4, (1000,), generator=torch.Generator().manual_seed(0))
    groups = assigned_groups(labels)
    for c in range(4):
        sizes = groups[labels == c].bincount(minlength=10)
        assert int(sizes.max() - sizes.min()) <= 1
    rounds = groups[labels == 0][:100].reshape(10, 10)
    assert len({tuple(one.tolist()) for one in rounds}) > 3, "each round starts at a random group"


class Shuffling:
    """A loader that yields the same samples in another order each time."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(DATA.labels), generator=self.generator)
        for part in order.split(20):
            yield DATA.features[part], DATA.labels[part]


def test_a_shuffling_loader_gets_no_wrong_intervals() -> None:
    collapse = nclab.measure_features(Shuffling(), cache_bytes=0, intervals=True)
    assert collapse.intervals is not None
    assert "cdnv" in collapse.intervals
    assert collapse.no_interval["centred_mean_intra"] == OTHER_ORDER
    kept = nclab.measure_features(Shuffling(), intervals=True)
    assert kept.intervals is not None
    assert "centred_mean_intra" in kept.intervals


def test_a_class_of_one_sample_has_no_spread() -> None:
    labels = DATA.labels.clone()
    labels[(labels == 4).nonzero()[1:]] = 3
    collapse = nclab.measure_features(DATA.features, labels, intervals=True)
    assert collapse.intervals == {}
    assert set(collapse.no_interval.values()) == {SINGLE}


def test_a_value_that_is_mostly_bias_has_no_interval() -> None:
    """With weights equal to the true means, measured self-duality is noise."""
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(4, 30, generator=generator, dtype=torch.float64)
    labels = torch.arange(400) % 4
    rows = means[labels] + torch.randn(400, 30, generator=generator, dtype=torch.float64)
    collapse = nclab.measure_features(rows, labels, means, intervals=True)
    assert collapse.intervals is not None
    assert "finite-sample bias" in collapse.no_interval["nc3_self_duality"]
    assert "nc1_trace_ratio" in collapse.intervals


@pytest.mark.parametrize("num_classes", [3, 4, 10])
def test_an_exact_simplex_has_no_interval_that_excludes_it(num_classes: int) -> None:
    """The true distances are 0. With the bias as the only criterion, 10 intervals exclude 0."""
    rng = np.random.default_rng(num_classes)
    means = nclab.metrics.simplex_etf(num_classes, num_classes).numpy()
    names = ("nc2_norm_variation_means", "nc2_equiangularity_means", "nc2_cosine_std_means")
    labels = np.repeat(np.arange(num_classes), 30)
    reasons = set()
    for _ in range(10):
        rows = means[labels] + 0.3 * rng.normal(size=(len(labels), num_classes))
        collapse = nclab.measure_features(rows, labels, means, intervals=True)
        assert collapse.intervals is not None
        for name in (*names, "nc3_self_duality"):
            assert name not in collapse.intervals
            reasons.add(collapse.no_interval[name])
    assert NEAR_ZERO in reasons


def _noise(tails: str, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    if tails == "normal":
        return rng.normal(size=shape)
    if tails == "uniform":
        return rng.uniform(-1, 1, size=shape)
    return rng.standard_t(3, size=shape)


@pytest.mark.parametrize("tails", ["normal", "uniform", "Student"])
@pytest.mark.parametrize("shape", [(200, 4), (600, 30)])
def test_heavy_tails_give_a_warning(tails: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(shape[0]) % 4
    means = 2 * rng.normal(size=(4, shape[1]))
    warned = 0
    for _ in range(6):
        rows = means[labels] + _noise(tails, rng, shape)
        collapse = nclab.measure_features(1e-40 * rows, labels, intervals=True)
        found = [line for line in collapse.warnings if line.startswith("Heavy tails")]
        assert all("nc1_trace_ratio, cdnv, alpha" in line for line in found)
        warned += len(found)
    assert warned == (6 if tails == "Student" else 0)


def test_a_loss_of_few_samples_gives_a_warning() -> None:
    """A confident classifier errs in about four of 1000 samples, which have almost all the loss."""
    rng = np.random.default_rng(2)
    labels = np.arange(1000) % 4
    rows = 2 * np.eye(4)[labels] + 0.5 * rng.normal(size=(1000, 4))
    for size, expected in ((0.3, False), (30.0, True)):
        weight = size * np.eye(4)
        collapse = nclab.measure_features(rows, labels, weight, intervals=True)
        found = [line for line in collapse.warnings if "few samples carry most" in line]
        assert bool(found) == expected
        assert all("loss, balanced_loss, excess_loss" in line for line in found)


def test_tails_are_not_checked_without_a_second_pass() -> None:
    single = nclab.measure_features(*DATA, intervals=True, second_pass=False)
    assert NOT_CHECKED in single.warnings
    assert NOT_CHECKED not in nclab.measure_features(*DATA, intervals=True).warnings
    assert NOT_CHECKED not in nclab.measure_features(*DATA, second_pass=False).warnings


def test_an_accuracy_of_one_has_an_exact_interval() -> None:
    collapse = nclab.measure_features(*cloud(per_class=40, noise=0.05), intervals=True)
    assert collapse.nc4_ncc_accuracy == 1.0
    assert collapse.intervals is not None
    low, high, _ = collapse.intervals["nc4_ncc_accuracy"]
    assert low == pytest.approx(0.025 ** (1 / 200))
    assert high == 1.0


@pytest.mark.parametrize("wrong", [1, 4, "yes", 2.5])
def test_a_wrong_number_of_groups_raises(wrong: object) -> None:
    with pytest.raises(nclab.NclabError, match="intervals=True or from 5 to 1000 groups"):
        nclab.measure_features(*DATA, intervals=wrong)  # type: ignore[arg-type]


def test_models_have_intervals_and_tables_show_them() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.ReLU(), torch.nn.Linear(9, 9))
    net = torch.nn.Sequential(net, torch.nn.ReLU(), torch.nn.Linear(9, 5))
    loader = list(zip(DATA.features.float().split(25), DATA.labels.split(25), strict=True))
    report = nclab.measure(net, loader, layers="all", intervals=True, metrics="all")
    assert report.last.intervals is not None
    assert "±" in str(report)
    assert "±" in str(report.last)
    assert "no interval" in str(report.last)
    line = report._picture().panels[1].series[0]  # type: ignore[union-attr]
    assert line.low is not None
    assert line.high is not None
    edges: Any = zip(line.low, line.y, line.high, strict=True)
    assert all(low < y < high for low, y, high in edges)
    plain = report.last.to_dict()
    assert plain["intervals"]["cdnv"] == list(report.last.intervals["cdnv"])
    assert "±" in report.last._repr_html_()


def test_intervals_cover_the_truth_in_95_per_cent_of_samples() -> None:
    """Uses 200 data sets; benchmarks/interval_coverage.py uses a thousand."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 4))
    centred = means - means.mean(0)
    truth = 4 * 0.6**2 / (np.sum(centred**2) / 3)
    held, halves, values = 0, [], []
    for _ in range(200):
        labels = np.repeat(np.arange(3), 25)
        rows = means[labels] + 0.6 * rng.normal(size=(75, 4))
        collapse = nclab.measure_features(rows, labels, intervals=True, second_pass=False)
        assert collapse.intervals is not None
        interval = collapse.intervals["nc1_trace_ratio"]
        held += interval.low <= truth <= interval.high
        halves.append(interval.half)
        values.append(collapse.values["nc1_trace_ratio"] or 0.0)
    assert held >= 182
    assert np.mean(halves) == pytest.approx(2.262 * np.std(values), rel=0.3)


def test_the_jackknife_of_a_mean_is_its_textbook_interval() -> None:
    numbers = np.random.default_rng(3).normal(size=12)
    without = [(numbers.sum() - one) / 11 for one in numbers]
    low, high, bias = jackknife(float(numbers.mean()), without)
    half = 2.200985 * numbers.std(ddof=1) / math.sqrt(12)  # Student's t with 11 degrees of freedom
    assert (low, high) == pytest.approx((numbers.mean() - half, numbers.mean() + half), rel=1e-6)
    assert bias == pytest.approx(0.0, abs=1e-14)


def test_the_jackknife_subtracts_the_bias_of_a_square() -> None:
    """The square of a mean has the bias var/n, which is subtracted exactly."""
    numbers = np.random.default_rng(4).normal(size=15)
    without = [((numbers.sum() - one) / 14) ** 2 for one in numbers]
    result = jackknife(float(numbers.mean() ** 2), without)
    assert result.bias == pytest.approx(numbers.var(ddof=1) / 15, rel=1e-9)


def test_tail_statistics_equal_their_formulas() -> None:
    """Also with a class without samples, and in batches."""
    rng = np.random.default_rng(5)
    labels = torch.from_numpy(rng.choice([0, 1, 3], size=90))
    rows = torch.from_numpy(rng.standard_t(4, size=(90, 3)) + 100.0)
    moments = nclab.ClassMoments(4, 3)
    moments.update(rows, labels)
    spread, losses = SpreadTails(moments), LossTails(torch.zeros(2, dtype=torch.int64))
    logits = rows @ torch.from_numpy(rng.normal(size=(3, 4)))
    for batch in torch.arange(90).split(13):
        spread.add(rows[batch], labels[batch])
        losses.add(logits[batch], labels[batch])
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    fourths = squared_variances = 0.0
    gaps, loss_gaps = [], []
    for c in (0, 1, 3):
        own = rows[labels == c]
        centred = own - own.mean(0)
        fourths += float((centred**4).sum())
        size = len(own)
        per_class = float(((centred**2).mean(0) ** 2).sum())
        squared_variances += size * per_class * (size - 1) / (size + 1)
        distances = (centred**2).sum(1)
        gaps.append(distances - distances.mean())
        loss_gaps.append(loss[labels == c] - loss[labels == c].mean())
    assert spread.kurtosis == pytest.approx(fourths / squared_variances)
    for found, values in ((spread.skewness, gaps), (losses.skewness(moments.counts), loss_gaps)):
        z = torch.cat(values)
        assert found == pytest.approx(float((z**3).sum() / (z**2).sum() ** 1.5))


def test_intervals_of_negative_cosines_contain_their_value() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(200, 8), torch.arange(200) % 4
    features[torch.arange(200), labels] += 2
    result = nclab.measure_features(features, labels, weight=-torch.eye(4, 8), intervals=True)
    assert result.intervals is not None
    low, high = result.intervals["nc3_alignment_mean"][:2]
    assert result.nc3_alignment_mean is not None
    assert low <= result.nc3_alignment_mean <= high < 0
