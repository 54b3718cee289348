"""Tests that every metric fulfils the contract of tests/contract.py, on several clouds."""

import math
import sys
from functools import wraps
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nclab
from nclab.measurement.gather import gather
from nclab.metrics.catalogue import EXTRAS, METRICS, Metric
from nclab.metrics.view import View, shared
from tests.clouds import Cloud, cloud
from tests.contract import (
    SIDES,
    alone,
    assert_same,
    changes,
    declared,
    depends_on,
    functions,
    measure,
    statistics,
    streamed,
)

CLOUDS = {
    "balanced": cloud(),
    "unbalanced": cloud(balanced=False, seed=1),
    "more classes than dimensions": cloud(num_classes=9, dim=4, per_class=5, seed=2),
    "two classes on a line": cloud(num_classes=2, dim=1, per_class=20, seed=3),
    "far from the origin": cloud(offset=1000.0, noise=1e-3, seed=4),
}


FUNCTIONS = functions()


@pytest.mark.parametrize("name", CLOUDS)
def test_declared_invariances_hold(name: str) -> None:
    data = CLOUDS[name]
    before = statistics(data)
    expected = {metric: alone(function, before) for metric, function in FUNCTIONS.items()}
    for change, changed in changes(data).items():
        after = statistics(changed)
        for metric, function in FUNCTIONS.items():
            if change in declared(function):
                values = alone(function, after)
                close = pytest.approx(expected[metric], rel=1e-8, abs=1e-9, nan_ok=True)
                assert values == close, f"{metric} under {change}"


@pytest.mark.parametrize("factor", [1e-30, 1e-9, 1e9])
@pytest.mark.parametrize("name", CLOUDS)
def test_a_declared_invariance_to_scale_holds_for_any_size(name: str, factor: float) -> None:
    """An absolute constant in a formula, such as 1e-8 in a denominator, would show here."""
    data = CLOUDS[name]
    before = statistics(data)
    scaled = {
        "of the features": data._replace(features=data.features * factor),
        "of the classifier": data._replace(weight=data.weight * factor, bias=data.bias * factor),
    }
    for side in SIDES:
        after = statistics(scaled[side])
        for metric, function in FUNCTIONS.items():
            if f"scale {side}" not in declared(function):
                continue
            expected = alone(function, before)
            # Zeros of a spectrum are rounding errors of its largest value.
            rounding = 1e-12 * max([1.0, *map(abs, filter(math.isfinite, expected))])
            close = pytest.approx(expected, rel=1e-9, abs=rounding, nan_ok=True)
            assert alone(function, after) == close, f"{metric}, scale {side}"


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_undeclared_changes_change_the_metric(metric: str) -> None:
    """Otherwise a docstring could omit an invariance, or a metric could ignore its input."""
    function = FUNCTIONS[metric]
    unseen = {change for change in changes(CLOUDS["balanced"]) if depends_on(function, change)}
    unseen -= declared(function)
    for data in (*CLOUDS.values(), cloud(noise=5.0, seed=5)):
        before = alone(function, statistics(data))
        for change in list(unseen):
            after = alone(function, statistics(changes(data)[change]))
            if after != pytest.approx(before, rel=1e-6, nan_ok=True):
                unseen.remove(change)
    assert not unseen


@pytest.mark.parametrize("name", CLOUDS)
def test_the_order_of_the_samples_does_not_matter(name: str) -> None:
    data = CLOUDS[name]
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(7))
    moved = data._replace(features=data.features[order], labels=data.labels[order])
    before, after = statistics(data), statistics(moved)
    for metric, function in FUNCTIONS.items():
        expected = pytest.approx(alone(function, before), rel=1e-8, abs=1e-9, nan_ok=True)
        assert alone(function, after) == expected, metric


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        ("A docstring without invariances.", "no line"),
        ("Invariant to: rotation, the weather.", "'the weather'.*no test covers"),
    ],
)
def test_missing_or_unknown_declarations_fail(doc: str, text: str) -> None:
    def metric() -> None: ...

    metric.__doc__ = doc
    with pytest.raises(AssertionError, match=text):
        declared(metric)


@pytest.mark.parametrize("name", [*CLOUDS, "a class without samples"])
def test_every_scalar_equals_its_function_called_alone(name: str) -> None:
    """The numbers agree bit for bit, so sharing of results changes nothing."""
    missing = name not in CLOUDS
    data = CLOUDS["balanced"] if missing else CLOUDS[name]
    if missing:
        keep = data.labels != 2
        data = data._replace(features=data.features[keep], labels=data.labels[keep])
    inputs = statistics(data)
    values = nclab.measure_features(*data, min_count=1 if missing else None, metrics="all").values
    for metric in (*METRICS, *EXTRAS):
        if missing and metric.name in ("optimal_loss", "excess_loss", "normalised_margin"):
            assert values[metric.name] is None
            continue
        [expected] = alone(metric.function, inputs)
        if math.isnan(expected):
            assert metric.name == "minority_cosine"
            assert values[metric.name] is None
            continue
        assert values[metric.name] == expected, metric.name


DERIVED = {
    "alpha": {"optimal_loss", "excess_loss"},
    "beta": {"optimal_loss", "excess_loss"},
    "balanced_loss": {"excess_loss"},
    "optimal_loss": {"excess_loss"},
    "margin": {"normalised_margin"},
}
"""Metrics whose formulas contain the key."""


