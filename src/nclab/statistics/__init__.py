"""Sums for each class, added up batch by batch; sums of several streams merge exactly."""

from nclab.statistics.logits import LogitStatistics
from nclab.statistics.moments import ClassMoments
from nclab.statistics.second_pass import ReferencePass, SecondPass

__all__ = ["ClassMoments", "LogitStatistics", "ReferencePass", "SecondPass"]
