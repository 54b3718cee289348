"""Training: many models at once, with exactly the steps of `torch.optim`."""

from nclab.training.fleet import EpochStats, Fleet
from nclab.training.recipe import Member, Recipe

__all__ = ["EpochStats", "Fleet", "Member", "Recipe"]
