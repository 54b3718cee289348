"""nclab, the neural collapse laboratory.

Names are imported on first use, so that `import nclab` and `nclab --help` are fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nclab import metrics, monitor, statistics, theory, ulpm
    from nclab.errors import DataError, ModelError, NclabError, NclabWarning
    from nclab.measurement.arrays import measure_features
    from nclab.measurement.collapse import Collapse, Report
    from nclab.measurement.model import measure
    from nclab.measurement.shards import measure_shards
    from nclab.monitor.monitor import Monitor
    from nclab.statistics.logits import LogitStatistics
    from nclab.statistics.moments import ClassMoments
    from nclab.statistics.second_pass import SecondPass
    from nclab.theory.certificates.certificate import Certificate
    from nclab.theory.certificates.certification import certify
    from nclab.theory.targets.dispatch import target
    from nclab.theory.targets.result import Target

__version__ = "0.2.0.dev0"

_MODULES = {
    "Certificate": "nclab.theory.certificates.certificate",
    "ClassMoments": "nclab.statistics.moments",
    "Collapse": "nclab.measurement.collapse",
    "DataError": "nclab.errors",
    "LogitStatistics": "nclab.statistics.logits",
    "ModelError": "nclab.errors",
    "Monitor": "nclab.monitor.monitor",
    "NclabError": "nclab.errors",
    "NclabWarning": "nclab.errors",
    "Report": "nclab.measurement.collapse",
    "SecondPass": "nclab.statistics.second_pass",
    "Target": "nclab.theory.targets.result",
    "certify": "nclab.theory.certificates.certification",
    "measure": "nclab.measurement.model",
    "measure_features": "nclab.measurement.arrays",
    "measure_shards": "nclab.measurement.shards",
    "target": "nclab.theory.targets.dispatch",
}

_PACKAGES = ("metrics", "monitor", "statistics", "theory", "ulpm")

__all__ = [
    "Certificate",
    "ClassMoments",
    "Collapse",
    "DataError",
    "LogitStatistics",
    "ModelError",
    "Monitor",
    "NclabError",
    "NclabWarning",
    "Report",
    "SecondPass",
    "Target",
    "certify",
    "measure",
    "measure_features",
    "measure_shards",
    "metrics",
    "monitor",
    "statistics",
    "target",
    "theory",
    "ulpm",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"nclab.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'nclab' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
