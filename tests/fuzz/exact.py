"""Every metric again in arithmetic of hundreds of digits, sharing no code with nclab.

`precision` says how many binary digits hold the squares of all that is given without rounding, and
many more; everything below is to be called in `mp.workprec` of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.digits import mp, mpf

Number = Any
Row = list[Number]
ZERO = mpf(0)


SPARE = 200
"""Binary digits beyond those that differences and their squares need."""


def precision(*arrays: Any) -> int:
    """Binary digits for the numbers of these arrays: twice the range from largest to smallest."""
    sizes = np.concatenate([np.abs(np.asarray(array, np.float64)).ravel() for array in arrays])
    exponents = np.frexp(sizes[sizes > 0])[1] if sizes.any() else np.zeros(1, int)
    return 2 * (int(exponents.max() - exponents.min()) + 53) + SPARE


class Exact(NamedTuple):
    """Features, classifier and what is derived of them, without rounding."""

    groups: list[list[Row]]
    means: list[Row]
    centre: Row
    centred: list[Row]
    """Class means minus their mean."""
    offsets: list[list[Row]]
    """h - class mean."""
    around: list[list[Row]]
    """h - centre."""
    weight: list[Row]
    rows: list[Row]
    """Classifier rows minus their mean."""
    bias: Row

    @classmethod
    def of(cls, features: Any, labels: Sequence[int], weight: Any, bias: Any) -> "Exact":
        """Of arrays as they came."""
        groups: list[list[Row]] = [[] for _ in weight]
        for row, label in zip(features, labels, strict=True):
            groups[label].append([mpf(float(x)) for x in row])
        means = [mean(group) for group in groups]
        centre = mean(means)
        w = [[mpf(float(x)) for x in row] for row in weight]
        middle = mean(w)
        return cls(
            groups,
            means,
            centre,
            [minus(row, centre) for row in means],
            [[minus(row, m) for row in group] for group, m in zip(groups, means, strict=True)],
            [[minus(row, centre) for row in group] for group in groups],
            w,
            [minus(row, middle) for row in w],
            [mpf(float(x)) for x in bias],
        )

    @property
    def total(self) -> int:
        """N."""
        return sum(len(group) for group in self.groups)


def minus(left: Row, right: Row) -> Row:
    return [a - b for a, b in zip(left, right, strict=True)]


def mean(rows: Sequence[Row]) -> Row:
    return [sum(column, ZERO) / len(rows) for column in zip(*rows, strict=True)]


def dot(left: Row, right: Row) -> Number:
    return mp.fdot(left, right)


def norm(row: Row) -> Number:
    return mp.sqrt(dot(row, row))


def unit(row: Row) -> Row:
    """A row of norm one; zeros stay zeros."""
    size = norm(row)
    return [x / size for x in row] if size else row


def average(values: Sequence[Number]) -> Number:
    return sum(values, ZERO) / len(values)


def deviation(values: Sequence[Number]) -> Number:
    middle = average(values)
    return mp.sqrt(average([(value - middle) ** 2 for value in values]))


def pairs_of(count: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(count) for b in range(a + 1, count)]


def basis_of(rows: Sequence[Row]) -> list[Row]:
    """Orthonormal rows that span the same, longest first; what is left of rounding is none."""
    left, basis = [list(row) for row in rows], []
    sizes = [dot(row, row) for row in left]
    floor = max(sizes, default=ZERO) * mpf(2) ** (SPARE // 2 - mp.prec)
    while left:
        sizes = [dot(row, row) for row in left]
        longest = max(range(len(left)), key=lambda place: sizes[place])
        if sizes[longest] <= floor:
            break
        own = unit(left.pop(longest))
        basis.append(own)
        left = [minus(row, [dot(row, own) * x for x in own]) for row in left]
    return basis


def coordinates(row: Row, basis: Sequence[Row]) -> Row:
    """In an orthonormal basis; what is left of rounding is none, as in `basis_of`."""
    floor = norm(row) * mpf(2) ** (SPARE // 2 - mp.prec)
    return [x if abs(x) > floor else ZERO for x in (dot(row, own) for own in basis)]


def inverse_trace(data: Exact) -> tuple[Number, Number, Number]:
    """tr(Σ_W Σ_B†)/C, the trace of (ṀᵀṀ)†, and Σ_k S_kk of it: what rounding sees."""
    basis = basis_of(data.centred)
    if not basis:
        return mp.nan, ZERO, ZERO
    inverse = inverse_of(gram_of([[dot(row, own) for own in basis] for row in data.centred]))
    size = range(len(basis))
    value = ZERO
    for group in data.offsets:
        for row in group:
            x = coordinates(row, basis)
            value += sum(x[i] * inverse[i][j] * x[j] for i in size for j in size)
    of_rounding = ZERO
    for k in range(len(data.centre)):
        spread = sum((row[k] ** 2 for group in data.offsets for row in group), ZERO)
        along = sum(basis[i][k] * inverse[i][j] * basis[j][k] for i in size for j in size)
        of_rounding += spread * along
    trace = sum(inverse[i][i] for i in size)
    return value / data.total, trace, of_rounding / data.total


def exp_entropy(sizes: Sequence[Number]) -> Number:
    total = sum(sizes, ZERO)
    if not total:
        return mp.nan
    shares = [size / total for size in sizes if size > 0]
    return mp.exp(-sum((p * mp.log(p) for p in shares), ZERO))


def gram_of(rows: Sequence[Row]) -> list[Row]:
    """AᵀA of a matrix A of these rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [[dot(a, b) for b in columns] for a in columns]


