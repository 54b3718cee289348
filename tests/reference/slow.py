"""All metrics as slow, obvious loops in multiprecision arithmetic, without any code of nclab.

`slow_metrics` returns floats for ordinary data. For extreme data, call `exact_metrics` within
`mp.workprec(precision(...))`: this many binary digits hold all squares without rounding.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.reference.digits import mp, mpf

Number = Any
Row = list[Number]
ZERO = mpf(0)
SPARE = 200
"""Binary digits in addition to those that differences and their squares need."""


def slow_metrics(
    features: Any, labels: Any, weight: Any | None = None, bias: Any | None = None
) -> dict[str, Any]:
    """Return all metrics of a measurement as floats; None if a metric is undefined."""
    rows, classes = np.asarray(features, dtype=np.float64), np.asarray(labels).tolist()
    count = max(classes) + 1
    w = np.zeros((count, rows.shape[1])) if weight is None else np.asarray(weight, np.float64)
    b = np.zeros(count) if bias is None else np.asarray(bias, np.float64)
    with mp.workprec(precision(rows, w, b)):
        data = ExactData.of(rows, classes, w, b)
        values = feature_metrics(data)
        if weight is not None:
            values |= classifier_metrics(data)
        return {name: float(x) if mp.isfinite(x) else None for name, x in values.items()}


def precision(*arrays: Any) -> int:
    """Return the binary digits for these arrays: twice the range from smallest to largest."""
    sizes = np.concatenate([np.abs(np.asarray(array, np.float64)).ravel() for array in arrays])
    exponents = np.frexp(sizes[sizes > 0])[1] if sizes.any() else np.zeros(1, int)
    return 2 * (int(exponents.max() - exponents.min()) + 53) + SPARE


class ExactData(NamedTuple):
    """Features, classifier and derived vectors, without rounding."""

    groups: list[list[Row]]
    means: list[Row]
    centre: Row
    centred: list[Row]
    """Class means minus the centre."""
    offsets: list[list[Row]]
    """Features minus their class mean."""
    around: list[list[Row]]
    """Features minus the centre."""
    weight: list[Row]
    rows: list[Row]
    """Classifier rows minus their mean."""
    bias: Row

    @classmethod
    def of(cls, features: Any, labels: Sequence[int], weight: Any, bias: Any) -> "ExactData":
        """Convert arrays of features, labels, weights and biases."""
        groups: list[list[Row]] = [[] for _ in weight]
        for row, label in zip(features, labels, strict=True):
            groups[label].append([mpf(float(x)) for x in row])
        means = [mean(group) for group in groups]
        centre = mean(means)
        w = [[mpf(float(x)) for x in row] for row in weight]
        weight_mean = mean(w)
        return cls(
            groups,
            means,
            centre,
            [minus(row, centre) for row in means],
            [[minus(row, m) for row in group] for group, m in zip(groups, means, strict=True)],
            [[minus(row, centre) for row in group] for group in groups],
            w,
            [minus(row, weight_mean) for row in w],
            [mpf(float(x)) for x in bias],
        )

    @property
    def total(self) -> int:
        """Number of samples, N."""
        return sum(len(group) for group in self.groups)


def minus(left: Row, right: Row) -> Row:
    """Return the difference of two rows."""
    return [a - b for a, b in zip(left, right, strict=True)]


def mean(rows: Sequence[Row]) -> Row:
    """Return the mean of rows."""
    return [sum(column, ZERO) / len(rows) for column in zip(*rows, strict=True)]


def dot(left: Row, right: Row) -> Number:
    """Return the inner product of two rows."""
    return mp.fdot(left, right)


def norm(row: Row) -> Number:
    """Return the Euclidean norm of a row."""
    return mp.sqrt(dot(row, row))


def unit(row: Row) -> Row:
    """Return the row scaled to norm one; zeros stay zeros."""
    size = norm(row)
    return [x / size for x in row] if size else row


def average(values: Sequence[Number]) -> Number:
    """Return the mean of numbers."""
    return sum(values, ZERO) / len(values)


def deviation(values: Sequence[Number]) -> Number:
    """Return the population standard deviation of numbers."""
    centre = average(values)
    return mp.sqrt(average([(value - centre) ** 2 for value in values]))


def pairs_of(count: int) -> list[tuple[int, int]]:
    """Return all pairs of indices a < b."""
    return [(a, b) for a in range(count) for b in range(a + 1, count)]


def basis_of(rows: Sequence[Row]) -> list[Row]:
    """Return orthonormal rows with the same span, longest first, without mere rounding."""
    left: list[Row] = [list(row) for row in rows]
    basis: list[Row] = []
    sizes = [dot(row, row) for row in left]
    floor = max(sizes, default=ZERO) * mpf(2) ** (SPARE // 2 - mp.prec)
    while left:
        sizes = [dot(row, row) for row in left]
        longest = max(range(len(left)), key=lambda index: sizes[index])
        if sizes[longest] <= floor:
            break
        axis = unit(left.pop(longest))
        basis.append(axis)
        left = [minus(row, [dot(row, axis) * x for x in axis]) for row in left]
    return basis


def coordinates(row: Row, basis: Sequence[Row]) -> Row:
    """Return the coordinates in an orthonormal basis; mere rounding becomes 0."""
    floor = norm(row) * mpf(2) ** (SPARE // 2 - mp.prec)
    return [x if abs(x) > floor else ZERO for x in (dot(row, axis) for axis in basis)]


def inverse_trace(data: ExactData) -> tuple[Number, Number, Number]:
    """Return tr(Σ_W Σ_B†)/C, the trace of (ṀᵀṀ)†, and its sum weighted by Σ_W's diagonal."""
    basis = basis_of(data.centred)
    if not basis:
        return mp.nan, ZERO, ZERO
    inverse = inverse_of(gram_of([[dot(row, axis) for axis in basis] for row in data.centred]))
    size = range(len(basis))
    value = ZERO
    for group in data.offsets:
        for row in group:
            x = coordinates(row, basis)
            value += sum(x[i] * inverse[i][j] * x[j] for i in size for j in size)
    weighted = ZERO
    for k in range(len(data.centre)):
        spread = sum((row[k] ** 2 for group in data.offsets for row in group), ZERO)
        along = sum(basis[i][k] * inverse[i][j] * basis[j][k] for i in size for j in size)
        weighted += spread * along
    trace = sum(inverse[i][i] for i in size)
    return value / data.total, trace, weighted / data.total


