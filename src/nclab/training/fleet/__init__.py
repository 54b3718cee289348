"""Training: many models at once, with exactly the steps of `torch.optim`."""

from nclab.training.fleet.course import EpochStats
from nclab.training.fleet.fleet import Fleet
from nclab.training.fleet.module_fleet import ModuleFleet, fleet_for
from nclab.training.fleet.recipe import Member, Recipe

__all__ = ["EpochStats", "Fleet", "Member", "ModuleFleet", "Recipe", "fleet_for"]