@pytest.mark.parametrize("metric", [*METRICS, *EXTRAS], ids=lambda metric: metric.name)
def test_a_wrong_function_changes_its_number(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this number and the numbers derived from it change, so each formula exists once."""
    data = CLOUDS["unbalanced"]  # This cloud has small classes.
    before = measure(data)

    @wraps(metric.function)
    def wrong(*args: Any) -> float:
        return metric.function(*args) + 1

    for table, rows in (
        ("measurement.gather.METRICS", METRICS),
        ("metrics.catalogue.EXTRAS", EXTRAS),
    ):
        other = tuple(row._replace(function=wrong) if row == metric else row for row in rows)
        monkeypatch.setattr(f"nclab.{table}", other)
    packages = ("nclab.metrics", "nclab.measurement")
    for module in [module for name, module in sys.modules.items() if name.startswith(packages)]:
        for name, value in list(vars(module).items()):
            if value is metric.function:
                monkeypatch.setattr(module, name, wrong)
    after = measure(data)
    assert after[metric.name] == (before[metric.name] or 0.0) + 1
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {metric.name} | DERIVED.get(metric.name, set())


def test_a_new_metric_needs_only_a_function_and_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mean_spread(moments: nclab.ClassMoments) -> float:
        return float(moments.variances.mean())

    rows = (*METRICS, Metric(mean_spread, "NC1", lambda num_classes: 0.0, "spread of a class"))
    monkeypatch.setattr("nclab.measurement.gather.METRICS", rows)
    data = CLOUDS["balanced"]
    collapse = nclab.measure_features(*data)
    expected = float(collapse.variances.mean())
    assert collapse.mean_spread == collapse.to_dict()["mean_spread"] == expected
    assert "mean_spread" in dir(collapse)


def test_metrics_of_one_view_share_results() -> None:
    calls = []

    @shared
    def expensive(moments: nclab.ClassMoments) -> float:
        calls.append(moments)
        return 1.0

    def metric(moments: nclab.ClassMoments) -> float:
        return expensive(moments)

    inputs = statistics(CLOUDS["balanced"])
    view = View(inputs["moments"], inputs["classes"])
    assert view(metric) + view(metric) == 2.0
    assert len(calls) == 1
    assert metric(inputs["moments"]) + metric(inputs["moments"]) == 2.0
    assert len(calls) == 3, (
        "Without a view, results must not be kept, because statistics may change."
    )


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_batches_of_any_size_agree_with_one_shot(name: str, size: int) -> None:
    data = CLOUDS[name]
    values = streamed(data, lambda rows: list(rows.split(size)))
    assert_same(values, measure(data), relative=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_batches_of_low_precision_agree_with_one_shot(dtype: torch.dtype) -> None:
    data = CLOUDS["balanced"]
    data = data._replace(features=data.features.to(dtype))
    values = streamed(data, lambda rows: list(rows.split(3)))
    assert_same(values, measure(data), relative=1e-10)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), cuts=st.lists(st.integers(0, 44), max_size=5))
def test_any_order_and_any_cuts_agree(seed: int, cuts: list[int]) -> None:
    data = CLOUDS["balanced"]
    generator = torch.Generator().manual_seed(seed)

    def cut(rows: torch.Tensor) -> list[torch.Tensor]:
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        return list(torch.tensor_split(shuffled, sorted(cuts)))

    assert_same(streamed(data, cut), measure(data), relative=1e-10)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), parts=st.integers(1, 6))
def test_merging_any_partition_agrees(seed: int, parts: int) -> None:
    for data in (CLOUDS["unbalanced"], CLOUDS["far from the origin"]):
        generator = torch.Generator().manual_seed(seed)
        owner = torch.randint(parts, data.labels.shape, generator=generator)
        complete = merged_moments(data, [torch.arange(len(data.labels))])
        pieces = [(owner == part).nonzero().flatten() for part in range(parts)]
        expected = gather(complete, weight=data.weight).scalars()
        values = gather(merged_moments(data, pieces), weight=data.weight).scalars()
        assert_same(values, expected, relative=1e-10)


def merged_moments(data: Cloud, pieces: list[torch.Tensor]) -> nclab.ClassMoments:
    """Return the merge of one stream for each piece, starting with the last piece."""
    shape = (len(data.weight), data.features.shape[1])
    total = nclab.ClassMoments(*shape, scatter=True)
    for rows in reversed(pieces):
        part = nclab.ClassMoments(*shape, scatter=True)
        part.update(data.features[rows], data.labels[rows])
        total.merge(part)
    return total


def test_float32_input_and_its_float64_copy_agree() -> None:
    data = CLOUDS["balanced"]
    low = data._replace(features=data.features.float())
    same = data._replace(features=low.features.double())
    assert_same(measure(low), measure(same), relative=1e-13)


def test_every_scalar_is_in_the_catalogue_and_measured() -> None:
    scalars = measure(CLOUDS["balanced"], extras="default")
    assert list(scalars) == [metric.name for metric in METRICS]
    assert all(value is not None for value in scalars.values())
    everything = measure(CLOUDS["unbalanced"])
    assert list(everything) == [metric.name for metric in (*METRICS, *EXTRAS)]
    assert all(value is not None for value in everything.values())