def exp_entropy(sizes: Sequence[Number]) -> Number:
    """Return exp(-sum p log p) of the shares p of the sizes."""
    total = sum(sizes, ZERO)
    if not total:
        return mp.nan
    shares = [size / total for size in sizes if size > 0]
    return mp.exp(-sum((p * mp.log(p) for p in shares), ZERO))


def gram_of(rows: Sequence[Row]) -> list[Row]:
    """Return AᵀA for the matrix A of these rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [[dot(a, b) for b in columns] for a in columns]


def inverse_of(matrix: Sequence[Row]) -> list[Row]:
    """Return the inverse by elimination with partial pivoting."""
    size = len(matrix)
    left = [[*row, *(mpf(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for k in range(size):
        best = max(range(k, size), key=lambda i: abs(left[i][k]))
        left[k], left[best] = left[best], left[k]
        left[k] = [x / left[k][k] for x in left[k]]
        for i in range(size):
            if i != k and left[i][k]:
                left[i] = minus(left[i], [left[i][k] * x for x in left[k]])
    return [row[size:] for row in left]


def eigenvalues(matrix: Sequence[Row]) -> list[Number]:
    """Return the eigenvalues of a positive semidefinite matrix by Jacobi rotations."""
    a, size = [list(row) for row in matrix], len(matrix)
    floor = sum((x * x for row in a for x in row), ZERO) * mpf(2) ** (SPARE // 2 - 2 * mp.prec)
    while sum((a[i][j] ** 2 for i, j in pairs_of(size)), ZERO) > floor:
        for i, j in pairs_of(size):
            if a[i][j]:
                rotate(a, i, j)
    return [max(a[i][i], ZERO) for i in range(size)]


def rotate(a: list[Row], i: int, j: int) -> None:
    """Rotate two axes in place so that a[i][j] becomes zero."""
    half = (a[j][j] - a[i][i]) / (2 * a[i][j])
    t = 1 / (abs(half) + mp.sqrt(half * half + 1))
    t = -t if half < 0 else t
    c = 1 / mp.sqrt(t * t + 1)
    s = t * c
    for row in a:
        row[i], row[j] = c * row[i] - s * row[j], s * row[i] + c * row[j]
    first, second = a[i], a[j]
    a[i] = [c * x - s * y for x, y in zip(first, second, strict=True)]
    a[j] = [s * x + c * y for x, y in zip(first, second, strict=True)]


def singular_values(rows: Sequence[Row]) -> list[Number]:
    """Return the singular values of a matrix of these rows."""
    tall = len(rows) >= len(rows[0])
    gram = gram_of(rows if tall else [list(column) for column in zip(*rows, strict=True)])
    return [mp.sqrt(value) for value in eigenvalues(gram)]


def angles(rows: Sequence[Row]) -> list[Number] | None:
    """Return the cosines of all pairs of rows, or None if a row has no direction."""
    if not all(any(row) for row in rows):
        return None
    units = [unit(row) for row in rows]
    return [dot(units[a], units[b]) for a, b in pairs_of(len(rows))]


def mean_units(groups: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the mean unit vector of each class."""
    return [mean([unit(row) for row in group]) for group in groups]


