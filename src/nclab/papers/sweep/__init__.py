"""A sweep: every norm, weight decay and seed on the same data, trained by fleets, kept on disk."""

from nclab.papers.sweep.config import SweepConfig
from nclab.papers.sweep.rows import Row, rows_of
from nclab.papers.sweep.train import train_sweep

__all__ = ["Row", "SweepConfig", "rows_of", "train_sweep"]
