r"""Plain-language diagnosis of a measurement: what it means, and which numbers to doubt.

Rounding: class means have an error of about $e\,s$, where s is the largest root-mean-square feature
norm of a class and $e = 16\sqrt{n + d + C}\,u$ for n samples in the largest class, dimension d, C
classes and half a unit u in the last place of float64. The relative error of a difference of means
is $e\,s$ divided by the difference; docs/metrics.md lists the error of every metric.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from nclab.measurement.results import PAIRS_SHOWN, ClassPair
from nclab.metrics.cosine import intra_cosine, max_inter_pair
from nclab.metrics.cross_entropy import class_loss
from nclab.metrics.nc1_variability import DOUBTFUL
from nclab.metrics.view import (
    View,
    centred_rows,
    mean_norms,
    mean_pairs,
    scaled_rows,
    simplex_cosine,
    weight_norm,
)
from nclab.statistics import ClassMoments, SecondPass
from nclab.statistics.blocks import VANISHES, norm, row_norms
from nclab.statistics.moments import unit_error
from nclab.statistics.second_pass import ReferencePass
from nclab.text import counted, listed, number

FloatArray = NDArray[np.float64]
Values = Mapping[str, float | None]

COLLAPSE_LEVELS = ((0.01, "Collapsed"), (0.1, "Nearly collapsed"), (1.0, "Partly collapsed"))
"""Pairs of a bound and a verdict, which is used if the variance within classes divided by the
variance between them, tr Σ_W / tr Σ_B, is at most the bound. Unlike `nc1_trace_pinv`, this ratio is
not small for few samples in many dimensions."""
ANGLE_LEVELS = ((0.02, "form a simplex ETF"), (0.1, "are near a simplex ETF"))
"""Pairs of a bound and words on the angles of class means, which are used if their cosines differ
from -1/(C - 1) by at most the bound on average."""
ALIGNMENT_LEVELS = ((0.1, "aligned"), (0.5, "roughly aligned"))
"""Pairs of a bound and words on the classifier, which are used if the unit vectors along class mean
and classifier row have at most this distance on average. 0.1 is 6 degrees, 0.5 is 29 degrees."""
NO_STRUCTURE = 0.5
"""The verdict is "no class structure" if tr Σ_W / tr Σ_B is at least this share of its value for
random labels."""
MERGED = 0.5
"""Two classes are reported as merging if the cosine of their centred means is above this value."""
LISTED = 5
"""Largest number of classes that a sentence lists."""
NOISE_SCORES = 0.5
"""nclab warns of too few samples if the same number of pure noise features would have at least this
nearest-class-mean accuracy."""
NEAR_NOISE = 0.1
"""nclab does not warn of too few samples if `nc1_trace_pinv` is less than this share of its value
for pure noise."""
UNEVEN = 5
"""Classes count as uneven if the largest has at least this many times the samples of the smallest.
A warning then says that the metrics may tend to other values than those at collapse."""
ENOUGH = 100
"""Smallest number of samples for which an accuracy is compared with chance."""
LOGITS = 4
"""Features may be logits if every class mean is largest in the coordinate of its class. With fewer
classes than this, that may be an accident and is not reported."""
NODES = 80
"""Number of nodes of the Gauss-Hermite quadrature."""


# Verdict


def summarise(
    view: View, values: Values, pairs: Sequence[ClassPair], names: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the sentences below a table; the first one is the verdict.

    `pairs` are the closest pairs of classes; `names` are the class names, if given.
    """
    numbers = view.classes.tolist()
    labels = [str(number) if names is None else names[number] for number in numbers]
    lines = [_verdict(view, values, labels)]
    if names is not None:
        worst = labels[int(view(intra_cosine).argmin())]
        first, second = names[pairs[0].one], names[pairs[0].other]
        lines.append(
            f"the features of {worst} vary most; the most similar classes are {first} and {second}"
        )
    if len(labels) > PAIRS_SHOWN:
        label_of = dict(zip(numbers, labels, strict=True))
        closest = (
            f"{label_of[pair.one]} – {label_of[pair.other]} {number(pair.cosine)}"
            for pair in pairs[:LISTED]
        )
        lines.append(f"closest classes: {', '.join(closest)}")
    return tuple(lines)


