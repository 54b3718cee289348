"""Tests of pairs of many classes: float32 tiles have the documented accuracy."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import nclab
from nclab.metrics import closest, pairs
from nclab.metrics.pairs import rounding
from nclab.metrics.rows import upper_factor
from nclab.statistics import blocks
from nclab.statistics.nearest import UNIT
from tests.clouds import cloud
from tests.contract import assert_same
from tests.reference.slow import slow_metrics

NAMES = {
    "means": ("nc2_equiangularity_means", "nc2_equiangularity_weights", "cdnv"),
    "exact": (
        *("max_inter", "mean_inter", "centred_max_inter", "centred_mean_inter"),
        *("nc2_cosine_std_means", "nc2_cosine_std_weights", "nc1_trace_pinv"),
        *("rankme", "lidar", "nc4_ncc_accuracy", "nc4_cosine_accuracy", "loss", "accuracy"),
    ),
}


class Case(NamedTuple):
    """Features with their labels and a classifier."""

    features: Tensor
    labels: Tensor
    weight: Tensor


def plain(**options: float) -> Case:
    """Return an ordinary cloud of 53 classes."""
    return Case(*cloud(num_classes=53, dim=11, per_class=4, seed=3, **options)[:3])  # type: ignore[arg-type]


def duplicates() -> Case:
    """Return a cloud in which classes 7 and 31 are equal, and 40 to 43 are nearly equal."""
    case = plain()
    features = case.features.clone()
    features[case.labels == 31] = features[case.labels == 7]
    for other in (41, 42, 43):
        features[case.labels == other] = features[case.labels == 40] * (1 + 1e-9 * other)
    return case._replace(features=features)


def zero_classes() -> Case:
    """Return a cloud in which two classes have only zeros, as after a ReLU."""
    case = plain()
    features = case.features.clone()
    features[(case.labels == 3) | (case.labels == 50)] = 0.0
    return case._replace(features=features)


def outlier() -> Case:
    """Return a cloud in which one class mean is 1e18 times the others."""
    case = plain()
    features = case.features.clone()
    features[case.labels == 9] *= 1e18
    return case._replace(features=features)


def central() -> Case:
    """Return a cloud in which one class mean and its classifier row equal the centre."""
    case = plain()
    features = torch.zeros(53, 11, dtype=torch.float64)
    features[:26] = (8 * case.features[:26]).round()
    features[26:52] = -features[:26]
    return Case(features, torch.arange(53), features)


CASES: dict[str, Callable[[], Case]] = {
    "plain": plain,
    "noise": lambda: plain(noise=5.0),
    "offset": lambda: plain(offset=1e3),
    "duplicates": duplicates,
    "zero classes": zero_classes,
    "outlier": outlier,
    "central": central,
}


@pytest.fixture(params=[True, False], ids=["compiled", "torch"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits: ten classes count as many, and tiles have 7 rows."""
    monkeypatch.setattr(blocks, "MANY_CLASSES", 10)
    monkeypatch.setattr(pairs, "TILE", 7)
    monkeypatch.setattr(pairs, "has_numba", lambda: request.param)


def measured(case: Case, **options: object) -> nclab.Collapse:
    """Measure a case with all metrics."""
    return nclab.measure_features(*case, metrics="all", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CASES)
def test_float32_tiles_agree_with_float64_tiles(
    name: str, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]()
    result = measured(case)
    monkeypatch.setattr(blocks, "MANY_CLASSES", 2**14)
    assert_tiles(result, measured(case))


def assert_tiles(result: nclab.Collapse, expected: nclab.Collapse) -> None:
    """Assert the accuracy that docs/scale.md promises for float32 tiles."""
    error = rounding(expected.dim) + 520 * UNIT
    for name, value in expected.scalars().items():
        number = result.values[name]
        if value is None or name not in (*NAMES["means"], *NAMES["exact"], "gnc2_uniformity"):
            if value is None:
                assert number is None, name
            continue
        if name in NAMES["exact"]:
            assert number == pytest.approx(value, rel=1e-9, abs=1e-13), name
        elif name == "cdnv":
            assert number == pytest.approx(value, rel=10 * error), name
        elif name == "gnc2_uniformity":
            assert number == pytest.approx(value, rel=1e-3), name
        else:
            assert number == pytest.approx(value, abs=error), name
    assert [pair.cosine for pair in result.closest_pairs] == pytest.approx(
        [pair.cosine for pair in expected.closest_pairs], abs=1e-13
    )


