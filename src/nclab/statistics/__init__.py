"""Statistics of features and logits for each class, accumulated batch by batch.

The statistics of several streams merge exactly.
"""

from nclab.statistics.logits import LogitStatistics
from nclab.statistics.moments import ClassMoments
from nclab.statistics.second_pass import ReferencePass, SecondPass

__all__ = ["ClassMoments", "LogitStatistics", "ReferencePass", "SecondPass"]
