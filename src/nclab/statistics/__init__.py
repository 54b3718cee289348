"""Streaming sums per class: they read each batch once, merge exactly and contain no metric."""

from nclab.statistics.logits import LogitStatistics
from nclab.statistics.moments import ClassMoments
from nclab.statistics.second_pass import DirectionalSpread, ReferencePass, SecondPass

__all__ = ["ClassMoments", "DirectionalSpread", "LogitStatistics", "ReferencePass", "SecondPass"]
