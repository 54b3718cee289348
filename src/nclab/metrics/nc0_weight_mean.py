"""NC0: the classifier's rows sum to zero, which collapse needs."""

import math

from torch import Tensor

from nclab.metrics.rows import scaled_rows
from nclab.statistics.norms import norm


def nc0_weight_mean(weight: Tensor) -> float:
    r"""Norm of the sum of the classifier rows, over the largest that their norms allow.

    $$\frac{\|\sum_c w_c\|}{\sqrt C\,\|W\|_F}$$

    Source: zhao2026, Def. of NC0 (there without the denominator)
    Range: [0, 1]; 0 at collapse, 1 where all rows are equal.
    Invariant to: rotation, scale.

    >>> import torch
    >>> nc0_weight_mean(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    0.7071067811865475
    """
    rows = scaled_rows(weight)
    whole = norm(rows)
    return norm(rows.sum(0)) / (math.sqrt(len(rows)) * whole) if whole else float("nan")
