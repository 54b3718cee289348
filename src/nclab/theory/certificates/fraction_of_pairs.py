r"""Upper bound on the inter-class cosine of all but a few pairs of classes.

Suppose k pairs reach a cosine v. Which ones is not known, so the proof must cover every graph S of
k edges on the classes. It does: with E its adjacency, D its degrees and B = E - v D, the matrix
R = (I - y B)^(1/2) gives the dual point G = -mu P R, and all that the bound on the loss needs of
the graph is X = tr P(I - R), which k, the largest degree and the sum of the squared degrees bound
(docs/certificates.md). At small excess the result is the exact worst case.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nclab.theory.certificates.alignment import alignment_lower
from nclab.theory.certificates.inter import inter_from_means
from nclab.theory.certificates.intra import intra_lower
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.scores import deviation_upper, norm_ratio
from nclab.theory.layer_peeled import FloatArray, wrong_probability

HALVINGS = 27
SMALLEST_STEP = 1e-12
"""Deviations from -1/(C-1) below this are not told apart."""
STEPS = 2.0 ** np.concatenate([np.linspace(-8, 1, 73), np.arange(2.0, 17.0)])
"""Values of y tried, over the one that is best at small excess; the large ones are for k near M."""
LADDER = 0.75 ** np.arange(49)
"""Shares of the way to a cosine at which one that is refuted is looked for."""
ALMOST_ALL = 0.9
"""Share of the pairs beyond which a bound for fewer is tried, too: it is often the better one."""
SMALL = 1e-3


@dataclass(frozen=True)
class GraphGroups:
    """All graphs with so many edges on the classes, in groups alike in their degrees.

    >>> graphs = graphs_with(10, 5)
    >>> graphs.least[:2], graphs.degree[:2]
    (array([10., 12.]), array([1., 2.]))
    """

    edges: int
    least: FloatArray
    """Smallest sum of squared degrees in a group."""
    most: FloatArray
    degree: FloatArray
    """Largest degree that a graph of the group can have."""


def graphs_with(num_classes: int, edges: int) -> GraphGroups:
    """Every graph with that many edges is in one of the groups."""
    low, up = divmod(2 * edges, num_classes)
    first = (num_classes - up) * low**2 + up * (low + 1) ** 2
    last = int(min(edges * (edges + 1), edges * (2 * edges / (num_classes - 1) + num_classes - 2)))
    ends = [first]
    while ends[-1] < last:  # the sum of squared degrees is even, like that of the degrees
        ends.append(ends[-1] + max(2, 2 * ((ends[-1] - first) // 20)))
    most = np.array(ends, dtype=np.float64)
    degrees = np.arange(1.0, min(edges, num_classes - 1) + 1)
    others = 2 * edges - degrees
    needed = degrees**2 + np.maximum(others, others**2 / (num_classes - 1))
    needed[degrees <= math.ceil(2 * edges / num_classes)] = 0.0
    largest = degrees[np.searchsorted(np.maximum.accumulate(needed), most, side="right") - 1]
    return GraphGroups(edges, np.append(most[0], most[:-1] + 2), most, largest)


@dataclass(frozen=True)
class FeatureSpread:
    """What is known of the features around their class means."""

    ratio: float
    """Largest ratio of two class norms."""
    variance: float | None
    """Bound on the share of the square norm that is within classes; None if v is of the means."""


def least_rise(
    given: NormsAndLoss, graphs: GraphGroups, cosine: float, spread: FeatureSpread
) -> float:
    r"""How far above the best the loss must be if `graphs.edges` pairs reach a cosine.

    $$L \ge \log\bigl(1+\omega\,e^{-(CA+\Xi-X)/\omega}\bigr),\qquad \omega = C-1-X$$

    Source: pan2023, Thm 2.3.1
    Range: real; -inf where nothing is proved. Best at 0 for X = Xi = 0.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> given = norms_and_loss(10, 2.0, 2.5, 0.05)
    >>> rise = least_rise(given, graphs_with(10, 5), -0.0574, FeatureSpread(1.0, None))
    >>> round(rise, 6)
    0.0001
    """
    classes, product, k = given.num_classes, given.product, graphs.edges
    deviation = cosine + 1 / (classes - 1)
    v = cosine
    if cosine > 0:  # sqrt(ab) is at least this share of (a + b)/2
        v *= 2 * spread.ratio / (1 + spread.ratio**2)
        deviation = v + 1 / (classes - 1)
    stretch = classes * product / (classes - 1)
    share = 2 * k / (classes * (classes - 1))
    best = 2 * product * deviation / ((1 - share + 1 / classes) * (classes + stretch))
    y = best * STEPS  # (y,)
    low, high, degree = (row[:, None] for row in (graphs.least, graphs.most, graphs.degree))
    inside = y * (1 + abs(v)) * degree < 1
    y = np.where(inside, y, 0.0)
    gain = y * k * (classes - 1) / classes * deviation
    curved = _curved(classes, k, v, y, low, high, degree)
    trace = curved - gain  # X
    floor = _half(y * (1 + abs(v)) * degree)
    entropy, top, sound = _entropy(classes, trace, curved, floor)
    extra = given.bias_norm * _uneven(classes, k, v, y, high, degree)
    if spread.variance is not None:
        slope = y * degree * (4 * (1 + max(cosine, 0.0)) * spread.ratio + max(-v, 0.0))
        over = np.maximum(slope - 1, 0.0) * spread.variance
        extra = extra + classes * product * over / (1 + np.sqrt(1 + over))
    xi = entropy + extra
    omega = classes - 1 - trace
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        tilt = ((xi - trace) * (classes - 1) + classes * product * trace) / ((classes - 1) * omega)
        mu = 1 / (omega + np.exp(stretch + tilt))
        wrong = mu * (classes - 1 + floor + classes * y * max(v, 0.0) * degree / 2)
        sound &= inside & (omega > 0) & (1 - wrong >= mu * (1 + top))
        move = np.log1p(-trace / (classes - 1)) - tilt
        rise = np.log1p(wrong_probability(product, classes) * np.expm1(np.minimum(move, 50.0)))
    return float(np.where(sound, rise, -np.inf).max(1).min())


def pairs_upper(given: NormsAndLoss, spared: int) -> float | None:
    r"""Upper bound on the inter-class cosine of all but `spared` pairs of classes.

    $$\mathrm{inter} \le -\tfrac1{C-1}+\sqrt{\mu_2\,\varepsilon\,\tfrac{M-k}{kM}}\,(1+o(1)),\qquad
    k = \text{spared}+1,\ M = \tfrac{C(C-1)}2$$

    Source: pan2023, Thm 2.3.1
    Range: (-1/(C-1), 1), or None where no bound below 1 can be proved.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> given = norms_and_loss(10, 2.0, 2.5, 0.0342018 + 1e-4)
    >>> round(pairs_upper(given, 4), 3), round(pairs_upper(given, 0), 3)
    (-0.057, 0.011)
    """
    ratio = norm_ratio(given)
    if not math.isfinite(ratio):
        return None
    shift = min(1.0, deviation_upper(given) / (given.num_classes * given.product))
    spread = FeatureSpread(ratio, shift * (2 - shift))
    pairs = given.num_classes * (given.num_classes - 1) // 2
    best = 1.0
    # What holds for all but fewer pairs holds for all but these.
    for few in {min(spared, pairs - 1), min(spared, int(ALMOST_ALL * pairs))}:
        graphs = graphs_with(given.num_classes, few + 1)
        best = min(best, _least_cosine(given, graphs, spread, 1.0))
        best = _through_means(given, graphs, ratio, best)
    return best if best < 1 else None


def _through_means(given: NormsAndLoss, graphs: GraphGroups, ratio: float, most: float) -> float:
    """The bound on cosines of class means with what single features may add, if below `most`."""
    rho = alignment_lower(given)
    if rho <= 0:
        return most
    intra = intra_lower(given, rho).value
    added = inter_from_means(0.0, rho, intra)
    needed = min(most - added, (most - added) / rho**2)
    if needed <= -1 / (given.num_classes - 1):
        return most
    means = _least_cosine(given, graphs, FeatureSpread(ratio, None), needed)
    return inter_from_means(means, rho, intra) if means < needed else most


def _least_cosine(
    given: NormsAndLoss, graphs: GraphGroups, spread: FeatureSpread, most: float
) -> float:
    """The smallest cosine that is refuted, or `most`."""
    start = -1 / (given.num_classes - 1)
    target = given.excess * (1 + 1e-9)

    def refuted(step: float) -> bool:
        return least_rise(given, graphs, start + step, spread) >= target

    if most - start <= SMALLEST_STEP:
        return most
    # Pairs above a cosine are above every smaller one, so that each that is refuted is a bound;
    # what is computed may refute a smaller cosine where it does not refute a larger one.
    steps = ((most - start) * LADDER).tolist()
    outside = next((step for step in steps if refuted(step)), None)
    if outside is None:
        return most
    inside = SMALLEST_STEP
    for _ in range(HALVINGS):
        middle = math.sqrt(inside * outside)
        inside, outside = (inside, middle) if refuted(middle) else (middle, outside)
    return start + outside


def _curved(
    classes: int,
    k: int,
    v: float,
    y: FloatArray,
    low: FloatArray,
    high: FloatArray,
    degree: FloatArray,
) -> FloatArray:
    """X without its linear term: the traces of P B^2, P B^3 and P B^4, each bounded."""
    through = (1 - v) ** 2 / classes
    square, cube = v**2 - through, v * (through - v**2)
    second = 2 * k + square * (high if square > 0 else low)
    third = high - 2 * k - 3 * v * (high if v < 0 else low) - through * (2 * k) ** 3 / classes**2
    third = third + cube * (low**2 / (2 * k) if cube < 0 else degree * high)
    fourth = degree * high * (1 + 2 * abs(v) + v**2 * np.sqrt(degree)) ** 2
    fourth = np.maximum(fourth - (through * low) ** 2, 0.0)
    radius = np.minimum(degree, (math.sqrt(8 * k + 1) - 1) / 2) + max(-v, 0.0) * degree
    return np.asarray(
        y**2 / 8 * second + y**3 / 16 * third + y**4 * _beyond_cubic(y * radius) * fourth
    )


def _entropy(
    classes: int, trace: FloatArray, curved: FloatArray, floor: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """The most that psi(u) sums to per column, u >= -floor with known mean and mean square.

    It is reached by two values, -floor and `top`: a quadratic touches psi there from above.
    """
    mean = -trace / (classes - 1)
    square = (2 * classes * curved - trace**2) / (classes - 1)
    above = mean + floor
    sound = (above > 0) & (floor < 1)
    above = np.where(sound, above, 1.0)
    top = (square + floor * mean) / above
    sound &= top >= 0
    top = np.where(sound, top, 0.0)
    share = np.where(sound, above / np.maximum(top + floor, 1e-300), 0.0)
    floor = np.where(sound, floor, 0.0)
    return (classes - 1) * ((1 - share) * _psi(-floor) + share * _psi(top)), top, sound


def _uneven(
    classes: int, k: int, v: float, y: FloatArray, high: FloatArray, degree: FloatArray
) -> FloatArray:
    """Norm of the gradient's row sums over mu: what a bias of norm 1 can change."""
    radius = (1 + abs(v)) * degree
    x = y * radius
    second = (_half(x) - x / 2) / np.maximum(radius, 1e-300)
    spread = np.sqrt(np.maximum(high - 4 * k**2 / classes, 0.0))
    return (1 - v) * (y / 2 * spread + second * np.sqrt(high))


def _half(x: FloatArray) -> FloatArray:
    """1 - sqrt(1 - x)."""
    return np.asarray(x / (1 + np.sqrt(1 - x)))


def _beyond_cubic(x: FloatArray) -> FloatArray:
    """(1 - sqrt(1 - x) - x/2 - x^2/8 - x^3/16) / x^4, which increases with x."""
    near = (5 + 3.5 * x * (1 + 0.75 * x / (1 - np.minimum(x, 0.5)))) / 128
    safe = np.maximum(x, 0.1)
    far = (_half(safe) - safe / 2 - safe**2 / 8 - safe**3 / 16) / safe**4
    return np.where(x < 0.1, near, far)


def _psi(u: FloatArray) -> FloatArray:
    """(1 + u) log(1 + u) - u."""
    series = u**2 * (1 / 2 - u * (1 / 6 - u * (1 / 12 - u * (1 / 20 - u / 30))))
    return np.where(np.abs(u) < SMALL, series, (1 + u) * np.log1p(u) - u)
