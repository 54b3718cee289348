"""Held-out data: a measurement beside the class means of another, such as test beside train."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.rounding import lost_beside_reference
from nclab.metrics.catalogue import REFERENCE_METRICS
from nclab.metrics.view import parameters
from nclab.statistics import ClassMoments
from nclab.statistics.second_pass import ReferencePass

Reference = Collapse | ClassMoments
"""Whose class means other data are compared with."""
NO_WEIGHT = "no classifier weights were given"
ONE_SIDED = "the error of the reference is not known here"
UNDEFINED = "undefined: the reference has no spread to compare with"


def look_against(reference: Any, names: tuple[str, ...] | None = None) -> ReferencePass:
    """A look at the class means of a measurement, or of moments.

    Where both sides have names of their classes, classes of one name belong together, whatever
    their numbers are.
    """
    if isinstance(reference, Collapse):
        numbers = torch.tensor(_numbers(reference, names))
        order = numbers.argsort()
        moments = reference.moments
        if not torch.equal(order, torch.arange(len(order))):
            moments = moments.select(order.to(moments.device))
        return ReferencePass(moments, numbers[order])
    if isinstance(reference, ClassMoments):
        return ReferencePass(reference)
    raise DataError(
        f"Expected reference= a measurement of nclab or ClassMoments, got a "
        f"{type(reference).__name__}."
    )


def _numbers(reference: Collapse, names: tuple[str, ...] | None) -> list[int]:
    """What the classes of a reference are called here."""
    if reference.class_names is None or names is None:
        return list(reference.classes)
    unknown = [name for name in reference.class_names if name not in names]
    if unknown:
        raise DataError(
            f"Expected a reference with the same classes, got one with {unknown[0]!r}, which is "
            "none of class_names."
        )
    return [names.index(name) for name in reference.class_names]


def compared(collapse: Collapse, look: ReferencePass) -> Collapse:
    """The measurement with the metrics that compare it with a reference."""
    statistics: Mapping[str, Any] = {"reference": look, "moments": collapse.moments}
    values, notes, no_interval = {**collapse.values}, {**collapse.notes}, {**collapse.no_interval}
    for metric in REFERENCE_METRICS:
        own = [statistics[name] for name in parameters(metric.function)]
        value: float | None = metric.function(*own)
        if value is None or not math.isfinite(value):
            missing = metric.name == "reference_ncc_agreement" and not look.predictions
            notes[metric.name] = NO_WEIGHT if missing else UNDEFINED
            value = None
        elif collapse.intervals is not None:
            no_interval[metric.name] = ONE_SIDED
        values[metric.name] = value
    said = (*collapse.warnings, *lost_beside_reference(look, collapse.moments, values))
    return replace(collapse, values=values, notes=notes, no_interval=no_interval, warnings=said)
