"""Tests of SecondPass: merging, and rejection of other data."""

import pytest
import torch

import nclab
from tests.clouds import cloud


def test_merged_parts_equal_one_pass() -> None:
    data = cloud()
    moments = nclab.ClassMoments(5, 7)
    moments.update(data.features, data.labels)
    predicted = (data.features @ data.weight.T).argmax(1)
    complete, left, right = (nclab.SecondPass(moments) for _ in range(3))
    complete.update(data.features, data.labels, predicted)
    left.update(data.features[:10], data.labels[:10], predicted[:10])
    right.update(data.features[10:], data.labels[10:], predicted[10:])
    left.merge(right)
    assert torch.allclose(left.unit_means, complete.unit_means, rtol=1e-13)
    assert torch.equal(left.nearest_correct, complete.nearest_correct)
    assert left.nearest_agrees == complete.nearest_agrees
    assert left.predictions == 45


def test_other_data_in_the_second_pass_is_rejected() -> None:
    moments = nclab.ClassMoments(3, 2)
    moments.update([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    second = nclab.SecondPass(moments)
    with pytest.raises(nclab.NclabError, match="got a sample of class 2"):
        second.update([[1.0, 1.0]], [2])
    with pytest.raises(nclab.NclabError, match="Expected 1 predictions, got 2"):
        second.update([[1.0, 1.0]], [0], torch.tensor([0, 1]))
    other = nclab.ClassMoments(3, 2)
    other.update([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(nclab.NclabError, match="same class means"):
        second.merge(nclab.SecondPass(other))
