"""Targets: the geometry that minimises a given loss for given class counts and penalties."""

from nclab.theory.targets.dispatch import target
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.limits import best_margin, limit_grams, softmax_code, softmax_margin
from nclab.theory.targets.result import Target
from nclab.theory.targets.setting import Setting

__all__ = [
    "Setting",
    "Target",
    "TargetDistance",
    "best_margin",
    "distance_to",
    "limit_grams",
    "softmax_code",
    "softmax_margin",
    "target",
]
