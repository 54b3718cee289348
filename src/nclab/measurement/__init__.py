"""The doors: arrays, batches and models go in, a measurement comes out."""

from nclab.measurement.arrays import measure_features
from nclab.measurement.model import measure
from nclab.measurement.report import Report

__all__ = ["Report", "measure", "measure_features"]
