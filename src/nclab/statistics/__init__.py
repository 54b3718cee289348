"""Streaming sums per class: they read each batch once, merge exactly and contain no metric."""

from nclab.statistics.logits import LogitStatistics
from nclab.statistics.moments import ClassMoments
from nclab.statistics.second_pass import ReferencePass, SecondPass

__all__ = ["ClassMoments", "LogitStatistics", "ReferencePass", "SecondPass"]
