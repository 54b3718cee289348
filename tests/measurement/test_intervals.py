"""Intervals of the jackknife, compared with measurements without each group."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nclab
from nclab.measurement.options import MeasureOptions
from nclab.measurement.resampling import (
    EXTREME,
    FIXED,
    OTHER_ORDER,
    SINGLE,
    GroupJackknife,
    jackknife,
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
        expected = jackknife(value, [one[name] or 0.0 for one in without])
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
    """Uses 60 data sets; benchmarks/interval_coverage.py uses a thousand."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 4))
    centred = means - means.mean(0)
    truth = 4 * 0.6**2 / (np.sum(centred**2) / 3)
    held, halves, values = 0, [], []
    for _ in range(60):
        labels = np.repeat(np.arange(3), 25)
        rows = means[labels] + 0.6 * rng.normal(size=(75, 4))
        collapse = nclab.measure_features(rows, labels, intervals=True, second_pass=False)
        assert collapse.intervals is not None
        interval = collapse.intervals["nc1_trace_ratio"]
        held += interval.low <= truth <= interval.high
        halves.append(interval.half)
        values.append(collapse.values["nc1_trace_ratio"] or 0.0)
    assert held >= 52
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


def test_intervals_of_negative_cosines_contain_their_value() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(200, 8), torch.arange(200) % 4
    features[torch.arange(200), labels] += 2
    result = nclab.measure_features(features, labels, weight=-torch.eye(4, 8), intervals=True)
    assert result.intervals is not None
    low, high = result.intervals["nc3_alignment_mean"][:2]
    assert result.nc3_alignment_mean is not None
    assert low <= result.nc3_alignment_mean <= high < 0