def cosines(groups: Sequence[Sequence[Row]], prefix: str) -> dict[str, Number]:
    """Return averages of cosines over all pairs of samples, including i = j."""
    units = [[unit(row) for row in group] for group in groups]
    intra = [average([dot(u, v) for u in group for v in group]) for group in units]
    inter = [
        average([dot(u, v) for u in units[a] for v in units[b]]) for a, b in pairs_of(len(units))
    ]
    return {
        f"{prefix}min_intra": min(intra),
        f"{prefix}mean_intra": average(intra),
        f"{prefix}max_inter": max(inter),
        f"{prefix}mean_inter": average(inter),
    }


def nc2(rows: Sequence[Row], suffix: str) -> dict[str, Number]:
    """Return the NC2 metrics from norms and angles of centred rows."""
    sizes = [norm(row) for row in rows]
    pairs, ideal = angles(rows), mpf(-1) / (len(rows) - 1)
    gap = mp.nan if pairs is None else average([abs(cosine - ideal) for cosine in pairs])
    return {
        f"nc2_norm_variation_{suffix}": deviation(sizes) / average(sizes) if any(sizes) else mp.nan,
        f"nc2_equiangularity_{suffix}": gap,
        f"nc2_cosine_std_{suffix}": mp.nan if pairs is None else deviation(pairs),
    }


def gram_distance(left: Sequence[Row], right: Sequence[Row]) -> Number:
    """Return |A/|A| - S| for A = left rightᵀ and S that of a simplex ETF."""
    count = len(left)
    product = [[dot(a, b) for b in right] for a in left]
    size = mp.sqrt(sum((x * x for row in product for x in row), ZERO))
    if not size:
        return mp.nan
    root = mp.sqrt(mpf(count - 1))
    ideal = [[((a == b) - mpf(1) / count) / root for b in range(count)] for a in range(count)]
    entries = [(a, b) for a in range(count) for b in range(count)]
    return mp.sqrt(sum(((product[a][b] / size - ideal[a][b]) ** 2 for a, b in entries), ZERO))


def quotient(numerator: Number, denominator: Number) -> Number:
    """Return a quotient of non-negative numbers: inf for a zero denominator, nan for 0/0."""
    if denominator:
        return numerator / denominator
    return mp.inf if numerator else mp.nan


def variances(data: ExactData) -> list[Number]:
    """Return the mean squared distance to the class mean for each class."""
    return [average([dot(row, row) for row in group]) for group in data.offsets]


def nc1(data: ExactData) -> dict[str, Number]:
    """Return the NC1 metrics from their definitions."""
    count, v = len(data.means), variances(data)
    within = sum((dot(x, x) for group in data.offsets for x in group), ZERO) / data.total
    between = average([dot(row, row) for row in data.centred])
    pairs = []
    for a, b in pairs_of(count):
        direction = minus(data.centred[b], data.centred[a])
        square = dot(direction, direction)
        pairs.append(quotient(v[a] + v[b], 2 * square))
    spread = [norm(row) for group in data.offsets for row in group]
    reach = [norm(row) for group in data.around for row in group]
    return {
        "nc1_trace_pinv": inverse_trace(data)[0],
        "nc1_trace_ratio": quotient(within, between),
        "cdnv": average(pairs),
        "nc1_within_variation": quotient(average(spread), average(reach)),
    }


