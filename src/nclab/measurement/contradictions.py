"""What numbers of one measurement say against each other, or against what they stand beside."""

import math
from collections.abc import Mapping

from torch import Tensor

from nclab.measurement.noise import noise_nc1_trace_pinv, noise_ncc_accuracy
from nclab.metrics.rows import simplex_cosine
from nclab.metrics.view import View
from nclab.statistics import ClassMoments
from nclab.text import number

Values = Mapping[str, float | None]

NOISE_SCORES = 0.5
"""Accuracy of nearest class centres under noise from which on samples are too few to tell."""
NEAR_NOISE = 0.1
"""Features whose NC1 is below this share of what noise scores are not noise."""
UNEVEN = 5
"""Largest over smallest class from which on the ideals of balanced classes mislead."""
ENOUGH = 100
"""Samples from which on an accuracy can be told from chance."""
LOGITS = 4
"""Classes from which on means that are each largest in their own coordinate are no accident."""


def contradictions(view: View, values: Values) -> list[str]:
    """One line each; none where nothing is wrong."""
    moments = view.moments
    noisy = _noise(moments, values)
    found = [noisy, _mismatch(values, noisy), _chance(moments, values)]
    found += [_outputs(moments), _uneven(moments), _out_of_reach(moments, values)]
    return [line for line in found if line]


def _noise(moments: ClassMoments, values: Values) -> str:
    """Few samples in many dimensions: noise would score alike."""
    size, per_class, dim = moments.num_classes, moments.total / moments.num_classes, moments.dim
    if per_class <= 1:
        return ""
    accuracy = noise_ncc_accuracy(size, per_class, dim)
    expected, found = noise_nc1_trace_pinv(size, per_class, dim), values["nc1_trace_pinv"]
    if accuracy < NOISE_SCORES or (found is not None and found < NEAR_NOISE * expected):
        return ""
    return (
        f"{per_class:.4g} samples a class in {dim} dimensions look collapsed by themselves: noise "
        f"of these sizes scores nc1_trace_pinv {number(expected)} and nc4_ncc_accuracy "
        f"{accuracy:.2f}. Take more samples."
    )


def _mismatch(values: Values, noisy: str) -> str:
    """A classifier that is wrong about features that tell the classes apart."""
    accuracy, nearest = values["accuracy"], values["nc4_ncc_accuracy"]
    if noisy or accuracy is None or nearest is None or accuracy > 0.5 or nearest < 0.9:
        return ""
    return (
        f"The classifier is right on {accuracy:.1%} of the samples, the nearest class mean on "
        f"{nearest:.1%}: do labels and rows of the weight belong together (labels off by one, "
        "rows in another order), and is this the layer that it reads?"
    )


def _chance(moments: ClassMoments, values: Values) -> str:
    """An accuracy that guessing has, too."""
    accuracy, total = values["accuracy"], moments.total
    if accuracy is None or total < ENOUGH:
        return ""
    guess = 1 / moments.num_classes
    largest = int(moments.counts.max()) / total
    near = 2 * math.sqrt(guess * (1 - guess) / total)
    if abs(accuracy - guess) <= near:
        return f"Accuracy {number(accuracy)} is that of guessing among the classes, {guess:.4g}."
    if accuracy <= largest and largest > 2 * guess:
        return (
            f"Accuracy {number(accuracy)} is no better than always naming the largest class, "
            f"{number(largest)}."
        )
    return ""


def _outputs(moments: ClassMoments) -> str:
    """Outputs of the network given as its features."""
    size, means = moments.num_classes, moments.means
    if moments.dim != size:
        return ""
    if bool((means >= 0).all()) and bool(((means.sum(1) - 1).abs() < 1e-3).all()):
        return (
            "The features are non-negative and sum to 1: they look like softmax outputs. Pass what "
            "the last linear layer reads."
        )
    own: Tensor = means.argmax(1).cpu()
    if size >= LOGITS and own.tolist() == list(range(size)):
        return (
            "There are as many dimensions as classes, and every class mean is largest in its own: "
            "the features look like logits. Pass what the last linear layer reads."
        )
    return ""


def _uneven(moments: ClassMoments) -> str:
    """Ideals of balanced classes beside classes that are not."""
    most, least = int(moments.counts.max()), int(moments.counts.min())
    if most < UNEVEN * least:
        return ""
    return (
        f"The largest class has {most / least:.4g} times the samples of the smallest: the values "
        "at collapse are those of balanced classes, which unequal ones need not reach."
    )


def _out_of_reach(moments: ClassMoments, values: Values) -> str:
    """A negative ideal beside cosines that cannot be negative."""
    if not bool((moments.unit_means >= 0).all()):
        return ""
    centred = values["centred_max_inter"]
    instead = "" if centred is None else f"; around the centre max_inter is {number(centred)}"
    return (
        "The features have no negative directions (ReLU): their inter-class cosines cannot reach "
        f"{number(simplex_cosine(moments.num_classes))}, and intra-class ones are high without "
        f"collapse{instead}."
    )
