"""Test collapse: how near features of other data, such as a test set, are to training class means.

Strong and weak test collapse were defined by Hui, Belkin and Nakkiran (2022), arXiv:2202.08384.
"""

import torch

from nclab.statistics import ClassMoments, ReferencePass
from nclab.statistics.blocks import VANISHES


def reference_ncc_accuracy(reference: ReferencePass) -> float:
    r"""Share of samples whose nearest reference class mean is that of their own class.

    $$\Pr_{test}\bigl[\arg\min_c\|h-\mu_c^{train}\| = y\bigr]$$

    Range: [0, 1]; 1 at strong test collapse. Averages over samples; nan if all means coincide.
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
    r"""Share of samples for which the classifier and the nearest reference class mean agree.

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
    r"""Mean squared distance of features to their reference mean, divided by the means' spread.

    $$\frac{\mathbb E_{test}\|h-\mu_y^{train}\|^2}{\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    Range: [0, inf); 0 at strong test collapse. For the features of the reference itself it equals
        `nc1_trace_ratio`.
    Invariant to: rotation, translation, scale.

    The spread is the mean squared distance of the reference means to their global mean.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).strong_test_collapse
    0.25
    """
    return _ratio(float(reference.squares.sum()) / int(reference.counts.sum()), reference)


def weak_test_collapse(reference: ReferencePass) -> float:
    r"""Mean squared distance of features to the nearest of C points, divided by the means' spread.

    $$\frac{\min_{m}\,\mathbb E_{test}\min_k\|h-m_k\|^2}{\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    The classes of the samples do not matter. The points m come from one step of k-means that starts
    at the reference's class means. So the value is an upper bound of the minimum over all points,
    and at most `strong_test_collapse`. The spread is that of the reference's class means.

    Range: [0, inf); 0 at weak test collapse.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).weak_test_collapse
    0.0
    """
    counts = reference.cluster_counts.double().clamp_min(1.0)
    # Moving each point to the mean of its cluster reduces the squares by `gain`.
    gain = reference.cluster_sums.square().sum(1) / counts
    squares = (reference.cluster_squares - gain).clamp_min(0.0)
    return _ratio(float(squares.sum()) / int(reference.counts.sum()), reference)


def reference_mean_shift(reference: ReferencePass, moments: ClassMoments) -> float:
    r"""Mean squared shift of the class means from the reference means, divided by their spread.

    $$\frac{\tfrac1K\sum_c\|\mu_c^{test}-\mu_c^{train}\|^2}
      {\tfrac1C\sum_c\|\mu_c^{train}-\mu_G\|^2}$$

    Averages over the K classes with samples in this data, with equal weights. The spread is that of
    all reference means. Even without any shift, the squared distance of a mean of n samples is
    about variance / n.

    Range: [0, inf); 0 if the means are equal.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> nclab.measure_features([[-1.5], [1.5]], [0, 1], reference=train).reference_mean_shift
    0.25
    """
    means = reference.moments.means[_shared(reference)]
    return _ratio(float((moments.means - means).square().sum(1).mean()), reference)


def reference_spread_ratio(reference: ReferencePass, moments: ClassMoments) -> float:
    r"""Variance within the classes of this data, divided by that within the reference's classes.

    $$\frac{\sum_c \mathbb E_{test,c}\|h-\mu_c^{test}\|^2}
      {\sum_c \mathbb E_{train,c}\|h-\mu_c^{train}\|^2}$$

    Averages over the classes with samples in this data, with equal weights.

    Range: [0, inf); 1 if features vary as in the reference; nan if the reference has no variance.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> train = nclab.measure_features([[-2.0], [0.0], [0.0], [2.0]], [0, 0, 1, 1])
    >>> rows = [[-3.0], [1.0], [-1.0], [3.0]]
    >>> nclab.measure_features(rows, [0, 0, 1, 1], reference=train).reference_spread_ratio
    4.0
    """
    variance = float(reference.moments.variances[_shared(reference)].sum())
    return float(moments.variances.sum()) / variance if variance > VANISHES else float("nan")


def _shared(reference: ReferencePass) -> torch.Tensor:
    """Return the positions in `reference.classes` of the classes with samples in this data."""
    return (reference.counts > 0).nonzero().flatten()


def _ratio(square: float, reference: ReferencePass) -> float:
    spread = float(reference.moments.centred_means.square().sum(1).mean())
    return square / spread if spread else float("nan")
