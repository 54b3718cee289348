"""Tests of ClassMoments: one pass, exact merges, stored states."""

import numpy as np
import pytest
import torch

import nclab
from nclab.statistics import blocks
from tests.clouds import cloud


def filled(scatter: bool = True, seed: int = 0, rows: slice = slice(None)) -> nclab.ClassMoments:
    """Return moments of a cloud, or of some of its rows."""
    data = cloud(seed=seed)
    moments = nclab.ClassMoments(5, 7, scatter=scatter)
    moments.update(data.features[rows], data.labels[rows])
    return moments


def test_moments_agree_with_numpy() -> None:
    data = cloud(balanced=False)
    moments = nclab.ClassMoments(5, 7, scatter=True)
    moments.update(data.features, data.labels)
    h, y = data.features.numpy(), data.labels.numpy()
    scatter = np.zeros((7, 7))
    for c in range(5):
        rows = h[y == c]
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert moments.means[c].numpy() == pytest.approx(rows.mean(0), rel=1e-13)
        assert moments.unit_means[c].numpy() == pytest.approx(units.mean(0), rel=1e-13)
        assert float(moments.variances[c]) == pytest.approx(rows.var(0).sum(), rel=1e-13)
        square = np.mean(np.sum(rows**2, axis=1))
        assert float(moments.mean_square_norms[c]) == pytest.approx(square, rel=1e-13)
        scatter += (rows - rows.mean(0)).T @ (rows - rows.mean(0))
    assert moments.within_scatter.numpy() == pytest.approx(scatter, rel=1e-12)
    assert moments.sample_mean.numpy() == pytest.approx(h.mean(0), rel=1e-12)
    assert moments.total == len(h)


def test_the_scatter_spans_several_strips() -> None:
    """The dimension is larger than a strip and not a multiple of it."""
    dim = 2 * blocks.STRIP + 13
    data = cloud(num_classes=3, dim=dim, per_class=40)
    moments = nclab.ClassMoments(3, dim, scatter=True)
    moments.update(data.features, data.labels)
    rows = data.features - moments.means[data.labels]
    assert torch.allclose(moments.within_scatter, rows.T @ rows, rtol=1e-11, atol=1e-11)


def test_rows_sorted_by_class_give_equal_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cloud(num_classes=5, dim=7, per_class=50)
    unsorted = nclab.ClassMoments(5, 7, scatter=True)
    unsorted.update(data.features, data.labels)
    monkeypatch.setattr(blocks, "CPU_BLOCK", 16)
    assert blocks.rows_to_read(data.labels, -100, sums=105) is not None
    sorted_rows = nclab.ClassMoments(5, 7, scatter=True)
    sorted_rows.update(data.features, data.labels)
    for name in ("means", "variances", "unit_means", "within_scatter"):
        assert torch.allclose(getattr(unsorted, name), getattr(sorted_rows, name), rtol=1e-12)


def test_an_outlier_as_first_row_costs_few_digits() -> None:
    """The pivot, which is the first row, is a zero vector far from a tight cloud."""
    generator = torch.Generator().manual_seed(0)
    tight = 100.0 + 1e-6 * torch.randn(400, 3, generator=generator, dtype=torch.float64)
    rows = torch.cat([torch.zeros(1, 3, dtype=torch.float64), tight, -tight])
    labels = torch.cat([torch.zeros(401), torch.ones(400)]).long()
    moments = nclab.ClassMoments(2, 3)
    for part in torch.arange(len(rows)).split(50):
        moments.update(rows[part], labels[part])
    expected = rows[:401].numpy().var(axis=0).sum()
    assert float(moments.variances[0]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_low_precision_features_equal_their_float64_copy(dtype: torch.dtype) -> None:
    data = cloud()
    low = data.features.to(dtype)
    moments, same = nclab.ClassMoments(5, 7), nclab.ClassMoments(5, 7)
    moments.update(low, data.labels)
    same.update(low.double(), data.labels)
    assert torch.allclose(moments.means, same.means, rtol=1e-14)
    assert torch.allclose(moments.variances, same.variances, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint16"])
def test_every_integer_type_is_accepted_as_label(dtype: str) -> None:
    data = cloud()
    moments = nclab.ClassMoments(5, 7)
    moments.update(data.features.numpy(), data.labels.numpy().astype(dtype))
    assert moments.counts.tolist() == [9] * 5


def test_merge_is_commutative() -> None:
    first, second = filled(rows=slice(0, 20)), filled(rows=slice(20, None))
    other_first, other_second = filled(rows=slice(0, 20)), filled(rows=slice(20, None))
    first.merge(second)
    other_second.merge(other_first)
    for name in ("means", "variances", "unit_means", "within_scatter"):
        assert torch.allclose(getattr(first, name), getattr(other_second, name), rtol=1e-13)


def test_merge_with_an_empty_stream_changes_nothing() -> None:
    moments, before = filled(), filled()
    moments.merge(nclab.ClassMoments(5, 7, scatter=True))
    assert torch.equal(moments.means, before.means)
    empty = nclab.ClassMoments(5, 7, scatter=True)
    empty.merge(before)
    assert torch.equal(empty.within_scatter, before.within_scatter)


def test_merge_does_not_change_the_other_stream() -> None:
    first, second = filled(seed=1), filled(seed=2)
    before = {key: value.clone() for key, value in second.state_dict().items()}
    first.merge(second)
    first.update(torch.ones(5, 7), torch.arange(5))
    for key, value in second.state_dict().items():
        assert torch.equal(value, before[key])


def test_merge_rejects_other_shapes() -> None:
    with pytest.raises(nclab.NclabError, match="got 4 classes in dimension 7"):
        filled().merge(nclab.ClassMoments(4, 7, scatter=True))
    with pytest.raises(nclab.NclabError, match="with scatter or both without"):
        filled().merge(nclab.ClassMoments(5, 7))


@pytest.mark.parametrize("scatter", [True, False])
def test_a_saved_stream_continues_bit_for_bit(scatter: bool) -> None:
    data = cloud()
    moments = filled(scatter, rows=slice(0, 20))
    again = nclab.ClassMoments.from_state_dict(moments.state_dict())
    for stream in (moments, again):
        stream.update(data.features[20:], data.labels[20:])
    for key, value in moments.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])
    assert again.ignore_index == -100


