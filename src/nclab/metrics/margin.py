"""The margin of the classifier and how close it is to the largest its norms allow."""

import math

from torch import Tensor

from nclab.metrics.rows import weight_norm
from nclab.statistics import ClassMoments, LogitStatistics
from nclab.statistics.norms import VANISHES


def margin(logits: LogitStatistics) -> float:
    r"""The smallest gap between the logit of the label and the best other logit.

    $$q_{\min} = \min_{c,i}\bigl(z_c - \max_{j\ne c} z_j\bigr)$$

    Source: ji2022, Def. 3.1
    Range: (-inf, inf); positive when every sample is classified correctly.
    Invariant to: rotation of both, translation of the classifier.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[2.0, 0.0], [0.0, 3.0]], [0, 1])
    >>> margin(logits)
    2.0
    """
    return float(logits.margins.min())


def normalised_margin(logits: LogitStatistics, moments: ClassMoments, weight: Tensor) -> float:
    r"""The margin over the largest one that the norms allow.

    $$\frac{2(C-1)\sqrt n\; q_{\min}}{\|W\|_F^2+\|H\|_F^2}$$

    Source: ji2022, Lemma 3.1
    Range: (-inf, 1]; 1 at collapse with $\|W\|_F=\|H\|_F$.
    Invariant to: rotation of both, a common scale of W and H.

    Classes may differ in size: n is their mean size and $\|H\|_F^2 = nC\alpha^2$ with alpha
    averaged over classes, for which the lemma holds too; with balanced classes both are the
    lemma's own. A bias drops out of the bound.

    >>> import torch
    >>> moments, logits = ClassMoments(2, 1), LogitStatistics(2)
    >>> moments.update([[1.0], [-1.0]], [0, 1])
    >>> weight = torch.tensor([[1.0], [-1.0]])
    >>> _ = logits.update([[1.0, -1.0], [-1.0, 1.0]], [0, 1])
    >>> normalised_margin(logits, moments, weight)
    1.0
    """
    size = moments.total / moments.num_classes
    features_square = moments.total * float(moments.mean_square_norms.mean())
    norm = math.hypot(weight_norm(weight), math.sqrt(features_square))
    if norm == 0:
        return math.nan
    top = margin(logits) * 2 * (moments.num_classes - 1) * size**0.5
    squares = weight_norm(weight) ** 2 + features_square
    # Squares may vanish or overflow where the quotient does not.
    return top / squares if VANISHES < squares < 1 / VANISHES else top / norm / norm
