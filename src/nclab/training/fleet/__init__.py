"""Training of many models at once, with exactly the steps of `torch.optim`."""

from nclab.training.fleet.fleet import Backend, EpochStats, Fleet
from nclab.training.fleet.recipe import Loss, Member, Optimizer, Recipe

__all__ = ["Backend", "EpochStats", "Fleet", "Loss", "Member", "Optimizer", "Recipe"]
