"""Sweeps: every combination of data, network and recipe, trained by fleets, kept on disk."""

from nclab.training.sweep.axes import Axes
from nclab.training.sweep.config import SweepConfig
from nclab.training.sweep.cost import Forecast, forecast
from nclab.training.sweep.plan import SweepPlan, plan_sweep
from nclab.training.sweep.results_table import results, write_results
from nclab.training.sweep.rows import Row, rows_of
from nclab.training.sweep.train import train_plan, train_sweep

__all__ = [
    "Axes",
    "Forecast",
    "Row",
    "SweepConfig",
    "SweepPlan",
    "forecast",
    "plan_sweep",
    "results",
    "rows_of",
    "train_plan",
    "train_sweep",
    "write_results",
]
