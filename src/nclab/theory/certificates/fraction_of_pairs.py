r"""Upper bound on the inter-class cosine of all but a few pairs of classes.

Suppose that k pairs of classes have inter-class cosines of at least v. These pairs are unknown, so
the proof must cover every graph with k edges whose vertices are the C classes. Let E be the
adjacency matrix of the graph, D the diagonal matrix of its degrees, P = I - 11^T/C,
B = E - v D, and R = (I - y B)^(1/2) for a number y > 0. For every mu > 0, the matrix
G = -mu P R gives a lower bound on the loss. This bound depends on the graph only through
X = tr P(I - R), and X is bounded by k, the largest degree and the sum of the squared degrees
(docs/certificates.md). At small excess loss the result is the exact worst case.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nclab.theory.certificates.inter import inter_from_means
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, deviation_upper, norm_ratio
from nclab.theory.certificates.one_class import alignment_lower, intra_lower
from nclab.theory.layer_peeled import FloatArray, wrong_probability

HALVINGS = 27
SMALLEST_STEP = 1e-12
"""Smallest deviation of a cosine from -1/(C-1) that the search tries."""
STEPS = 2.0 ** np.concatenate([np.linspace(-8, 1, 73), np.arange(2.0, 17.0)])
"""Values of y (see the module docstring) to try, divided by the best y at small excess loss. Large
values help if k is near the number of all pairs."""
LADDER = 0.75 ** np.arange(49)
"""Cosines where the search starts: 0 stands for -1/(C-1), and 1 for the largest cosine."""
ALMOST_ALL = 0.9
"""Share of the pairs. If a caller excludes more pairs, nclab also computes the bound that excludes
only this share, because it holds for the caller as well and may be smaller."""
SMALL = 1e-3


@dataclass(frozen=True)
class GraphGroups:
    """All graphs with a vertex per class and a given number of edges, grouped by the sum of their
    squared degrees (a degree is the number of edges at a vertex)."""

    edges: int
    least: FloatArray
    """Smallest sum of squared degrees in each group."""
    most: FloatArray
    degree: FloatArray
    """Largest degree of a graph in each group."""


def graphs_with(num_classes: int, edges: int) -> GraphGroups:
    """Return the groups of all graphs with one vertex per class and the given number of edges."""
    low, larger = divmod(2 * edges, num_classes)
    first = (num_classes - larger) * low**2 + larger * (low + 1) ** 2
    last = int(min(edges * (edges + 1), edges * (2 * edges / (num_classes - 1) + num_classes - 2)))
    bounds = [first]
    while bounds[-1] < last:  # the sum of squared degrees is even, like the sum of degrees
        bounds.append(bounds[-1] + max(2, 2 * ((bounds[-1] - first) // 20)))
    largest_squares = np.array(bounds, dtype=np.float64)
    degrees = np.arange(1.0, min(edges, num_classes - 1) + 1)
    others = 2 * edges - degrees
    needed = degrees**2 + np.maximum(others, others**2 / (num_classes - 1))
    needed[degrees <= math.ceil(2 * edges / num_classes)] = 0.0
    largest_degree = degrees[
        np.searchsorted(np.maximum.accumulate(needed), largest_squares, side="right") - 1
    ]
    return GraphGroups(
        edges,
        np.append(largest_squares[0], largest_squares[:-1] + 2),
        largest_squares,
        largest_degree,
    )


@dataclass(frozen=True)
class FeatureSpread:
    """Bounds on the feature norms of the classes and on the spread of features within classes."""

    ratio: float
    """Largest ratio of the feature norms of two classes."""
    variance: float | None
    """Upper bound on the share of the squared feature norm that is within classes. None if the
    cosines are those of class means, on which the spread within classes has no effect."""


def least_rise(
    inputs: NormsAndLoss, graphs: GraphGroups, cosine: float, spread: FeatureSpread
) -> float:
    r"""Return a lower bound on the excess loss if `graphs.edges` pairs have at least this cosine.

    $$L \ge \log\bigl(1+\omega\,e^{-(CA+\Xi-X)/\omega}\bigr),\qquad \omega = C-1-X$$

    The result is this bound minus the smallest loss that the norms allow. $A = \alpha\beta$, X is
    the trace of the module docstring, and $\Xi$ collects the terms of the entropy, of a bias and of
    the spread within classes (docs/certificates.md).

    Source: pan2023, Thm 2.3.1
    Range: real; -inf if nothing is proved.
    """
    classes, product, k = inputs.num_classes, inputs.product, graphs.edges
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
    curved = _trace_bound(classes, k, v, y, low, high, degree)
    trace = curved - gain  # X
    floor = _one_minus_root(y * (1 + abs(v)) * degree)
    entropy, top, sound = _entropy(classes, trace, curved, floor)
    extra = inputs.bias_norm * _row_sum_norm(classes, k, v, y, high, degree)
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


def pairs_upper(inputs: NormsAndLoss, excluded: int) -> float | None:
    r"""Return an upper bound on the inter-class cosine of all but `excluded` pairs of classes.

    $$\mathrm{inter} \le -\tfrac1{C-1}+\sqrt{\mu_2\,\varepsilon\,\tfrac{M-k}{kM}}\,(1+o(1)),\qquad
    k = \text{excluded}+1,\ M = \tfrac{C(C-1)}2$$

    The formula is the limit for small excess loss $\varepsilon$, with $\mu_2$ from
    `asymptotic_constants`; the returned bound holds for every excess loss.

    Source: pan2023, Thm 2.3.1
    Range: (-1/(C-1), 1), or None if no bound below 1 can be proved.
    """
    ratio = norm_ratio(inputs)
    if not math.isfinite(ratio):
        return None
    shift = min(1.0, deviation_upper(inputs) / (inputs.num_classes * inputs.product))
    spread = FeatureSpread(ratio, shift * (2 - shift))
    pairs = inputs.num_classes * (inputs.num_classes - 1) // 2
    best = 1.0
    # A bound with fewer excluded pairs also holds with these excluded.
    for few in {min(excluded, pairs - 1), min(excluded, int(ALMOST_ALL * pairs))}:
        graphs = graphs_with(inputs.num_classes, few + 1)
        best = min(best, _least_cosine(inputs, graphs, spread, 1.0))
        best = _through_means(inputs, graphs, ratio, best)
    return best if best < 1 else None


def _through_means(inputs: NormsAndLoss, graphs: GraphGroups, ratio: float, limit: float) -> float:
    """Return a bound on inter-class cosines, from one on cosines of class means, or `limit`.

    The result is `limit` if the bound would not be smaller.
    """
    rho = alignment_lower(inputs)
    if rho <= 0:
        return limit
    intra = intra_lower(inputs, rho).value
    added = inter_from_means(0.0, rho, intra)
    needed = min(limit - added, (limit - added) / rho**2)
    if needed <= -1 / (inputs.num_classes - 1):
        return limit
    means = _least_cosine(inputs, graphs, FeatureSpread(ratio, None), needed)
    return inter_from_means(means, rho, intra) if means < needed else limit


def _least_cosine(
    inputs: NormsAndLoss, graphs: GraphGroups, spread: FeatureSpread, limit: float
) -> float:
    """Return the smallest bound found on the cosine, or `limit` if no smaller bound is found.

    A cosine is a bound if every network in which `graphs.edges` pairs reach it has a larger loss
    than the loss of `inputs`.
    """
    start = -1 / (inputs.num_classes - 1)
    target = inputs.excess * (1 + 1e-9)

    def refuted(step: float) -> bool:
        return least_rise(inputs, graphs, start + step, spread) >= target

    if limit - start <= SMALLEST_STEP:
        return limit
    # Every refuted cosine is a bound. The computation may refute a smaller cosine and yet not
    # refute a larger one, so the search tries several starting points.
    steps = ((limit - start) * LADDER).tolist()
    outside = next((step for step in steps if refuted(step)), None)
    if outside is None:
        return limit
    inside = SMALLEST_STEP
    for _ in range(HALVINGS):
        middle = math.sqrt(inside * outside)
        inside, outside = (inside, middle) if refuted(middle) else (middle, outside)
    return start + outside


def _trace_bound(
    classes: int,
    k: int,
    v: float,
    y: FloatArray,
    low: FloatArray,
    high: FloatArray,
    degree: FloatArray,
) -> FloatArray:
    """Return an upper bound on X (see the module docstring) minus its term that is linear in y.

    The bound follows from bounds on the traces of P B^2, P B^3 and P B^4.
    """
    through = (1 - v) ** 2 / classes
    square, cube = v**2 - through, v * (through - v**2)
    second = 2 * k + square * (high if square > 0 else low)
    third = high - 2 * k - 3 * v * (high if v < 0 else low) - through * (2 * k) ** 3 / classes**2
    third = third + cube * (low**2 / (2 * k) if cube < 0 else degree * high)
    fourth = degree * high * (1 + 2 * abs(v) + v**2 * np.sqrt(degree)) ** 2
    fourth = np.maximum(fourth - (through * low) ** 2, 0.0)
    radius = np.minimum(degree, (math.sqrt(8 * k + 1) - 1) / 2) + max(-v, 0.0) * degree
    return np.asarray(
        y**2 / 8 * second + y**3 / 16 * third + y**4 * _fourth_order_remainder(y * radius) * fourth
    )


def _entropy(
    classes: int, trace: FloatArray, curved: FloatArray, floor: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return the largest sum of `_psi`(u), `top`, and a mask that is true where both are valid.

    The sum is over the wrong classes. Each has a number u >= -floor; mean and mean square of these
    numbers are known. The sum is largest if every u is -floor or `top`.
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


def _row_sum_norm(
    classes: int, k: int, v: float, y: FloatArray, high: FloatArray, degree: FloatArray
) -> FloatArray:
    """Return an upper bound on |G 1| / mu: the loss bound changes by |G 1| for a bias of norm 1."""
    radius = (1 + abs(v)) * degree
    x = y * radius
    remainder = (_one_minus_root(x) - x / 2) / np.maximum(radius, 1e-300)
    spread = np.sqrt(np.maximum(high - 4 * k**2 / classes, 0.0))
    return (1 - v) * (y / 2 * spread + remainder * np.sqrt(high))


def _one_minus_root(x: FloatArray) -> FloatArray:
    return np.asarray(x / (1 + np.sqrt(1 - x)))


def _fourth_order_remainder(x: FloatArray) -> FloatArray:
    """Return (1 - sqrt(1 - x) - x/2 - x^2/8 - x^3/16) / x^4, an increasing function of x."""
    small = (5 + 3.5 * x * (1 + 0.75 * x / (1 - np.minimum(x, 0.5)))) / 128
    safe = np.maximum(x, 0.1)
    large = (_one_minus_root(safe) - safe / 2 - safe**2 / 8 - safe**3 / 16) / safe**4
    return np.where(x < 0.1, small, large)


def _psi(u: FloatArray) -> FloatArray:
    """Return (1 + u) log(1 + u) - u."""
    series = u**2 * (1 / 2 - u * (1 / 6 - u * (1 / 12 - u * (1 / 20 - u / 30))))
    return np.where(np.abs(u) < SMALL, series, (1 + u) * np.log1p(u) - u)