def test_float32_tiles_agree_with_slow_loops(many: None) -> None:
    case = plain()
    expected = slow_metrics(*case)
    result = measured(case).scalars()
    assert_same(
        {name: result[name] for name in NAMES["exact"]},
        {name: expected[name] for name in NAMES["exact"]},
        relative=1e-9,
        absolute=1e-13,
    )
    error = rounding(11) + 520 * UNIT
    for name in NAMES["means"]:
        assert result[name] == pytest.approx(expected[name], rel=10 * error, abs=error)


def test_classes_without_samples_are_skipped(many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    case = plain()
    keep = (case.labels != 5) & (case.labels != 52)
    part = Case(case.features[keep], case.labels[keep], case.weight)
    result = measured(part, allow_missing=True)
    monkeypatch.setattr(blocks, "MANY_CLASSES", 2**14)
    assert_tiles(result, measured(part, allow_missing=True))
    assert not {5, 52} & {class_index for pair in result.closest_pairs for class_index in pair[:2]}


def test_a_large_offset_costs_no_digits(many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an offset of 1e9 all cosines are 1 up to rounding; distances keep float64 accuracy."""
    case = plain(offset=1e9)
    result = nclab.measure_features(case.features, case.labels)
    monkeypatch.setattr(blocks, "MANY_CLASSES", 2**14)
    expected = nclab.measure_features(case.features, case.labels)
    assert result.max_inter == pytest.approx(expected.max_inter, abs=1e-14)
    assert result.cdnv == pytest.approx(expected.cdnv, rel=1e-5)
    assert result.nc2_equiangularity_means == pytest.approx(
        expected.nc2_equiangularity_means, abs=1e-5
    )


def test_equal_means_give_an_infinite_cdnv(many: None) -> None:
    result = measured(duplicates())
    assert result.cdnv == float("inf")
    assert result.max_inter_pair in {(7, 31), (40, 41), (40, 42), (40, 43), (41, 42)} | {
        (41, 43),
        (42, 43),
    }


def test_closest_pairs_that_differ_below_float32_are_ordered(many: None) -> None:
    """Twenty pairs whose cosines differ by 1e-10 have the order of float64."""
    generator = torch.Generator().manual_seed(5)
    basis = torch.linalg.qr(torch.randn(64, 64, generator=generator).double()).Q
    angles = torch.arange(20).double()[:, None] * 1e-10 + 0.3
    rows = torch.cat([basis[:20], angles.cos() * basis[:20] + angles.sin() * basis[20:40]])
    order = torch.randperm(40, generator=generator)
    rows = rows[order]
    gram = (rows @ rows.T).triu(1)
    expected = gram.flatten().topk(10).values
    result = closest.closest_pairs(rows, 10).pairs
    assert [pair.value for pair in result] == pytest.approx(expected.tolist(), abs=1e-15)
    partners = {tuple(sorted((int(order[pair.row]), int(order[pair.col])))) for pair in result}
    assert partners == {(index, index + 20) for index in range(10)}


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_closest_pairs_equal_those_of_all_products(many: None, offset: float) -> None:
    generator = torch.Generator().manual_seed(6)
    rows = torch.randn(97, 9, generator=generator, dtype=torch.float64) + offset
    rows /= rows.norm(dim=1, keepdim=True)
    gram = (rows @ rows.T).triu(1) + torch.full((97, 97), -9.0).tril().double()
    values, places = gram.flatten().topk(10)
    result = closest.closest_pairs(rows, 10).pairs
    assert [pair.row * 97 + pair.col for pair in result] == places.tolist()
    assert [pair.value for pair in result] == pytest.approx(values.tolist(), abs=1e-15)


def test_the_error_bound_of_float32_products_holds() -> None:
    generator = torch.Generator().manual_seed(7)
    rows = torch.rand(200, 300, generator=generator, dtype=torch.float64)
    rows /= rows.norm(dim=1, keepdim=True)
    short = rows.float()
    worst = float(((short @ short.T).double() - rows @ rows.T).abs().max())
    assert 1e-9 < worst < rounding(300)


def test_a_factor_in_parts_has_an_equal_gram_matrix(many: None) -> None:
    rows = torch.randn(300, 5, generator=torch.Generator().manual_seed(8)).double()
    factor = upper_factor(rows).triu()
    assert torch.allclose(factor.T @ factor, rows.T @ rows, rtol=1e-12)


def test_no_screening_without_full_float32_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(12, 3).double()
    monkeypatch.setattr(blocks, "MANY_CLASSES", 10)
    assert pairs.screens(rows)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert not pairs.screens(rows)
