"""Minority collapse: the classifier rows of the small classes turn into one direction."""

from torch import Tensor

from nclab.metrics.rows import centred_rows
from nclab.statistics import ClassMoments
from nclab.statistics.norms import unit_rows

Classes = Tensor | None


def minority_cosine(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Mean cosine of the centred classifier rows of two different minority classes.

    $$\operatorname*{Avg}_{c\ne c'\in S}\cos(\dot w_c,\dot w_{c'}),\quad
      S=\{c: n_c\le\tfrac12\max_k n_k\}$$

    Source: fang2021, Sec. on minority collapse (there for two class sizes)
    Range: [-1/(|S| - 1), 1]; -1/(C - 1) at a simplex ETF, 1 where the minority has collapsed into
        one direction; nan if fewer than two classes are that small.
    Invariant to: rotation, translation, scale of either, scale of every single feature.

    >>> import torch
    >>> moments = ClassMoments(3, 1 + 1)
    >>> moments.update([[0.0, 1.0]] * 4, [0, 0, 1, 2])
    >>> round(minority_cosine(moments, torch.tensor([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])), 12)
    0.0
    """
    small = 2 * moments.counts <= moments.counts.max()
    count = int(small.sum())
    if count < 2:
        return float("nan")
    rows = centred_rows(weight)
    units = unit_rows((rows if classes is None else rows[classes])[small])
    return float(units.sum(0).square().sum() - units.square().sum()) / (count * (count - 1))
