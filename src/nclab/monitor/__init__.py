"""Collapse watched in a training loop of any kind."""

from nclab.monitor.alarms import (
    DEFAULT_ALARMS,
    CollapseLost,
    CollapseReached,
    DeadFeatures,
    MinorityCollapse,
    NotFinite,
)
from nclab.monitor.console import ConsoleSink
from nclab.monitor.event import Alarm, Event
from nclab.monitor.monitor import Monitor
from nclab.monitor.record_sink import RecordSink
from nclab.monitor.schedule import Every, Logarithmic
from nclab.monitor.sinks import History
from nclab.monitor.sinks_loggers import MlflowSink, TensorBoardSink, WandbSink

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
