"""NC4, nearest class centre: the network decides as the nearest class mean would."""

from nclab.statistics import SecondPass


def nc4_ncc_accuracy(look: SecondPass) -> float:
    r"""Share of samples whose nearest class mean is that of their own class.

    $$\Pr\bigl[\arg\min_c\|h-\mu_c\| = y\bigr]$$

    Source: pan2023, Def. 3.2.2
    Range: [0, 1]; 1 at collapse. Averages over samples; nan where all class means coincide.
    Invariant to: rotation, translation, scale.

    >>> import nclab
    >>> rows, labels = [[1.0], [3.0], [-1.0], [2.0], [-9.0]], [0, 0, 1, 1, 1]
    >>> nc4_ncc_accuracy(nclab.measure_features(rows, labels).look)
    0.8
    """
    if look.means_coincide:
        return float("nan")
    return int(look.nearest_correct.sum()) / int(look.counts.sum())


def nc4_agreement(look: SecondPass) -> float:
    r"""Share of samples on which the classifier and the nearest class mean decide alike.

    $$\Pr\bigl[\arg\min_c\|h-\mu_c\| = \arg\max_c (Wh+b)_c\bigr]$$

    Source: papyan2020, Fig. 7 (it plots 1 minus this)
    Range: [0, 1]; 1 at collapse; nan if no predictions were given.
    Invariant to: rotation of both, translation of the classifier, scale of the classifier,
        a common scale of W and H.

    >>> import nclab
    >>> rows, labels, weight, bias = [[1.0], [-1.0]], [0, 1], [[1.0], [-1.0]], [3.0, 0.0]
    >>> nc4_agreement(nclab.measure_features(rows, labels, weight, bias).look)
    0.5
    """
    if look.means_coincide or not look.predictions:
        return float("nan")
    return look.nearest_agrees / look.predictions


def nc4_cosine_accuracy(look: SecondPass) -> float:
    r"""Share of samples whose direction is nearest to the mean direction of their own class.

    $$\Pr\bigl[\arg\max_c \cos(h,\bar h_c) = y\bigr],\quad
      \bar h_c \text{ the mean unit feature}$$

    Source: pan2023, Sec. 2.2 (NC4 by cosine)
    Range: [0, 1]; 1 at collapse. A zero vector has no direction and counts as wrong.
    Invariant to: rotation, scale of every single feature.

    >>> import nclab
    >>> rows, labels = [[1.0, 0.0], [9.0, 1.0], [0.0, 1.0]], [0, 0, 1]
    >>> nc4_cosine_accuracy(nclab.measure_features(rows, labels).look)
    1.0
    """
    return int(look.cosine_correct.sum()) / int(look.counts.sum())


def nc4_cosine_agreement(look: SecondPass) -> float:
    r"""Share of samples on which the classifier and the nearest mean direction decide alike.

    $$\Pr\bigl[\arg\max_c \cos(h,\bar h_c) = \arg\max_c (Wh+b)_c\bigr]$$

    Source: pan2023, Sec. 2.2 (NC4 by cosine)
    Range: [0, 1]; 1 at collapse; nan if no predictions were given.
    Invariant to: rotation of both, translation of the classifier, scale of the classifier,
        a common scale of W and H.

    >>> import nclab
    >>> rows, labels, weight = [[1.0], [-1.0]], [0, 1], [[1.0], [-1.0]]
    >>> nc4_cosine_agreement(nclab.measure_features(rows, labels, weight).look)
    1.0
    """
    return look.cosine_agrees / look.predictions if look.predictions else float("nan")
