"""Targets: the geometry that minimises a given loss for given class counts and penalties."""

from nclab.theory.targets.closed_forms import multi_label_target
from nclab.theory.targets.dispatch import target
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.limits import best_margin, limit_grams, softmax_code, softmax_margin
from nclab.theory.targets.phase_maps import phase_map, read_points, with_points
from nclab.theory.targets.result import Target
from nclab.theory.targets.setting import Setting
from nclab.theory.targets.squared_error import regression_target

__all__ = [
    "Setting",
    "Target",
    "TargetDistance",
    "best_margin",
    "distance_to",
    "limit_grams",
    "multi_label_target",
    "phase_map",
    "read_points",
    "regression_target",
    "softmax_code",
    "softmax_margin",
    "target",
    "with_points",
]
