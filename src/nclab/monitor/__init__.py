"""The monitor: measurements during any training loop, alarms, and sinks for the results."""

from nclab.monitor.alarms import (
    DEFAULT_ALARMS,
    CollapseLost,
    CollapseReached,
    DeadFeatures,
    MinorityCollapse,
    NotFinite,
)
from nclab.monitor.event import Alarm, Event, History
from nclab.monitor.loggers import MlflowSink, TensorBoardSink, WandbSink
from nclab.monitor.monitor import Monitor
from nclab.monitor.schedule import Every, Logarithmic
from nclab.monitor.sinks import ConsoleSink, RecordSink

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