def test_a_damaged_state_is_rejected() -> None:
    state = filled().state_dict()
    with pytest.raises(nclab.NclabError, match="missing unit_sum"):
        nclab.ClassMoments.from_state_dict({k: v for k, v in state.items() if k != "unit_sum"})
    with pytest.raises(nclab.NclabError, match=r"Expected unit_sum as torch\.float64"):
        nclab.ClassMoments.from_state_dict(state | {"unit_sum": state["unit_sum"].float()})
    with pytest.raises(nclab.NclabError, match=r"Expected count as torch\.int64 \(5,\)"):
        nclab.ClassMoments.from_state_dict(state | {"count": state["count"][:4]})
    with pytest.raises(nclab.NclabError, match="Expected finite pivot"):
        nclab.ClassMoments.from_state_dict(state | {"pivot": state["pivot"] / 0})
    with pytest.raises(nclab.NclabError, match="Expected counts of 0 or more"):
        nclab.ClassMoments.from_state_dict(state | {"zeros": state["zeros"] - 1})
    newer = state["header"].clone()
    newer[0] = 99
    with pytest.raises(nclab.NclabError, match="state version 1, got 99"):
        nclab.ClassMoments.from_state_dict(state | {"header": newer})


def test_ignored_rows_are_counted_and_add_nothing() -> None:
    data = cloud()
    padded = torch.cat([torch.full((3, 7), 1e6), data.features])
    labels = torch.cat([torch.full((3,), -100), data.labels])
    moments = nclab.ClassMoments(5, 7, scatter=True)
    moments.update(padded, labels)
    assert moments.ignored == 3
    assert torch.allclose(moments.means, filled().means, rtol=1e-14)
    assert torch.allclose(moments.within_scatter, filled().within_scatter, rtol=1e-12)


def test_a_rejected_batch_leaves_the_stream_unchanged() -> None:
    moments = filled()
    before = moments.state_dict()
    bad = torch.ones(2000, 7)
    bad[1999, 3] = float("nan")
    with pytest.raises(nclab.NclabError, match="got nan in row 2044, column 3"):
        moments.update(bad, torch.zeros(2000).long())
    with pytest.raises(nclab.NclabError, match=r"labels in \[0, 5\), got 5"):
        moments.update(torch.ones(2, 7), [0, 5])
    for key, value in moments.state_dict().items():
        assert torch.equal(value, before[key])


def test_derived_values_are_updated() -> None:
    moments = filled()
    before = moments.means.clone()
    moments.update(torch.full((5, 7), 10.0), torch.arange(5))
    assert not torch.equal(moments.means, before)


def test_select_and_grow() -> None:
    moments = filled(scatter=False)
    chosen = moments.select([3, 1])
    assert torch.equal(chosen.means, moments.means[[3, 1]])
    with pytest.raises(nclab.NclabError, match="scatter is pooled"):
        filled().select([0, 1])
    larger = filled()
    larger.grow(8)
    assert larger.missing == [5, 6, 7]
    assert torch.equal(larger.counts[:5], moments.counts)
    larger.update(torch.eye(3, 7), [5, 6, 7])
    assert torch.equal(larger.means[:5], moments.means)
    assert larger.means[6].tolist() == torch.eye(7)[1].tolist()


def test_scatter_must_be_requested() -> None:
    with pytest.raises(nclab.NclabError, match="scatter=True"):
        _ = filled(scatter=False).within_scatter
