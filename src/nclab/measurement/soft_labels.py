"""Soft labels: distributions over the classes, as label smoothing and mixed samples give them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.statistics.checks import as_tensor

NO_BOUND = "the bound is that of hard labels, the loss that of soft ones"
BOUNDS = ("optimal_loss", "excess_loss")


def split_soft(labels: Any, num_classes: int | None = None) -> tuple[Tensor, Tensor]:
    """Class numbers, the largest entries, and the float64 distributions themselves.

    >>> classes, targets = split_soft([[0.9, 0.1], [0.2, 0.8]])
    >>> classes.tolist(), targets[0].tolist()
    ([0, 1], [0.9, 0.1])
    """
    targets = as_tensor(labels, "labels").double()
    if targets.ndim < 2 or (num_classes is not None and targets.shape[-1] != num_classes):
        wanted = "classes" if num_classes is None else num_classes
        raise DataError(
            f"Expected soft labels of shape (samples, {wanted}), got {tuple(targets.shape)}. "
            "Class numbers need no soft=True."
        )
    flat = targets.reshape(-1, targets.shape[-1])
    sums = flat.sum(1)
    if bool((flat < 0).any()) or not torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        worst = float(sums[(sums - 1).abs().argmax()]) if len(sums) else 0.0
        raise DataError(
            "Expected soft labels that are distributions, from 0 upwards with sum 1, got a row of "
            f"sum {worst:.4g}. Labels of several classes at once have no class means."
        )
    return targets.argmax(-1), flat


def look_one_hot(labels: Tensor) -> bool:
    """Whether labels are rows of one number a class rather than class numbers."""
    if labels.ndim < 2 or labels.shape[-1] < 2:
        return False
    if labels.is_floating_point():
        return True
    return bool((labels.sum(-1) == 1).all()) and int(labels.min()) == 0


def refuse_one_hot(labels: Tensor, error: Exception | None = None) -> None:
    """Say what to do about rows of numbers in the place of class numbers, after what went wrong."""
    if look_one_hot(labels):
        what = error or (
            f"Expected class numbers as labels, got {labels.dtype} of shape {tuple(labels.shape)}."
        )
        raise DataError(
            f"{what} Of rows of one number a class pass labels.argmax(-1), or soft=True to measure "
            "their loss, too."
        ) from error


def without_bounds(collapse: Collapse) -> Collapse:
    """The measurement without what holds for hard labels only."""
    values = {**collapse.values, **dict.fromkeys(BOUNDS)}
    notes = {**collapse.notes, **dict.fromkeys(BOUNDS, NO_BOUND)}
    return replace(collapse, values=values, notes=notes)
