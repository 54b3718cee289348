"""The metrics by name: their group, their value at collapse and one line on what they say."""

from collections.abc import Callable
from typing import NamedTuple


class Metric(NamedTuple):
    """One scalar of `Collapse`."""

    name: str
    group: str
    ideal: Callable[[int], float] | None
    """Value at an exact simplex ETF of C classes with self-dual weights; None if there is none."""
    meaning: str
    needs: str = "features"
    """What it is computed from: features, scatter, second look, weight or both."""


def _zero(num_classes: int) -> float:
    return 0.0


def _one(num_classes: int) -> float:
    return 1.0


def _simplex(num_classes: int) -> float:
    return -1.0 / (num_classes - 1)


METRICS: tuple[Metric, ...] = (
    Metric("min_intra", "cosine", _one, "least alike features of one class"),
    Metric("mean_intra", "cosine", _one, "features of one class, on average"),
    Metric("max_inter", "cosine", _simplex, "most alike pair of classes"),
    Metric("mean_inter", "cosine", _simplex, "pairs of classes, on average"),
    Metric("centred_min_intra", "cosine", _one, "min_intra around the centre", "second look"),
    Metric("centred_mean_intra", "cosine", _one, "mean_intra around the centre", "second look"),
    Metric("centred_max_inter", "cosine", _simplex, "max_inter around the centre", "second look"),
    Metric("centred_mean_inter", "cosine", _simplex, "mean_inter around the centre", "second look"),
    Metric("nc1_trace_pinv", "NC1", _zero, "tr(Σ_W Σ_B†)/C", "scatter"),
    Metric("nc1_trace_ratio", "NC1", _zero, "tr Σ_W / tr Σ_B"),
    Metric("cdnv", "NC1", _zero, "variance over squared distance of means"),
    Metric("nc1_within_variation", "NC1", _zero, "distance to own mean / centre", "second look"),
    Metric("nc2_norm_variation_means", "NC2", _zero, "norms of class means differ by"),
    Metric("nc2_norm_variation_weights", "NC2", _zero, "norms of classifiers differ by", "weight"),
    Metric("nc2_equiangularity_means", "NC2", _zero, "cosines of means off -1/(C-1) by"),
    Metric("nc2_equiangularity_weights", "NC2", _zero, "cosines of classifiers, same", "weight"),
    Metric("nc2_cosine_std_means", "NC2", _zero, "spread of the cosines of means"),
    Metric("nc2_cosine_std_weights", "NC2", _zero, "spread of those of classifiers", "weight"),
    Metric("nc3_self_duality", "NC3", _zero, "mean and classifier directions apart by", "weight"),
    Metric("nc3_alignment_min", "NC3", _one, "worst cos(classifier, mean)", "weight"),
    Metric("nc3_alignment_mean", "NC3", _one, "average cos(classifier, mean)", "weight"),
    Metric("nc3_frobenius", "NC3", _zero, "|W/|W| - M/|M||²", "weight"),
    Metric("nc4_ncc_accuracy", "NC4", _one, "nearest class mean is right", "second look"),
    Metric("nc4_agreement", "NC4", _one, "... and decides as the network", "both"),
    Metric("nc4_cosine_accuracy", "NC4", _one, "nearest mean direction is right", "second look"),
    Metric("nc4_cosine_agreement", "NC4", _one, "... and decides as the network", "both"),
    Metric("accuracy", "loss", _one, "the network is right", "weight"),
    Metric("loss", "loss", None, "mean cross-entropy", "weight"),
    Metric("balanced_loss", "loss", None, "mean over classes of their loss", "weight"),
    Metric("optimal_loss", "loss", None, "m, the best for these norms", "weight"),
    Metric("excess_loss", "loss", _zero, "ε = balanced_loss - m", "weight"),
    Metric("alpha", "loss", None, "α, rms feature norm"),
    Metric("beta", "loss", None, "β, rms classifier norm", "weight"),
    Metric("margin", "loss", None, "q_min, smallest logit gap", "weight"),
    Metric("normalised_margin", "loss", None, "margin / largest for the norms", "weight"),
)
"""In the order in which tables show them."""

BY_NAME = {metric.name: metric for metric in METRICS}
