"""The contract of tests/contract.py, on clouds of several shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nclab
from nclab.measurement.gather import gather
from nclab.metrics.catalogue import METRICS
from tests.clouds import Cloud, cloud
from tests.contract import VARIES_UNDER, assert_same, measure, streamed, transforms

CLOUDS = {
    "balanced": cloud(),
    "unbalanced": cloud(balanced=False, seed=1),
    "more classes than dimensions": cloud(num_classes=9, dim=4, per_class=5, seed=2),
    "two classes on a line": cloud(num_classes=2, dim=1, per_class=20, seed=3),
    "far from the origin": cloud(offset=1000.0, noise=1e-3, seed=4),
}


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("transform", VARIES_UNDER)
def test_declared_invariances_hold(name: str, transform: str) -> None:
    data = CLOUDS[name]
    expected = measure(data)
    found = measure(transforms(data)[transform])
    assert_same(found, expected, relative=1e-8, absolute=1e-9, leaving_out=VARIES_UNDER[transform])


def test_what_may_vary_does_vary() -> None:
    """Otherwise the table of exceptions would hide a metric that ignores its input."""
    data = CLOUDS["balanced"]
    before = measure(data)
    moved = set()
    for transform, names in VARIES_UNDER.items():
        after = measure(transforms(data)[transform])
        moved |= {name for name in names if after[name] != before[name]}
    decided_alike = {"accuracy", "nc4_cosine_accuracy", "nc4_agreement", "nc4_cosine_agreement"}
    assert set().union(*VARIES_UNDER.values()) - moved <= decided_alike


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_batches_of_any_size_agree_with_one_shot(name: str, size: int) -> None:
    data = CLOUDS[name]
    found = streamed(data, lambda rows: list(rows.split(size)))
    assert_same(found, measure(data), relative=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_batches_of_low_precision_agree_with_one_shot(dtype: torch.dtype) -> None:
    data = CLOUDS["balanced"]
    data = data._replace(features=data.features.to(dtype))
    found = streamed(data, lambda rows: list(rows.split(3)))
    assert_same(found, measure(data), relative=1e-10)


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
        whole = merged_moments(data, [torch.arange(len(data.labels))])
        pieces = [(owner == part).nonzero().flatten() for part in range(parts)]
        expected = gather(whole, weight=data.weight).scalars()
        found = gather(merged_moments(data, pieces), weight=data.weight).scalars()
        assert_same(found, expected, relative=1e-10)


def merged_moments(data: Cloud, pieces: list[torch.Tensor]) -> nclab.ClassMoments:
    """The merge of one stream per piece, the last piece first."""
    shape = (len(data.weight), data.features.shape[1])
    total = nclab.ClassMoments(*shape, scatter=True)
    for rows in reversed(pieces):
        part = nclab.ClassMoments(*shape, scatter=True)
        part.update(data.features[rows], data.labels[rows])
        total.merge(part)
    return total


def test_float32_input_gives_what_its_float64_copy_gives() -> None:
    data = CLOUDS["balanced"]
    low = data._replace(features=data.features.float())
    same = data._replace(features=low.features.double())
    assert_same(measure(low), measure(same), relative=1e-13)


def test_every_scalar_is_in_the_catalogue_and_measured() -> None:
    scalars = measure(CLOUDS["balanced"])
    assert list(scalars) == [metric.name for metric in METRICS]
    assert all(value is not None for value in scalars.values())
