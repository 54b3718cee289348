"""Measurements of neural collapse: from arrays, models or files to `Collapse` and `Report`."""

from nclab.measurement.arrays import measure_features
from nclab.measurement.collapse import Collapse, Report
from nclab.measurement.model import measure
from nclab.measurement.results import ClassPair, Interval, OptimumDistance, Strata, Stratum
from nclab.measurement.shards import measure_shards

__all__ = [
    "ClassPair",
    "Collapse",
    "Interval",
    "OptimumDistance",
    "Report",
    "Strata",
    "Stratum",
    "measure",
    "measure_features",
    "measure_shards",
]