def weight_metrics(data: ExactData) -> dict[str, Number]:
    """Return the metrics of classifier rows and class means."""
    count = len(data.weight)
    sizes = [norm(row) for row in data.weight]
    frobenius = mp.sqrt(sum((size**2 for size in sizes), ZERO))
    total = [sum(column, ZERO) for column in zip(*data.weight, strict=True)]
    mean_size = mp.sqrt(sum((dot(row, row) for row in data.centred), ZERO))
    out = nc2(data.rows, "weights")
    out["nc0_weight_mean"] = quotient(norm(total), mp.sqrt(mpf(count)) * frobenius)
    out["beta"] = frobenius / mp.sqrt(mpf(count))
    out["nc3_self_duality"] = out["nc3_alignment_min"] = out["nc3_alignment_mean"] = mp.nan
    out["unc3_duality"] = out["nc3_frobenius"] = mp.nan
    rows_directed, means_directed = (
        all(any(row) for row in rows) for rows in (data.rows, data.centred)
    )
    if rows_directed and means_directed:
        both = zip(data.centred, data.rows, strict=True)
        out["nc3_self_duality"] = average([norm(minus(unit(m), unit(w))) for m, w in both])
    if rows_directed and all(any(row) for row in data.means):
        both = zip(data.means, data.rows, strict=True)
        aligned = [dot(unit(m), unit(w)) for m, w in both]
        out["nc3_alignment_min"], out["nc3_alignment_mean"] = min(aligned), average(aligned)
    if means_directed and all(sizes):
        both = zip(data.centred, data.weight, strict=True)
        out["unc3_duality"] = deviation([dot(unit(m), unit(w)) for m, w in both]) ** 2
    if frobenius and mean_size:
        both = zip(data.weight, data.centred, strict=True)
        gaps = [
            minus([x / frobenius for x in w], [x / mean_size for x in m])  # papyan2020, Fig. 5
            for w, m in both
        ]
        out["nc3_frobenius"] = sum((dot(row, row) for row in gaps), ZERO)
    out["nc2_gram_weights"] = gram_distance(data.weight, data.weight)
    out["nc3_gram"] = gram_distance(data.weight, data.centred)
    values = [value**2 for value in singular_values(data.weight)]
    out["stable_rank_weights"] = quotient(sum(values, ZERO), max(values))
    counts = [len(group) for group in data.groups]
    small = [data.rows[c] for c in range(count) if 2 * counts[c] <= max(counts)]
    minority = angles(small) if len(small) > 1 else None
    out["minority_cosine"] = mp.nan if minority is None else average(minority)
    return out


def logits_of(data: ExactData) -> list[list[Row]]:
    """Return the logits by class and sample."""
    return [
        [[dot(w, h) + b for w, b in zip(data.weight, data.bias, strict=True)] for h in group]
        for group in data.groups
    ]


def margin_of(z: Row, label: int) -> Number:
    """Return the logit of the label minus the largest other logit."""
    return z[label] - max(z[:label] + z[label + 1 :])


def loss_of(z: Row, label: int) -> Number:
    """Return the cross-entropy of one sample."""
    others = [x - z[label] for c, x in enumerate(z) if c != label]
    top = max(others)
    powers = sum((mp.exp(x - top) for x in others if x - top > -10000), ZERO)
    if top <= 0:
        return mp.log1p(mp.exp(top) * powers) if top > -3000 else ZERO
    return top + mp.log(powers + (mp.exp(-top) if top < 10000 else ZERO))


def mean_square_norm(data: ExactData) -> Number:
    """Return the mean squared norm of the features, with equal weights of classes."""
    return average([average([dot(h, h) for h in group]) for group in data.groups])


def loss_metrics(data: ExactData) -> dict[str, Number]:
    """Return loss, accuracy and margins, computed sample by sample."""
    count, logits = len(data.weight), logits_of(data)
    losses = [[loss_of(z, label) for z in group] for label, group in enumerate(logits)]
    margins = [margin_of(z, label) for label, group in enumerate(logits) for z in group]
    square = mean_square_norm(data)
    alpha = mp.sqrt(square)
    rows = sum((dot(w, w) for w in data.weight), ZERO)
    beta = mp.sqrt(rows / count)
    balanced = average([average(group) for group in losses])
    power = mpf(count) / (count - 1) * alpha * beta
    best = mp.log1p((count - 1) * mp.exp(-power)) if power < 3000 else ZERO
    size = rows + data.total * square
    lead = min(margins) * 2 * (count - 1) * mp.sqrt(mpf(data.total) / count)
    return {
        "loss": average([x for group in losses for x in group]),
        "balanced_loss": balanced,
        "optimal_loss": best,
        "excess_loss": balanced - best,
        "margin": min(margins),
        "normalised_margin": quotient(lead, size) if size else mp.nan,
        "accuracy": average([mpf(prediction(z) == c) for c, g in enumerate(logits) for z in g]),
    }


