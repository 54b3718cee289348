"""Test collapse: other data, such as a test set, around the class means of the training data.

Strong and weak test collapse are ideas of Hui, Belkin and Nakkiran (2022), arXiv:2202.08384.
"""

import torch

from nclab.statistics import ClassMoments
from nclab.statistics.norms import VANISHES
from nclab.statistics.second_pass import ReferencePass


def reference_ncc_accuracy(reference: ReferencePass) -> float:
    r"""Share of samples whose nearest class mean of the reference is that of their own class.

    $$\Pr_{test}\bigl[\arg\min_c\|h-\mu_c^{train}\| = y\bigr]$$

    Range: [0, 1]; 1 at strong test collapse. Averages over samples; nan where all means coincide.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.0], [-0.5]], [0, 1], reference=train).reference_ncc_accuracy
    0.5
    """
    if reference.means_coincide:
        return float("nan")
    return int(reference.nearest_correct.sum()) / int(reference.counts.sum())


def reference_ncc_agreement(reference: ReferencePass) -> float:
    r"""Share of samples on which classifier and nearest class mean of the reference decide alike.

    $$\Pr_{test}\bigl[\arg\min_c\|h-\mu_c^{train}\| = \arg\max_c (Wh+b)_c\bigr]$$

    Source: papyan2020, Fig. 7, on other data
    Range: [0, 1]; nan if no predictions were given.
    Invariant to: rotation of both, translation of the classifier, scale of the classifier.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> weight, bias = [[-1.0], [1.0]], [2.0, 0.0]
    >>> test = nclab.measure_features([[-1.0], [0.5]], [0, 1], weight, bias, reference=train)
    >>> test.reference_ncc_agreement
    0.5
    """
    if reference.means_coincide or not reference.predictions:
        return float("nan")
    return reference.agrees / reference.predictions


def strong_test_collapse(reference: ReferencePass) -> float:
    r"""Squared distance to the reference's mean of the own class, over the spread of those means.

    $$\frac{\mathbb E_{test}\|h-\mu_y^{train}\|^2}{\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    Range: [0, inf); 0 at strong test collapse. Of the reference's own features `nc1_trace_ratio`.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).strong_test_collapse
    0.25
    """
    return _ratio(float(reference.squares.sum()) / int(reference.counts.sum()), reference)


def weak_test_collapse(reference: ReferencePass) -> float:
    r"""The same around any C points, whatever the class.

    $$\frac{\min_{m}\,\mathbb E_{test}\min_k\|h-m_k\|^2}{\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    The points are those of one step of k-means from the reference's class means, so that the value
    is an upper bound of the least one; it is never above `strong_test_collapse`.

    Range: [0, inf); 0 at weak test collapse.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).weak_test_collapse
    0.0
    """
    counts = reference.cluster_counts.double().clamp_min(1.0)
    moved = reference.cluster_sums.square().sum(1) / counts  # what centring each cluster takes off
    left = (reference.cluster_squares - moved).clamp_min(0.0)
    return _ratio(float(left.sum()) / int(reference.counts.sum()), reference)


def reference_mean_shift(reference: ReferencePass, moments: ClassMoments) -> float:
    r"""How far class means lie from those of the reference, over the spread of those.

    $$\frac{\tfrac1K\sum_c\|\mu_c^{test}-\mu_c^{train}\|^2}
      {\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    Averages over the classes with samples here, each with equal weight. Means of n samples are off
    by about variance / n even where nothing has shifted.

    Range: [0, inf); 0 where the means are the same.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).reference_mean_shift
    0.25
    """
    own = reference.moments.means[_shared(reference)]
    return _ratio(float((moments.means - own).square().sum(1).mean()), reference)


def reference_spread_ratio(reference: ReferencePass, moments: ClassMoments) -> float:
    r"""Variance within classes, around their own means, over that of the reference.

    $$\frac{\sum_c \mathbb E_{test,c}\|h-\mu_c^{test}\|^2}
      {\sum_c \mathbb E_{train,c}\|h-\mu_c^{train}\|^2}$$

    Over the classes with samples here, each with equal weight.

    Range: [0, inf); 1 where features vary as in the reference, nan where it does not vary.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> rows = [[-3.0], [1.0], [-1.0], [3.0]]
    >>> nclab.measure_features(rows, [0, 0, 1, 1], reference=train).reference_spread_ratio
    4.0
    """
    own = float(reference.moments.variances[_shared(reference)].sum())
    return float(moments.variances.sum()) / own if own > VANISHES else float("nan")


def _shared(reference: ReferencePass) -> torch.Tensor:
    """Places in the reference of the classes that have samples here."""
    return (reference.counts > 0).nonzero().flatten()


def _ratio(square: float, reference: ReferencePass) -> float:
    spread = float(reference.moments.centred_means.square().sum(1).mean())
    return square / spread if spread else float("nan")
