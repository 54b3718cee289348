"""The monitor: measurements during any training loop, alarms, and sinks for the results."""

from nclab.monitor.event import (
    DEFAULT_ALARMS,
    Alarm,
    CollapseLost,
    CollapseReached,
    DeadFeatures,
    Event,
    History,
    MinorityCollapse,
    NotFinite,
)
from nclab.monitor.monitor import Every, Logarithmic, Monitor
from nclab.monitor.sinks import ConsoleSink, MlflowSink, RecordSink, TensorBoardSink, WandbSink

__all__ = [
    "DEFAULT_ALARMS",
    "Alarm",
    "CollapseLost",
    "CollapseReached",
    "ConsoleSink",
    "DeadFeatures",
    "Event",
    "Every",
    "History",
    "Logarithmic",
    "MinorityCollapse",
    "MlflowSink",
    "Monitor",
    "NotFinite",
    "RecordSink",
    "TensorBoardSink",
    "WandbSink",
]