def prediction(scores: Row) -> int:
    """Return the first index of the largest score."""
    return scores.index(max(scores))


def nearest_mean(data: ExactData, h: Row) -> list[Number]:
    """Return the squared distances of a feature to all class means."""
    gaps = [minus(h, m) for m in data.means]
    return [dot(gap, gap) for gap in gaps]


def nearest_direction(units: Sequence[Row], h: Row) -> list[Number]:
    """Return the cosines with all mean directions; a zero direction is never the nearest."""
    direction = unit(h)
    return [dot(direction, unit(u)) if any(u) else mpf(-2) for u in units]


def nearest_classes(data: ExactData, h: Row, units: Sequence[Row]) -> tuple[int, int]:
    """Return the nearest class mean and the nearest mean direction; -1 for a zero vector."""
    by_angle = prediction(nearest_direction(units, h)) if any(h) else -1
    return prediction([-x for x in nearest_mean(data, h)]), by_angle


def nc4(
    data: ExactData, targets: Sequence[Sequence[int]], names: tuple[str, str]
) -> dict[str, Number]:
    """Return the shares of samples whose nearest mean, or direction, is the target class."""
    units = mean_units(data.groups)
    by_mean, by_angle = [], []
    for group, classes in zip(data.groups, targets, strict=True):
        for h, target in zip(group, classes, strict=True):
            nearest, aligned = nearest_classes(data, h, units)
            by_mean.append(mpf(nearest == target))
            by_angle.append(mpf(aligned == target))
    distinct = any(x for row in data.centred for x in row)
    return {names[0]: average(by_mean) if distinct else mp.nan, names[1]: average(by_angle)}


def feature_metrics(data: ExactData) -> dict[str, Number]:
    """Return the metrics that need no classifier."""
    labels = [[c] * len(group) for c, group in enumerate(data.groups)]
    out = cosines(data.groups, "") | cosines(data.around, "centred_")
    out |= nc1(data) | nc2(data.centred, "means")
    out |= nc4(data, labels, ("nc4_ncc_accuracy", "nc4_cosine_accuracy"))
    out["alpha"] = mp.sqrt(mean_square_norm(data))
    out["rankme"] = exp_entropy(singular_values([h for group in data.groups for h in group]))
    return out


def classifier_metrics(data: ExactData) -> dict[str, Number]:
    """Return the metrics that need a classifier."""
    decisions = [[prediction(z) for z in group] for group in logits_of(data)]
    agreement = nc4(data, decisions, ("nc4_agreement", "nc4_cosine_agreement"))
    return weight_metrics(data) | loss_metrics(data) | agreement


def exact_metrics(data: ExactData) -> dict[str, Number]:
    """Return all metrics of the catalogue except those of a reference."""
    return feature_metrics(data) | classifier_metrics(data)


def reference_metrics(
    train: ExactData, test: ExactData, labels: Sequence[int]
) -> dict[str, Number]:
    """Return the metrics of test data relative to the class means of training data."""
    spread = average([dot(row, row) for row in train.centred])
    hits, agrees, squares = [], [], []
    clusters: dict[int, list[Row]] = {}
    logits = logits_of(test)
    for c, group in enumerate(test.groups):
        for h, z in zip(group, logits[c], strict=True):
            distances = nearest_mean(train, h)
            nearest = prediction([-x for x in distances])
            hits.append(mpf(nearest == c))
            agrees.append(mpf(nearest == prediction(z)))
            squares.append(distances[c])
            clusters.setdefault(nearest, []).append(h)
    within = ZERO
    for rows in clusters.values():
        centre = mean(rows)
        gaps = [minus(row, centre) for row in rows]
        within += sum((dot(gap, gap) for gap in gaps), ZERO)
    shifts = [minus(a, b) for a, b in zip(test.means, train.means, strict=True)]
    if not spread:
        return {}
    return {
        "reference_ncc_accuracy": average(hits),
        "reference_ncc_agreement": average(agrees),
        "strong_test_collapse": average(squares) / spread,
        "weak_test_collapse": within / len(labels) / spread,
        "reference_mean_shift": average([dot(row, row) for row in shifts]) / spread,
        "reference_spread_ratio": quotient(sum(variances(test), ZERO), sum(variances(train), ZERO)),
    }
