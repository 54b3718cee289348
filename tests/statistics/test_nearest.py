"""Screening in float32: every decision is that of float64, whatever the features are like."""

import pytest
import torch
from torch import Tensor

import nclab
from nclab.statistics import blocks, nearest
from tests.contract import assert_same

GENERATOR = torch.Generator().manual_seed(0)


def features(kind: str) -> tuple[Tensor, Tensor]:
    """40 classes in 24 dimensions, 15 rows each."""
    labels = torch.arange(40).repeat(15)
    means = torch.randn(40, 24, generator=GENERATOR, dtype=torch.float64)
    noise = torch.randn(600, 24, generator=GENERATOR, dtype=torch.float64)
    rows = means[labels] + {"tight": 0.01, "wide": 3.0}.get(kind, 0.7) * noise
    if kind == "relu":
        rows = rows.relu()
    elif kind == "offset":
        rows = rows + 1e9
    elif kind == "one far class":
        rows[labels == 3] *= 1e6
    elif kind == "ties":
        rows = rows[labels % 20].round()
    elif kind == "zero rows":
        rows[::7] = 0.0
        rows[labels == 5] = 0.0
    elif kind == "huge":
        rows = rows * 1e60
    elif kind == "tiny":
        rows = rows * 1e-40
    return rows, labels


KINDS = ("tight", "middle", "wide", "relu", "offset", "one far class", "ties", "zero rows", "huge")


@pytest.mark.parametrize("kind", [*KINDS, "tiny"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_screened_decisions_are_those_of_float64(
    kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
    rows, labels = features(kind)
    weight = torch.randn(40, 24, generator=GENERATOR, dtype=torch.float64)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 10**12)
    monkeypatch.setattr(nearest, "SCREENED_SIZE", 10**12)
    expected = nclab.measure_features(rows, labels, weight)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0 if compiled else 10**12)
    monkeypatch.setattr(nearest, "SCREENED_SIZE", 0)
    found = nclab.measure_features(rows, labels, weight)
    assert expected.look is not None
    assert found.look is not None
    # Beside an offset of 1e9 angles are rounding, in float64 too.
    lost = {"nc4_cosine_accuracy", "nc4_cosine_agreement"} if kind == "offset" else set()
    for name in ("nearest_correct", "zero_counts", *(() if lost else ("cosine_correct",))):
        assert torch.equal(getattr(found.look, name), getattr(expected.look, name)), name
    assert_same(found.scalars(), expected.scalars(), relative=1e-10, leaving_out=lost)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernel_is_its_twin(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    rows, labels = features("middle")
    weight = torch.randn(40, 24, generator=GENERATOR)
    rows = rows.to(dtype)[:, ::2]  # not contiguous
    expected = nclab.measure_features(rows, labels, weight[:, ::2])
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    found = nclab.measure_features(rows, labels, weight[:, ::2])
    assert_same(found.scalars(), expected.scalars(), relative=1e-12)


def test_most_rows_need_no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of classes that overlap, one row in twenty at most."""
    rows, labels = features("middle")
    moments = nclab.ClassMoments(40, 24)
    moments.update(rows, labels)
    seen = []
    exact = nearest.Centres.nearest_mean

    def counted(self: nearest.Centres, block: Tensor, *rest: Tensor) -> Tensor:
        seen.append(len(block))
        return exact(self, block, *rest)

    monkeypatch.setattr(nearest, "SCREENED_SIZE", 0)
    monkeypatch.setattr(nearest.Centres, "nearest_mean", counted)
    nclab.SecondPass(moments).update(rows, labels)
    assert sum(seen) <= 30
