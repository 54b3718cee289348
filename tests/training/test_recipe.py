"""Rates, steps and refusals of a recipe."""

from typing import Any

import pytest

from nclab.errors import NclabError
from nclab.training import Member, Recipe


def test_rate_falls_at_every_milestone() -> None:
    rates = [Recipe(epochs=300).rate_at(epoch) for epoch in (0, 74, 75, 149, 150, 224, 225, 299)]
    expected = [0.0679, 0.0679, 0.00679, 0.00679, 0.000679, 0.000679, 0.0000679, 0.0000679]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_steps_of_an_epoch() -> None:
    assert Recipe().steps(10_000) == 79
    assert Recipe(drop_last=True).steps(10_000) == 78
    assert Recipe(batch=100).steps(10_000) == 100


@pytest.mark.parametrize(
    "options",
    [{"epochs": -1}, {"batch": 0}, {"rate": -1.0}, {"momentum": 1.0}, {"milestones": (75,)}],
)
def test_bad_recipes_are_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(NclabError, match="Expected"):
        Recipe(**options)


@pytest.mark.parametrize(
    "options",
    [{"norm": "batch"}, {"weight_decay": -1.0}, {"weight_decay": float("nan")}, {"seed": -1}],
)
def test_bad_members_are_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(NclabError, match="Expected"):
        Member(**options)
