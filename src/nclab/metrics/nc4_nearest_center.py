"""NC4, nearest class centre: the network predicts the class of the nearest class mean."""

from collections.abc import Sequence

from nclab.errors import DataError
from nclab.statistics import SecondPass


def nc4_ncc_accuracy(second_pass: SecondPass) -> float:
    r"""Share of samples whose nearest class mean is that of their own class.

    $$\Pr\bigl[\arg\min_c\|h-\mu_c\| = y\bigr]$$

    Source: pan2023, Def. 3.2.2
    Range: [0, 1]; 1 at collapse. Averages over samples; nan if all class means coincide.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> rows, labels = [[1.0], [3.0], [-1.0], [2.0], [-9.0]], [0, 0, 1, 1, 1]
    >>> nclab.measure_features(rows, labels).nc4_ncc_accuracy
    0.8
    """
    if second_pass.means_coincide:
        return float("nan")
    return int(second_pass.nearest_correct.sum()) / int(second_pass.counts.sum())


def nc4_agreement(second_pass: SecondPass) -> float:
    r"""Share of samples for which the classifier and the nearest class mean agree.

    $$\Pr\bigl[\arg\min_c\|h-\mu_c\| = \arg\max_c (Wh+b)_c\bigr]$$

    Source: papyan2020, Fig. 7 (it plots 1 minus this)
    Range: [0, 1]; 1 at collapse; nan if no predictions were given.
    Invariant to: rotation of both, translation of the classifier, scale of the classifier,
        a common scale of W and H.

    >>> import nclab
    >>> rows, labels, weight, bias = [[1.0], [-1.0]], [0, 1], [[1.0], [-1.0]], [3.0, 0.0]
    >>> nclab.measure_features(rows, labels, weight, bias).nc4_agreement
    0.5
    """
    if second_pass.means_coincide or not second_pass.predictions:
        return float("nan")
    return second_pass.nearest_agrees / second_pass.predictions


def nc4_cosine_accuracy(second_pass: SecondPass) -> float:
    r"""Share of samples whose direction is nearest to the mean direction of their own class.

    $$\Pr\bigl[\arg\max_c \cos(h,\bar h_c) = y\bigr],\quad
      \bar h_c \text{ the mean unit feature}$$

    Source: pan2023, Sec. 2.2 (NC4 by cosine)
    Range: [0, 1]; 1 at collapse. A zero vector has no direction and counts as wrong.
    Invariant to: rotation, scale of every single feature.

    >>> import nclab
    >>> rows, labels = [[1.0, 0.0], [9.0, 1.0], [0.0, 1.0]], [0, 0, 1]
    >>> nclab.measure_features(rows, labels).nc4_cosine_accuracy
    1.0
    """
    return int(second_pass.cosine_correct.sum()) / int(second_pass.counts.sum())


def nc4_cosine_agreement(second_pass: SecondPass) -> float:
    r"""Share of samples for which the classifier and the nearest mean direction agree.

    $$\Pr\bigl[\arg\max_c \cos(h,\bar h_c) = \arg\max_c (Wh+b)_c\bigr]$$

    Source: pan2023, Sec. 2.2 (NC4 by cosine)
    Range: [0, 1]; 1 at collapse; nan if no predictions were given.
    Invariant to: rotation of both, translation of the classifier, scale of the classifier,
        a common scale of W and H.

    >>> import nclab
    >>> rows, labels, weight = [[1.0], [-1.0]], [0, 1], [[1.0], [-1.0]]
    >>> nclab.measure_features(rows, labels, weight).nc4_cosine_agreement
    1.0
    """
    return (
        second_pass.cosine_agrees / second_pass.predictions
        if second_pass.predictions
        else float("nan")
    )


def effective_depth(ncc_accuracies: Sequence[float], *, epsilon: float = 0.01) -> int:
    r"""The first layer, counted from 1, whose nearest-class-centre error is at most epsilon.

    $$\min\{i : 1 - \mathrm{nc4\_ncc\_accuracy}_i \le \varepsilon\},
      \text{ or the number of layers if there is none}$$

    Source: pan2023, Def. 3.2.2
    Range: 1 to the number of layers.

    >>> effective_depth([0.4, 0.9, 0.995, 1.0], epsilon=0.01)
    3
    """
    if not ncc_accuracies:
        raise DataError("Expected the accuracy of at least one layer, got none.")
    if not 0 <= epsilon < 1:
        raise DataError(f"Expected epsilon in [0, 1), got {epsilon}.")
    for depth, ncc_accuracy in enumerate(ncc_accuracies, start=1):
        if 1 - ncc_accuracy <= epsilon + 1e-12:  # In floating point, 1 - 0.99 exceeds 0.01.
            return depth
    return len(ncc_accuracies)