def _verdict(view: View, values: Values, labels: Sequence[str]) -> str:
    """Return one line: whether the layer is collapsed, by which numbers, and what stands out."""
    moments, ratio = view.moments, values["nc1_trace_ratio"]
    remarkable = _remarkable_classes(view, values, labels)
    if ratio is None or not math.isfinite(ratio):
        return " ".join(["All class means coincide: no class structure.", *remarkable])
    level = noise_nc1_trace_ratio(moments.num_classes, moments.total / moments.num_classes)
    compared = (
        f"the spread within classes is {number(ratio)} times the spread between them "
        f"(0 = collapsed; random labels would give {number(level)})."
    )
    if 0 < NO_STRUCTURE * level <= ratio:  # then the angles are those of noise as well
        return " ".join([f"No class structure: {compared}", *remarkable])
    word = _word(ratio, COLLAPSE_LEVELS, "Not collapsed")
    geometry = [part for part in (_means(moments, values), _classifier(values)) if part]
    return " ".join([f"{word}: {compared}", *geometry, *remarkable])


def _means(moments: ClassMoments, values: Values) -> str:
    difference = values["nc2_equiangularity_means"]
    if difference is None:
        return ""
    if moments.dim < moments.num_classes - 1:
        return f"There are too many class means for a simplex ETF in dimension {moments.dim}."
    word = _word(difference, ANGLE_LEVELS, "do not form a simplex ETF")
    return (
        f"The class means {word}: their cosines differ from those of a simplex by "
        f"{number(difference)} on average (0 = simplex)."
    )


def _classifier(values: Values) -> str:
    distance = values["nc3_self_duality"]
    if distance is None:
        return ""
    word = _word(distance, ALIGNMENT_LEVELS, "not aligned")
    return (
        f"The classifier is {word} with the class means: the distance of their directions is "
        f"{number(distance)} on average (0 = aligned)."
    )


def _remarkable_classes(view: View, values: Values, labels: Sequence[str]) -> list[str]:
    """Return sentences about classes that merge, have only zero features or are not learnt."""
    sentences = []
    cosine = values["centred_max_inter"]
    if view.second_pass is not None and cosine is not None and cosine > MERGED:
        first, second = (labels[index] for index in sorted(view(_closest_centred_pair)))
        sentences.append(f"Classes {first} and {second} merge (centred cosine {number(cosine)}).")
    dead = (view.moments.zero_counts == view.moments.counts).nonzero().flatten().tolist()
    if dead:
        sentences.append(f"All features are zero in {_class_list(labels, dead)}.")
    if view.logits is not None:
        guessing = math.log(len(labels)) * (1 - 1e-9)  # up to rounding
        losses = class_loss(view.logits)[view.classes]
        lost = (losses >= guessing).nonzero().flatten().tolist()
        if lost:
            sentences.append(f"The loss is no better than guessing in {_class_list(labels, lost)}.")
    return sentences


def _closest_centred_pair(second_pass: SecondPass) -> tuple[int, int]:
    return max_inter_pair(second_pass)


def _class_list(labels: Sequence[str], indices: Sequence[int]) -> str:
    names = listed((labels[index] for index in indices), LISTED)
    return f"class{'es' if len(indices) > 1 else ''} {names}"


def _word(value: float, levels: Sequence[tuple[float, str]], otherwise: str) -> str:
    return next((word for limit, word in levels if value <= limit), otherwise)


# Metrics of pure noise: C classes with n samples each in d dimensions, all drawn from one isotropic
# normal distribution. With few samples in many dimensions every sample pulls its class mean towards
# itself, so that noise looks collapsed.


def noise_nc1_trace_pinv(num_classes: int, per_class: float, dim: int) -> float:
    r"""Return the mean of `nc1_trace_pinv` for features that are noise, without class structure.

    All features are drawn from one standard normal distribution in d dimensions, n in each of C
    classes. The centred means are Gaussian with variance 1/n and independent of $\Sigma_W$, whose
    mean is (1 - 1/n) I. So the result is $(n-1)\,E\operatorname{tr}A^{-1}$ for a Wishart matrix A
    with max(C - 1, d) degrees of freedom in min(C - 1, d) dimensions; inf if this mean is infinite.

    >>> round(noise_nc1_trace_pinv(10, 4, 2000), 5)
    0.01357
    """
    size, freedom = sorted((num_classes - 1, dim))
    return (per_class - 1) * size / (freedom - size - 1) if freedom > size + 1 else math.inf


