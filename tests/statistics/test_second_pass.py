"""SecondPass: two passes over the same data."""

import pytest
import torch

import nclab
from tests.clouds import cloud


def test_parts_merge_to_the_whole() -> None:
    data = cloud()
    moments = nclab.ClassMoments(5, 7)
    moments.update(data.features, data.labels)
    predicted = (data.features @ data.weight.T).argmax(1)
    whole, left, right = (nclab.SecondPass(moments) for _ in range(3))
    whole.update(data.features, data.labels, predicted)
    left.update(data.features[:10], data.labels[:10], predicted[:10])
    right.update(data.features[10:], data.labels[10:], predicted[10:])
    left.merge(right)
    assert torch.allclose(left.unit_means, whole.unit_means, rtol=1e-13)
    assert torch.equal(left.nearest_correct, whole.nearest_correct)
    assert left.nearest_agrees == whole.nearest_agrees
    assert left.predictions == 45


def test_other_data_in_the_second_pass_is_refused() -> None:
    moments = nclab.ClassMoments(3, 2)
    moments.update([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    look = nclab.SecondPass(moments)
    with pytest.raises(nclab.NclabError, match="got a sample of class 2"):
        look.update([[1.0, 1.0]], [2])
    with pytest.raises(nclab.NclabError, match="Expected 1 predictions, got 2"):
        look.update([[1.0, 1.0]], [0], torch.tensor([0, 1]))
    other = nclab.ClassMoments(3, 2)
    other.update([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(nclab.NclabError, match="same class means"):
        look.merge(nclab.SecondPass(other))
