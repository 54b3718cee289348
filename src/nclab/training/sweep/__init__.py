"""Sweeps: every combination of data, network and recipe, trained by fleets and kept on disk."""

from nclab.training.sweep.config import SweepConfig
from nclab.training.sweep.plan import Axes, SweepPlan, plan_sweep
from nclab.training.sweep.rows import Row, results, rows_of, write_results
from nclab.training.sweep.rows_only import TrainedNetwork, train_rows
from nclab.training.sweep.train import train_plan, train_sweep

__all__ = [
    "Axes",
    "Row",
    "SweepConfig",
    "SweepPlan",
    "TrainedNetwork",
    "plan_sweep",
    "results",
    "rows_of",
    "train_plan",
    "train_rows",
    "train_sweep",
    "write_results",
]