def noise_nc1_trace_ratio(num_classes: int, per_class: float) -> float:
    """Return tr Σ_W / tr Σ_B for noise or shuffled labels: the ratio of the means of both traces.

    >>> noise_nc1_trace_ratio(10, 10)
    10.0
    """
    return (per_class - 1) * num_classes / (num_classes - 1)


def noise_ncc_accuracy(num_classes: int, per_class: float, dim: int) -> float:
    r"""Return the approximate mean of `nc4_ncc_accuracy` for features that are noise.

    $$E_a\,\Phi\Bigl(\frac{\sqrt{d/n}+s_a a}{s_b}\Bigr)^{C-1},\quad
      s_a^2=1-\tfrac1{2n},\ s_b^2=1+\tfrac1{2n}$$

    Here n is the number of samples of a class and a is standard normal. A sample is nearer to its
    own class mean than to another one by 2d/n in squared distance on average; for large d the
    differences of squared distances are approximately normal.

    >>> round(noise_ncc_accuracy(10, 4, 2000), 6), round(noise_ncc_accuracy(2, 1e9, 2), 2)
    (1.0, 0.5)
    """
    nodes, weights = _quadrature()
    same, other = math.sqrt(1 - 0.5 / per_class), math.sqrt(1 + 0.5 / per_class)
    single = ndtr((math.sqrt(dim / per_class) + same * nodes) / other)
    return float(weights @ single ** (num_classes - 1))


@cache
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for means over a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()


# Contradictions


def contradictions(view: View, values: Values) -> list[str]:
    """Return a warning for each pair of numbers that contradict each other."""
    moments = view.moments
    noise = _looks_like_noise(moments, values)
    warnings = [
        noise,
        "" if noise else _mismatched_classifier(values),
        _chance_accuracy(moments, values),
        _network_outputs(moments),
        _uneven_classes(moments),
        _unreachable_cosines(moments, values),
    ]
    return [warning for warning in warnings if warning]


def _looks_like_noise(moments: ClassMoments, values: Values) -> str:
    """Warn if there are so few samples that pure noise would look collapsed as well."""
    size, per_class, dim = moments.num_classes, moments.total / moments.num_classes, moments.dim
    if per_class <= 1:
        return ""
    accuracy = noise_ncc_accuracy(size, per_class, dim)
    expected, measured = noise_nc1_trace_pinv(size, per_class, dim), values["nc1_trace_pinv"]
    if accuracy < NOISE_SCORES or (measured is not None and measured < NEAR_NOISE * expected):
        return ""
    return (
        f"{per_class:.4g} samples per class are too few in {dim} dimensions: pure noise would "
        f"score nc1_trace_pinv {number(expected)} and nc4_ncc_accuracy {accuracy:.2f}. Use more "
        "samples."
    )


def _mismatched_classifier(values: Values) -> str:
    """Warn if the classifier is often wrong although the features separate the classes."""
    accuracy, nearest = values["accuracy"], values["nc4_ncc_accuracy"]
    if accuracy is None or nearest is None or accuracy > 0.5 or nearest < 0.9:
        return ""
    return (
        f"The classifier is right on {accuracy:.1%} of the samples, the nearest class mean on "
        f"{nearest:.1%}. Check that labels and rows of the weight are in the same order, that "
        "labels start at 0, and that the classifier reads this layer."
    )


def _chance_accuracy(moments: ClassMoments, values: Values) -> str:
    """Warn if the accuracy is not better than guessing."""
    accuracy, total = values["accuracy"], moments.total
    if accuracy is None or total < ENOUGH:
        return ""
    guess = 1 / moments.num_classes
    largest = int(moments.counts.max()) / total
    two_sigma = 2 * math.sqrt(guess * (1 - guess) / total)
    if abs(accuracy - guess) <= two_sigma:
        return f"The accuracy {number(accuracy)} is that of random guessing, {guess:.4g}."
    if accuracy <= largest and largest > 2 * guess:
        return (
            f"The accuracy {number(accuracy)} is no better than always predicting the largest "
            f"class, {number(largest)}."
        )
    return ""


