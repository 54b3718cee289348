"""A sweep: every norm, weight decay and seed on the same data, trained by fleets, kept on disk."""

from nclab.experiments.sweep.config import SweepConfig
from nclab.experiments.sweep.rows import Row, rows_of
from nclab.experiments.sweep.train import train_sweep

__all__ = ["Row", "SweepConfig", "rows_of", "train_sweep"]
