"""Streams: sufficient statistics that read data once, merge exactly and hold no formula."""

from nclab.statistics.directional import DirectionalSpread
from nclab.statistics.logits import LogitStatistics
from nclab.statistics.moments import ClassMoments
from nclab.statistics.second_pass import SecondPass
from nclab.statistics.sharded import ShardedMoments

__all__ = ["ClassMoments", "DirectionalSpread", "LogitStatistics", "SecondPass", "ShardedMoments"]