def _network_outputs(moments: ClassMoments) -> str:
    """Warn if the features look like outputs of the network."""
    size, means = moments.num_classes, moments.means
    if moments.dim != size:
        return ""
    if bool((means >= 0).all()) and bool(((means.sum(1) - 1).abs() < 1e-3).all()):
        return (
            "The features are non-negative and sum to 1: they look like softmax outputs. Pass the "
            "inputs of the last linear layer instead."
        )
    largest: Tensor = means.argmax(1).cpu()
    if size >= LOGITS and largest.tolist() == list(range(size)):
        return (
            "There are as many dimensions as classes, and every class mean is largest in its "
            "class's coordinate: the features look like logits. Pass the inputs of the last linear "
            "layer instead."
        )
    return ""


def _uneven_classes(moments: ClassMoments) -> str:
    """Warn if class sizes differ so much that metrics may not tend to their values at collapse."""
    most, least = int(moments.counts.max()), int(moments.counts.min())
    if most < UNEVEN * least:
        return ""
    return (
        f"The largest class has {most / least:.4g} times the samples of the smallest: the values "
        "at collapse are those of equal classes, and unequal classes may tend to other values."
    )


def _unreachable_cosines(moments: ClassMoments, values: Values) -> str:
    """Warn that non-negative features cannot have negative cosines."""
    if not bool((moments.unit_means >= 0).all()):
        return ""
    centred = values["centred_max_inter"]
    instead = "" if centred is None else f"; after centring, max_inter is {number(centred)}"
    return (
        "The features have no negative directions (ReLU): their inter-class cosines cannot reach "
        f"{number(simplex_cosine(moments.num_classes))}, and intra-class cosines are high even "
        f"without collapse{instead}."
    )


# Rounding

TINY = 1e-120
"""If features are smaller than this, the squares of their spreads underflow."""
SMALLEST_STEP = 2.0**-1074
"""Spacing of the smallest float64 numbers."""
CENTRED = ("centred_min_intra", "centred_mean_intra", "centred_max_inter", "centred_mean_inter")
ANGLES = ("nc2_equiangularity_means", "nc2_cosine_std_means", "nc3_self_duality", "unc3_duality")
ALL_MEANS = ("nc1_trace_ratio", "nc2_norm_variation_means", "nc3_frobenius")
PAIRS = ("cdnv",)
RAW = ("nc3_alignment_min", "nc3_alignment_mean")
DECISIONS = (
    *("accuracy", "nc4_agreement", "nc4_cosine_agreement", "reference_ncc_agreement"),
    *("margin", "normalised_margin"),
)
ROWS = ("nc2_equiangularity_weights", "nc2_cosine_std_weights", "minority_cosine")
SQUARES = ("nc1_trace_pinv", *ALL_MEANS, *PAIRS, "rankme", *CENTRED)
HELD_OUT = ("strong_test_collapse", "weak_test_collapse", "reference_mean_shift")
CLOSE_MEANS = "the differences of class means are so small compared with the features"


class RoundingError(NamedTuple):
    """Metrics that share a source of rounding error, and their relative error."""

    metrics: tuple[str, ...]
    error: float
    cause: str

    def warning(self, values: Values) -> str:
        """Return a warning; empty if the error is small or no metric has a value."""
        affected = [name for name in self.metrics if values.get(name) is not None]
        if not self.error >= DOUBTFUL or not affected:
            return ""
        names = ", ".join(affected)
        if self.error >= 1:
            return f"{names}: only rounding errors, because {self.cause}."
        return f"{names}: relative error of about {self.error:.1g}, because {self.cause}."


def rounding_warnings(view: View, values: Values) -> list[str]:
    """Return a warning for every source of a relative error above a millionth."""
    errors = [*_mean_errors(view), *_weight_errors(view)]
    second_pass = view.second_pass
    if second_pass is not None and second_pass.near_centre:
        share = second_pass.near_centre / int(second_pass.counts.min())
        cause = (
            f"{second_pass.near_centre} features lie on the centre of the classes up to rounding"
        )
        errors.append(RoundingError(CENTRED, max(share, DOUBTFUL), cause))
    if second_pass is not None:
        reach = float(second_pass.reach_sums.sum()) / int(second_pass.counts.sum())
        error = 2 * unit_error(view.moments) * view.moments.size
        errors.append(RoundingError(("nc1_within_variation",), _ratio(error, reach), CLOSE_MEANS))
    warnings = [warning for warning in (error.warning(values) for error in errors) if warning]
    return [*warnings, *_spread_underflow(view.moments, values), *_logit_underflow(view, values)]


