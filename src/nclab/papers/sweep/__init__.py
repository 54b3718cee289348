"""Sweeps: every combination of data, network and recipe, trained by fleets, kept on disk."""

from nclab.papers.sweep.axes import Axes
from nclab.papers.sweep.config import SweepConfig
from nclab.papers.sweep.cost import Forecast, forecast
from nclab.papers.sweep.plan import SweepPlan, plan_sweep
from nclab.papers.sweep.results_table import results, write_results
from nclab.papers.sweep.rows import Row, rows_of
from nclab.papers.sweep.train import train_plan, train_sweep

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