def inverse_of(matrix: Sequence[Row]) -> list[Row]:
    """By elimination, the largest of a column first."""
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
    """Of a symmetric matrix, none below 0: by Jacobi's turns, until what they turn is nothing."""
    a, size = [list(row) for row in matrix], len(matrix)
    floor = sum((x * x for row in a for x in row), ZERO) * mpf(2) ** (SPARE // 2 - 2 * mp.prec)
    while sum((a[i][j] ** 2 for i, j in pairs_of(size)), ZERO) > floor:
        for i, j in pairs_of(size):
            if a[i][j]:
                turn(a, i, j)
    return [max(a[i][i], ZERO) for i in range(size)]


def turn(a: list[Row], i: int, j: int) -> None:
    """The rotation of two axes that makes a[i][j] zero, in place."""
    half = (a[j][j] - a[i][i]) / (2 * a[i][j])
    t = 1 / (abs(half) + mp.sqrt(half * half + 1))
    t = -t if half < 0 else t
    c = 1 / mp.sqrt(t * t + 1)
    s = t * c
    for row in a:
        row[i], row[j] = c * row[i] - s * row[j], s * row[i] + c * row[j]
    own, other = a[i], a[j]
    a[i] = [c * x - s * y for x, y in zip(own, other, strict=True)]
    a[j] = [s * x + c * y for x, y in zip(own, other, strict=True)]


def cholesky(matrix: Sequence[Row]) -> list[Row]:
    """L with L Lᵀ = matrix, however different the sizes of its entries are."""
    size = len(matrix)
    lower = [[ZERO] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum((lower[i][k] * lower[j][k] for k in range(j)), ZERO)
            lower[i][j] = mp.sqrt(rest) if i == j else rest / lower[j][j]
    return lower


def lidar(data: Exact) -> Number:
    basis = basis_of([row for group in data.offsets for row in group])
    if not basis:
        return mp.nan
    spread = [[dot(row, own) for own in basis] for group in data.offsets for row in group]
    lower = inverse_of(cholesky(gram_of(spread)))
    inside = [[dot(row, own) for own in basis] for row in data.centred]
    return exp_entropy(eigenvalues(gram_of([[dot(row, x) for x in lower] for row in inside])))


def singular_values(rows: Sequence[Row]) -> list[Number]:
    tall = len(rows) >= len(rows[0])
    gram = gram_of(rows if tall else [list(column) for column in zip(*rows, strict=True)])
    return [mp.sqrt(value) for value in eigenvalues(gram)]


def angles(rows: Sequence[Row]) -> list[Number] | None:
    """Cosines of all pairs; None where a row has no direction."""
    if not all(any(row) for row in rows):
        return None
    units = [unit(row) for row in rows]
    return [dot(units[a], units[b]) for a, b in pairs_of(len(rows))]


def mean_units(groups: Sequence[Sequence[Row]]) -> list[Row]:
    return [mean([unit(row) for row in group]) for group in groups]


def cosines(groups: Sequence[Sequence[Row]], prefix: str) -> dict[str, Number]:
    units = mean_units(groups)
    intra = [dot(row, row) for row in units]
    inter = [dot(units[a], units[b]) for a, b in pairs_of(len(units))]
    return {
        f"{prefix}min_intra": min(intra),
        f"{prefix}mean_intra": average(intra),
        f"{prefix}max_inter": max(inter),
        f"{prefix}mean_inter": average(inter),
    }


def nc2(rows: Sequence[Row], what: str) -> dict[str, Number]:
    sizes = [norm(row) for row in rows]
    found, ideal = angles(rows), mpf(-1) / (len(rows) - 1)
    off = mp.nan if found is None else average([abs(one - ideal) for one in found])
    return {
        f"nc2_norm_variation_{what}": deviation(sizes) / average(sizes) if any(sizes) else mp.nan,
        f"nc2_equiangularity_{what}": off,
        f"nc2_cosine_std_{what}": mp.nan if found is None else deviation(found),
    }


def gram_distance(left: Sequence[Row], right: Sequence[Row]) -> Number:
    """|A/|A| - S| of A = left rightᵀ."""
    count = len(left)
    product = [[dot(a, b) for b in right] for a in left]
    size = mp.sqrt(sum((x * x for row in product for x in row), ZERO))
    if not size:
        return mp.nan
    root = mp.sqrt(mpf(count - 1))
    ideal = [[((a == b) - mpf(1) / count) / root for b in range(count)] for a in range(count)]
    places = [(a, b) for a in range(count) for b in range(count)]
    return mp.sqrt(sum(((product[a][b] / size - ideal[a][b]) ** 2 for a, b in places), ZERO))


def quotient(top: Number, below: Number) -> Number:
    if below:
        return top / below
    return mp.inf if top else mp.nan


def variances(data: Exact) -> list[Number]:
    return [average([dot(row, row) for row in group]) for group in data.offsets]


def nc1(data: Exact) -> dict[str, Number]:
    count, v = len(data.means), variances(data)
    within = sum((dot(x, x) for group in data.offsets for x in group), ZERO) / data.total
    between = average([dot(row, row) for row in data.centred])
    pairs, along = [], {}
    for a, b in pairs_of(count):
        way = minus(data.centred[b], data.centred[a])
        square = dot(way, way)
        pairs.append(quotient(v[a] + v[b], 2 * square))
        for own in (a, b):
            squares = [dot(row, way) ** 2 for row in data.offsets[own]]
            along[own, a + b - own] = quotient(average(squares), square * square)
    bound = ZERO
    for own, group in enumerate(data.groups):
        shares = [
            value / (value + mpf(0.25)) if mp.isfinite(value) else value
            for (one, _), value in along.items()
            if one == own
        ]
        bound += min(mpf(1), sum(shares, ZERO)) * len(group) / data.total
    spread = [norm(row) for group in data.offsets for row in group]
    reach = [norm(row) for group in data.around for row in group]
    return {
        "nc1_trace_pinv": inverse_trace(data)[0],
        "nc1_trace_ratio": quotient(within, between),
        "cdnv": average(pairs),
        "nc1_within_variation": quotient(average(spread), average(reach)),
        "directional_cdnv": average(list(along.values())),
        "ncc_error_bound": bound,
    }


def beside_weights(data: Exact) -> dict[str, Number]:
    count = len(data.weight)
    sizes = [norm(row) for row in data.weight]
    frobenius = mp.sqrt(sum((size**2 for size in sizes), ZERO))
    total = [sum(column, ZERO) for column in zip(*data.weight, strict=True)]
    of_means = mp.sqrt(sum((dot(row, row) for row in data.centred), ZERO))
    out = nc2(data.rows, "weights")
    out["nc0_weight_mean"] = quotient(norm(total), mp.sqrt(mpf(count)) * frobenius)
    out["beta"] = frobenius / mp.sqrt(mpf(count))
    out["nc3_self_duality"] = out["nc3_alignment_min"] = out["nc3_alignment_mean"] = mp.nan
    out["unc3_duality"] = out["nc3_frobenius"] = mp.nan
    rows_known, means_known = (all(any(r) for r in rows) for rows in (data.rows, data.centred))
    if rows_known and means_known:
        both = zip(data.centred, data.rows, strict=True)
        out["nc3_self_duality"] = average([norm(minus(unit(m), unit(w))) for m, w in both])
    if rows_known and all(any(row) for row in data.means):
        both = zip(data.means, data.rows, strict=True)
        aligned = [dot(unit(m), unit(w)) for m, w in both]
        out["nc3_alignment_min"], out["nc3_alignment_mean"] = min(aligned), average(aligned)
    if means_known and all(sizes):
        both = zip(data.centred, data.weight, strict=True)
        out["unc3_duality"] = deviation([dot(unit(m), unit(w)) for m, w in both]) ** 2
    if frobenius and of_means:
        both = zip(data.weight, data.centred, strict=True)
        gaps = [
            minus([x / frobenius for x in w], [x / of_means for x in m])  # papyan2020, Fig. 5
            for w, m in both
        ]
        out["nc3_frobenius"] = sum((dot(row, row) for row in gaps), ZERO)
    out["nc2_gram_weights"] = gram_distance(data.weight, data.weight)
    out["nc3_gram"] = gram_distance(data.weight, data.centred)
    values = [value**2 for value in singular_values(data.weight)]
    out["stable_rank_weights"] = quotient(sum(values, ZERO), max(values))
    sizes_of = [len(group) for group in data.groups]
    small = [data.rows[c] for c in range(count) if 2 * sizes_of[c] <= max(sizes_of)]
    found = angles(small) if len(small) > 1 else None
    out["minority_cosine"] = mp.nan if found is None else average(found)
    return out


def logits_of(data: Exact) -> list[list[Row]]:
    """By class and sample."""
    return [
        [[dot(w, h) + b for w, b in zip(data.weight, data.bias, strict=True)] for h in group]
        for group in data.groups
    ]


def gap_of(z: Row, own: int) -> Number:
    return z[own] - max(z[:own] + z[own + 1 :])


def one_loss(z: Row, own: int) -> Number:
    others = [x - z[own] for place, x in enumerate(z) if place != own]
    top = max(others)
    rest = sum((mp.exp(x - top) for x in others if x - top > -10000), ZERO)
    if top <= 0:
        return mp.log1p(mp.exp(top) * rest) if top > -3000 else ZERO
    return top + mp.log(rest + (mp.exp(-top) if top < 10000 else ZERO))


def loss_side(data: Exact) -> dict[str, Number]:
    count, logits = len(data.weight), logits_of(data)
    losses = [[one_loss(z, own) for z in group] for own, group in enumerate(logits)]
    gaps = [gap_of(z, own) for own, group in enumerate(logits) for z in group]
    squares = [average([dot(h, h) for h in group]) for group in data.groups]
    alpha = mp.sqrt(average(squares))
    rows = sum((dot(w, w) for w in data.weight), ZERO)
    beta = mp.sqrt(rows / count)
    balanced = average([average(group) for group in losses])
    power = mpf(count) / (count - 1) * alpha * beta
    best = mp.log1p((count - 1) * mp.exp(-power)) if power < 3000 else ZERO
    size = rows + data.total * average(squares)
    lead = min(gaps) * 2 * (count - 1) * mp.sqrt(mpf(data.total) / count)
    return {
        "loss": average([x for group in losses for x in group]),
        "balanced_loss": balanced,
        "optimal_loss": best,
        "excess_loss": balanced - best,
        "alpha": alpha,
        "margin": min(gaps),
        "normalised_margin": quotient(lead, size) if size else mp.nan,
        "accuracy": average([mpf(decision(z) == c) for c, g in enumerate(logits) for z in g]),
    }


def decision(scores: Row) -> int:
    """The first of the largest."""
    return scores.index(max(scores))


def nearest_mean(data: Exact, h: Row) -> list[Number]:
    """Squared distances to all class means."""
    gaps = [minus(h, m) for m in data.means]
    return [dot(gap, gap) for gap in gaps]


def nearest_direction(units: Sequence[Row], h: Row) -> list[Number]:
    """Cosines with all mean directions; one that is none is never the nearest."""
    own = unit(h)
    return [dot(own, unit(u)) if any(u) else mpf(-2) for u in units]


def nc4(data: Exact) -> dict[str, Number]:
    units, logits = mean_units(data.groups), logits_of(data)
    by_mean, by_angle, agrees, alike = [], [], [], []
    for c, group in enumerate(data.groups):
        for h, z in zip(group, logits[c], strict=True):
            nearest = decision([-x for x in nearest_mean(data, h)])
            turned = decision(nearest_direction(units, h)) if any(h) else -1
            by_mean.append(mpf(nearest == c))
            by_angle.append(mpf(turned == c))
            agrees.append(mpf(nearest == decision(z)))
            alike.append(mpf(turned == decision(z)))
    apart = any(x for row in data.centred for x in row)
    return {
        "nc4_ncc_accuracy": average(by_mean) if apart else mp.nan,
        "nc4_agreement": average(agrees) if apart else mp.nan,
        "nc4_cosine_accuracy": average(by_angle),
        "nc4_cosine_agreement": average(alike),
    }


def log_distances(data: Exact) -> list[Number] | None:
    """log 1/|u - v| of the directions of centred class means; None where one does not exist."""
    if not all(any(row) for row in data.centred):
        return None
    units = [unit(row) for row in data.centred]
    gaps = [norm(minus(units[a], units[b])) for a, b in pairs_of(len(units))]
    return [-mp.log(gap) for gap in gaps] if all(gaps) else None


def log_mean(data: Exact) -> Number:
    return average(log_distances(data) or [mp.nan])


def gnc2_uniformity(data: Exact) -> Number:
    logs = log_distances(data)
    if logs is None:
        return mp.nan
    return quotient(deviation(logs), abs(average(logs))) if len(logs) > 1 else ZERO


def all_metrics(data: Exact) -> dict[str, Number]:
    """Every metric of the catalogue but those beside a reference."""
    parts: list[Callable[[Exact], dict[str, Number]]] = [nc1, beside_weights, loss_side, nc4]
    out = cosines(data.groups, "") | cosines(data.around, "centred_")
    out |= nc2(data.centred, "means")
    for part in parts:
        out |= part(data)
    out["gnc2_uniformity"] = gnc2_uniformity(data)
    out["rankme"] = exp_entropy(singular_values([h for group in data.groups for h in group]))
    out["lidar"] = lidar(data)
    return out


def beside_reference(train: Exact, test: Exact, labels: Sequence[int]) -> dict[str, Number]:
    """The metrics of other data against the class means of training."""
    spread = average([dot(row, row) for row in train.centred])
    hits, agrees, squares = [], [], []
    clusters: dict[int, list[Row]] = {}
    logits = logits_of(test)
    for c, group in enumerate(test.groups):
        for h, z in zip(group, logits[c], strict=True):
            distances = nearest_mean(train, h)
            nearest = decision([-x for x in distances])
            hits.append(mpf(nearest == c))
            agrees.append(mpf(nearest == decision(z)))
            squares.append(distances[c])
            clusters.setdefault(nearest, []).append(h)
    left = ZERO
    for rows in clusters.values():
        middle = mean(rows)
        gaps = [minus(row, middle) for row in rows]
        left += sum((dot(gap, gap) for gap in gaps), ZERO)
    shifts = [minus(a, b) for a, b in zip(test.means, train.means, strict=True)]
    if not spread:
        return {}
    return {
        "reference_ncc_accuracy": average(hits),
        "reference_ncc_agreement": average(agrees),
        "strong_test_collapse": average(squares) / spread,
        "weak_test_collapse": left / len(labels) / spread,
        "reference_mean_shift": average([dot(row, row) for row in shifts]) / spread,
        "reference_spread_ratio": quotient(sum(variances(test), ZERO), sum(variances(train), ZERO)),
    }
