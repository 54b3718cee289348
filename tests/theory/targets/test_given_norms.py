"""The path of optima behind every measurement, against each optimum solved alone."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import nclab
from nclab.errors import DataError
from nclab.theory.targets import program_solver
from nclab.theory.targets.descent import descend
from nclab.theory.targets.distance import gram_distance
from nclab.theory.targets.given_norms import LAST, STEP, TargetPath, target_path
from nclab.theory.targets.program_solver import solve
from nclab.theory.targets.setting import factor_grams


@pytest.mark.parametrize("biased", [False, True])
def test_between_two_solved_optima(biased: bool) -> None:
    counts = (40.0, 8.0, 8.0, 2.0)
    path = target_path(counts, biased)
    for product in (0.5, 2.0, 4.0):
        norm = math.sqrt(4 * sum(counts)) * product
        solution = path.at(norm)
        exact = nclab.target(counts=counts, norms=(1.0, product), bias=0.0 if biased else None)
        assert solution.loss <= exact.loss * (1 + 1e-9)  # a bound that is proved
        assert solution.loss == pytest.approx(exact.loss, rel=0.02)
        for gram, expected in (
            (solution.left, exact.classifier_gram),
            (solution.right, exact.mean_gram),
        ):
            distance = gram_distance(gram, expected)
            assert distance is not None
            assert distance < 0.01
        assert solution.weight == pytest.approx(exact.weight, rel=0.3)
    assert path is target_path(counts, biased)
    assert len(path._solved) <= 20


def test_expensive_paths_raise() -> None:
    with pytest.raises(DataError, match="at most 100 different class counts"):
        TargetPath(tuple(range(1, 103)), False)
    with pytest.raises(DataError, match="at most"):
        target_path((3.0, 2.0, 1.0), False).at(1e6)
    assert torch.equal(target_path((3.0, 2.0), False).at(1e-6).bias, torch.zeros(2).double())


@pytest.mark.parametrize("biased", [False, True])
def test_few_optima_are_solved_and_their_grams_are_those_of_the_logits(biased: bool) -> None:
    counts = (500.0, 300.0, 300.0, 300.0, 39.0, 14.0, 14.0, 5.0, 5.0, 5.0)
    for product in (0.5, 2.0, 5.0, 10.0, 17.0):
        path = TargetPath(counts, biased)
        path.at(math.sqrt(10 * sum(counts)) * product)
        assert len(path._solved) <= 5
        for index, point in tuple(path._solved.items()):
            solution = path.at(point.norm)
            left, right, values = factor_grams(solution.logits, path.counts)
            assert torch.allclose(solution.left, left, rtol=1e-9, atol=1e-9 * float(left.max()))
            assert torch.allclose(solution.right, right, rtol=1e-9, atol=1e-9 * float(right.max()))
            assert float(values.sum()) == pytest.approx(point.norm, rel=1e-12)
            assert solution.weight == pytest.approx(path.critical * STEP**index, rel=1e-12)


@pytest.mark.parametrize("biased", [False, True])
def test_large_groups_are_solved_in_few_steps(
    biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of lifts and biases save 39 of 40 steps."""
    steps: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        solution = descend(*arguments, **options)
        steps.append(solution.steps)
        return solution

    monkeypatch.setattr(program_solver, "descend", counted)
    path = TargetPath(tuple(round(1280 * 256 ** (-k / 39)) for k in range(40)) * 25, biased)
    solution = path._solved_at(12)
    assert sum(steps) <= 400
    relaxed = solve(replace(path.program, weight=solution.weight), gap=1e-9)
    assert relaxed.objective - solution.lower < 1e-7 * relaxed.objective


def test_too_large_norms_raise_before_solving() -> None:
    path = TargetPath((40.0, 8.0, 8.0, 2.0), True)
    with pytest.raises(DataError, match=r"alpha beta is 24, and should be at most about \d"):
        path.at(math.sqrt(4 * 58) * 24)
    assert not path._solved
    assert path._solved_at(LAST).norm < path.largest_norm
