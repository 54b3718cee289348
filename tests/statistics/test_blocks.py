"""Tests of per-class sums that touch only the classes of a batch."""

import pytest
import torch

import nclab
from nclab.statistics import blocks
from nclab.statistics.blocks import add_by_class
from tests.clouds import cloud


def test_sparse_sums_equal_dense_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, values = torch.tensor([4, 1, 4]), torch.tensor([0.5, 2.0, 0.25]).double()
    dense, sparse = torch.zeros(2, 6).double()
    add_by_class(dense, classes, values)
    monkeypatch.setattr(blocks, "MANY_CLASSES", 2)
    add_by_class(sparse, classes, values)
    assert sparse.tolist() == dense.tolist() == [0, 2, 0, 0, 0.75, 0]
    counts = torch.zeros(6, dtype=torch.int64)
    add_by_class(counts, classes)
    assert counts.tolist() == [0, 1, 0, 0, 2, 0]


def test_moments_of_many_classes_merge_like_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cloud(num_classes=23, dim=4, per_class=5, offset=7.0)

    def merge_parts() -> nclab.ClassMoments:
        parts = []
        for rows in torch.arange(len(data.labels)).split(17):
            part = nclab.ClassMoments(23, 4, scatter=True)
            part.update(data.features[rows], data.labels[rows])
            parts.append(part)
        for part in parts[1:]:
            parts[0].merge(part)
        return nclab.ClassMoments.from_state_dict(parts[0].state_dict(copy=False), copy=False)

    expected = merge_parts()
    monkeypatch.setattr(blocks, "MANY_CLASSES", 5)
    merged = merge_parts()
    assert torch.equal(merged.counts, expected.counts)
    for name in ("means", "unit_means", "variances", "within_scatter"):
        assert torch.allclose(
            getattr(merged, name), getattr(expected, name), rtol=1e-12, atol=1e-12
        )
