"""A metric: a function of statistics, chosen by its parameter names, and its row in tables."""

from nclab.metrics.catalogue import Metric
from nclab.statistics import ClassMoments


def mean_modes(moments: ClassMoments) -> float:
    """Return the number of directions that the class means use, their participation ratio."""
    gram = moments.centred_means @ moments.centred_means.T  # (C, C)
    return float(gram.trace() ** 2 / gram.square().sum())


def _ideal(classes: int) -> float:
    """Return C - 1, because a simplex ETF uses all of its directions equally."""
    return classes - 1.0


MEAN_MODES = Metric(mean_modes, "example", _ideal, "directions that the class means use")
