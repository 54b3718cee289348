"""Learning rates and steps of a recipe; bad options raise."""

from typing import Any

import pytest

from nclab.errors import NclabError
from nclab.training.fleet import Member, Recipe


def test_rate_falls_at_every_milestone() -> None:
    rates = [Recipe(epochs=300).rate_at(epoch) for epoch in (0, 74, 75, 149, 150, 224, 225, 299)]
    expected = [0.0679, 0.0679, 0.00679, 0.00679, 0.000679, 0.000679, 0.0000679, 0.0000679]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_steps_of_an_epoch() -> None:
    assert Recipe().steps(10_000) == 79
    assert Recipe(drop_last=True).steps(10_000) == 78
    assert Recipe(batch=100).steps(10_000) == 100


@pytest.mark.parametrize("warmup", [0.0, 0.3])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_schedules_are_those_of_torch(schedule: Any, warmup: float) -> None:
    from torch import nn, optim
    from torch.optim import lr_scheduler

    recipe = Recipe(epochs=10, rate=0.4, schedule=schedule, warmup=warmup)
    optimiser = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.4)
    rising = round(10 * warmup)
    later: Any = lr_scheduler.ConstantLR(optimiser, factor=1.0)
    if schedule == "cosine":
        later = lr_scheduler.CosineAnnealingLR(optimiser, T_max=10 - rising)
    if rising:
        first = lr_scheduler.LinearLR(optimiser, 1 / (rising + 1), total_iters=rising)
        later = lr_scheduler.SequentialLR(optimiser, [first, later], [rising])
    wanted = []
    for _ in range(10):
        wanted.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        later.step()
    assert [recipe.rate_at(epoch) for epoch in range(10)] == pytest.approx(wanted, rel=1e-12)


def test_milestones_follow_a_warm_up() -> None:
    recipe = Recipe(epochs=8, rate=0.4, warmup=0.25, milestones=(0.5,))
    expected = [0.4 / 3, 0.8 / 3, 0.4, 0.4, 0.04, 0.04, 0.04, 0.04]
    assert [recipe.rate_at(epoch) for epoch in range(8)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": -1},
        {"batch": 0},
        {"rate": -1.0},
        {"momentum": 1.0},
        {"milestones": (75,)},
        {"optimizer": "lion"},
        {"schedule": "linear"},
        {"loss": "hinge"},
        {"beta2": 1.0},
        {"warmup": 1.0},
        {"smoothing": -0.1},
        {"focal_gamma": float("nan")},
        {"head_bias_decay": -1.0},
        {"nesterov": True, "optimizer": "adam"},
        {"nesterov": True, "momentum": 0.0},
    ],
)
def test_bad_recipes_raise(options: dict[str, Any]) -> None:
    with pytest.raises(NclabError, match="Expected"):
        Recipe(**options)


@pytest.mark.parametrize(
    "options",
    [{"norm": "batch"}, {"weight_decay": -1.0}, {"weight_decay": float("nan")}, {"seed": -1}],
)
def test_bad_members_raise(options: dict[str, Any]) -> None:
    with pytest.raises(NclabError, match="Expected"):
        Member(**options)