def reference_rounding_warnings(
    reference: ReferencePass, moments: ClassMoments, values: Values
) -> list[str]:
    """Return `rounding_warnings` for the metrics that compare features with a reference."""
    size = max(reference.moments.size, moments.size)
    spread = norm(reference.moments.centred_means) / math.sqrt(reference.moments.num_classes)
    error = 4 * unit_error(moments) * size
    cause = "the differences of the reference's class means are so small compared with the features"
    warning = RoundingError(HELD_OUT, _ratio(error, spread), cause).warning(values)
    affected = _of_measurement((*HELD_OUT, "reference_spread_ratio"), values)
    underflow = _feature_underflow(size, affected)
    return [*([warning] if warning else []), *underflow]


def _mean_errors(view: View) -> list[RoundingError]:
    moments = view.moments
    error = unit_error(moments) * moments.size
    lengths = view(mean_norms)
    shortest = float(lengths.min())
    closest = math.sqrt(view(mean_pairs).distances.closest)
    near_centre = "a class mean is so close to the mean of all classes"
    close_pair = "two class means are so close to each other"
    small_mean = "a class mean is so small compared with the features of its class"
    return [
        RoundingError(ANGLES, _ratio(2 * error, shortest), near_centre),
        RoundingError(ALL_MEANS, _ratio(4 * error, norm(lengths)), CLOSE_MEANS),
        RoundingError(PAIRS, _ratio(4 * error, closest), close_pair),
        RoundingError(RAW, _raw_mean_error(moments), small_mean),
    ]


def _raw_mean_error(moments: ClassMoments) -> float:
    """Return the largest relative error of an uncentred class mean."""
    lengths = row_norms(moments.means)
    present = lengths > 0
    if not present.any():
        return 0.0
    errors = unit_error(moments) * moments.mean_square_norms.sqrt() + moments.dim * SMALLEST_STEP
    return float((errors[present] / lengths[present]).max())


def _weight_errors(view: View) -> list[RoundingError]:
    if view.weight is None:
        return []
    lengths = row_norms(centred_rows(view.weight))
    error = unit_error(view.moments) * float(row_norms(scaled_rows(view.weight)).max())
    cause = "the differences of classifier rows are so small compared with the rows"
    # A row that is only rounding counts as 0 and leaves only metrics that do not read the row.
    shortest = float(lengths[lengths > 0].min()) if lengths.any() else 0.0
    variation = ("nc2_norm_variation_weights",)
    return [
        RoundingError((*ROWS, *RAW, "nc3_self_duality"), _ratio(2 * error, shortest), cause),
        RoundingError(variation, _ratio(3 * error, float(lengths.mean())), cause),
    ]


def _ratio(error: float, size: float) -> float:
    """Return error / size; 0 for a size of 0, where the metric has no value anyway."""
    return error / size if 0 < size < math.inf else 0.0


def _spread_underflow(moments: ClassMoments, values: Values) -> list[str]:
    """Warn if squared features underflow: in all classes, or only in classes with tiny features."""
    affected = _of_measurement((*SQUARES, "nc1_within_variation"), values)
    if 0 < moments.size < TINY or not float(moments.variances.sum()) < TINY**2:
        return _feature_underflow(moments.size, affected)
    sizes = moments.mean_square_norms.sqrt()
    lost = (sizes < TINY) & (moments.counts > 1) & (moments.counts > moments.zero_counts)
    if not lost.any():
        return []
    return [
        f"{affected}: squares of features below {TINY:g} underflow in "
        f"{counted(int(lost.sum()), 'class')}. Rescale the features."
    ]


def _of_measurement(metrics: Sequence[str], values: Values) -> str:
    """Join the names of those metrics that belong to this measurement, with or without a value."""
    return ", ".join(name for name in metrics if name in values)


def _feature_underflow(size: float, affected: str) -> list[str]:
    if not 0 < size < TINY:
        return []
    return [f"{affected}: squares of features of size {size:.1g} underflow. Rescale the features."]


def _logit_underflow(view: View, values: Values) -> list[str]:
    """Warn if all products of features and classifier underflow."""
    if view.weight is None or view.logits is None or view.moments.size == 0:
        return []
    weight = view(weight_norm)
    if not 0 < weight < VANISHES / view.moments.size:
        return []
    if not bool((view.logits.margins.abs() < VANISHES).all()):  # a bias decides
        return []
    affected = _of_measurement(DECISIONS, values)
    return [f"{affected}: logits below {VANISHES:g} underflow. Rescale the classifier."]
