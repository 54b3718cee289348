"""A metric: a function of the statistics that its parameters name, and its row in the tables."""

from nclab.metrics.catalogue import Metric
from nclab.statistics import ClassMoments


def mean_modes(moments: ClassMoments) -> float:
    """How many directions the class means use: the participation ratio of their variances."""
    gram = moments.centred_means @ moments.centred_means.T  # (C, C)
    return float(gram.trace() ** 2 / gram.square().sum())


def _ideal(classes: int) -> float:
    """A simplex ETF uses all of its C - 1 directions equally."""
    return classes - 1.0


MEAN_MODES = Metric(mean_modes, "example", _ideal, "directions that the class means use")
