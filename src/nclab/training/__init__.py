"""Training: many models at once, with exactly the steps of `torch.optim`."""

from nclab.training.course import EpochStats
from nclab.training.fleet import Fleet
from nclab.training.module_fleet import ModuleFleet, fleet_for
from nclab.training.recipe import Member, Recipe

__all__ = ["EpochStats", "Fleet", "Member", "ModuleFleet", "Recipe", "fleet_for"]
