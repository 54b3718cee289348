"""Generalised collapse, for more classes than dimensions: evenly spread means, uniform duality."""

import math

from torch import Tensor

from nclab.metrics.nc1_variability import DOUBTFUL
from nclab.metrics.pairs import LogDistance, reduce_pairs
from nclab.metrics.rows import cosines, mean_norms
from nclab.metrics.view import remark
from nclab.statistics import ClassMoments
from nclab.statistics.norms import unit_rows
from nclab.statistics.sums import UNIT, unit_error

Classes = Tensor | None


def gnc2_uniformity(moments: ClassMoments) -> float:
    r"""How unevenly the directions of the class means lie on the sphere.

    $$\operatorname*{Std}_{c<c'}\log\tfrac1{\|\hat\mu_c-\hat\mu_{c'}\|}\Big/
      \Bigl|\operatorname*{Avg}_{c<c'}\log\tfrac1{\|\hat\mu_c-\hat\mu_{c'}\|}\Bigr|,\quad
      \hat\mu_c=\frac{\mu_c-\mu_G}{\|\mu_c-\mu_G\|}$$

    Source: wu2024, Def. of GNC2 (logarithmic kernel)
    Range: [0, inf); 0 at collapse, where all distances agree; nan where two directions coincide.
        Large, too, where the mean logarithm is near 0, the mean distance near 1.
    Invariant to: rotation, translation, scale.

    Costs half a C x C x d GEMM, in tiles, and a logarithm per pair.

    >>> moments = ClassMoments(3, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.5], [-1.0, -0.5]], [0, 1, 2])
    >>> round(gnc2_uniformity(moments), 6)
    0.44279
    """
    units = unit_rows(moments.centred_means)
    logarithms = LogDistance(units)
    reduce_pairs(units, logarithms)
    found = logarithms.deviation
    remark(_near_directions(moments, logarithms))
    if found.pairs == 1 and math.isfinite(found.mean):  # two classes: nothing can differ
        return 0.0
    return found.standard_deviation / abs(found.mean) if found.mean else float("nan")


def _near_directions(moments: ClassMoments, logarithms: LogDistance) -> str | None:
    """What to say where directions nearly coincide or logarithms cancel, so that rounding shows."""
    found = logarithms.deviation
    shortest, closest = float(mean_norms(moments).min()), math.exp(-logarithms.farthest)
    if found.pairs == 1 or not found.mean or not shortest or not closest:
        return None
    error = 2 * unit_error(moments) * moments.size / shortest / closest + 1e4 * UNIT
    error *= (1 + found.standard_deviation / abs(found.mean)) / abs(found.mean)
    if not error >= DOUBTFUL:
        return None
    return (
        f"gnc2_uniformity is right to about {error:.1g} only: two directions nearly coincide, or "
        "the mean logarithm is nearly 0."
    )


def unc3_duality(moments: ClassMoments, weight: Tensor, classes: Classes = None) -> float:
    r"""Variance over classes of the cosine of classifier row and centred class mean.

    $$\operatorname{Var}_c\cos(w_c,\mu_c-\mu_G)$$

    Source: wu2024, Def. of UNC3
    Range: [0, 1]; 0 at collapse, and wherever all classes are aligned alike, well or badly. The
        paper's code takes the inner product instead of the cosine.
    Invariant to: rotation of both, scale of either, translation of the features.

    >>> import torch
    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    >>> unc3_duality(moments, torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    0.25
    """
    rows = weight.double()
    found = cosines(rows if classes is None else rows[classes], moments.centred_means)
    return float(found.var(correction=0))
