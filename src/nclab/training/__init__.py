"""Making networks: data sets, models, fleets of networks trained together, and sweeps."""

from nclab.training import data, fleet, models, sweep

__all__ = ["data", "fleet", "models", "sweep"]
