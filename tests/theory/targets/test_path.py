"""The path of optima that stands beside every measurement, against each optimum solved alone."""

import math

import pytest
import torch

import nclab
from nclab.errors import DataError
from nclab.theory.targets.distance import gram_distance
from nclab.theory.targets.path import TargetPath, target_path


@pytest.mark.parametrize("biased", [False, True])
def test_between_two_solved_optima(biased: bool) -> None:
    counts = (40.0, 8.0, 8.0, 2.0)
    path = target_path(counts, biased)
    for product in (0.5, 2.0, 4.0):
        norm = math.sqrt(4 * sum(counts)) * product
        found = path.at(norm)
        exact = nclab.target(counts=counts, norms=(1.0, product), bias=0.0 if biased else None)
        assert found.loss <= exact.loss * (1 + 1e-9)  # a bound that is proved
        assert found.loss == pytest.approx(exact.loss, rel=0.02)
        for one, other in ((found.left, exact.classifier_gram), (found.right, exact.mean_gram)):
            distance = gram_distance(one, other)
            assert distance is not None
            assert distance < 0.01
        assert found.weight == pytest.approx(exact.weight, rel=0.3)
    assert path is target_path(counts, biased)
    assert len(path._solved) <= 20


def test_what_is_dear_is_refused() -> None:
    with pytest.raises(DataError, match="at most 100 different counts"):
        TargetPath(tuple(range(1, 103)), False)
    with pytest.raises(DataError, match="at most"):
        target_path((3.0, 2.0, 1.0), False).at(1e6)
    assert torch.equal(target_path((3.0, 2.0), False).at(1e-6).bias, torch.zeros(2).double())
