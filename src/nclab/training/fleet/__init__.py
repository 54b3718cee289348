"""Training of many models at once, with exactly the steps of `torch.optim`."""

from nclab.training.fleet.base import EpochStats
from nclab.training.fleet.fleet import Backend, Fleet
from nclab.training.fleet.module_fleet import ModuleFleet, make_fleet
from nclab.training.fleet.recipe import Loss, Member, Optimizer, Recipe

__all__ = [
    "Backend",
    "EpochStats",
    "Fleet",
    "Loss",
    "Member",
    "ModuleFleet",
    "Optimizer",
    "Recipe",
    "make_fleet",
]
