"""Error bounds of metrics, as docs/metrics.md promises them, evaluated for one input.

The bounds follow from the arithmetic and from the exact input: from the numbers whose differences
are computed, and from the size of these differences. `U` is half a unit in the last place of
float64.
"""

from collections.abc import Sequence
from typing import Any

from tests.reference import slow
from tests.reference.digits import mp, mpf
from tests.reference.slow import ExactData, Number, average, dot, minus, norm, pairs_of

U = mpf(2) ** -53
NEAR = 10**4 * U
"""Error of squared distances from inner products, which are used above 1e-4 of squared norms."""
STEP = mpf(2) ** -1074
"""The smallest positive float64."""
SMALLEST = mpf("1e-290")
"""Value below which squares have lost digits."""


def over(top: Number, below: Number) -> Number:
    """Return a quotient, infinite for a zero denominator."""
    return top / below if below else mp.inf


def documented(data: ExactData, values: dict[str, Number]) -> dict[str, Number]:
    """Return the largest documented error of each metric for this input."""
    count, dim = len(data.means), len(data.centre)
    largest = max(len(group) for group in data.groups)
    e = 16 * mp.sqrt(mpf(largest + dim + count)) * U
    size = max(mp.sqrt(average([dot(h, h) for h in group])) for group in data.groups)
    lengths = [norm(row) for row in data.centred]
    mean_size = mp.sqrt(sum(x * x for x in lengths))
    mean_error = over(e * size, min(lengths))
    rows = [norm(row) for row in data.weight]
    row_error = over(e * max(rows), min(norm(row) for row in data.rows))
    reach = [norm(h) for group in data.around for h in group]
    allowed = dict.fromkeys(("min_intra", "mean_intra", "max_inter", "mean_inter"), e)
    directions = e + 2 * max(
        average([min(mpf(2), over(e * size, norm(h))) if any(h) else mpf(0) for h in group])
        for group in data.around
    )
    allowed |= {f"centred_{name}": directions for name in list(allowed)}
    _, trace, weighted = slow.inverse_trace(data)
    pinv, ratio = values["nc1_trace_pinv"], values["nc1_trace_ratio"]
    orthogonal = e * e * trace * sum(slow.variances(data)) if mp.isfinite(pinv) else mp.inf
    allowed["nc1_trace_pinv"] = pinv * (4 * e * size * mp.sqrt(trace) + e) + e * weighted
    allowed["nc1_trace_pinv"] += 2 * mp.sqrt(abs(pinv) * orthogonal) + orthogonal
    allowed["nc1_trace_ratio"] = ratio * (4 * over(e * size, mean_size) + e)
    within = values["nc1_within_variation"]
    allowed["nc1_within_variation"] = over(e * size, average(reach)) * (1 + within)
    allowed["nc2_norm_variation_means"] = over(e * size, average(lengths)) * 3 * count
    allowed["nc2_equiangularity_means"] = allowed["nc2_cosine_std_means"] = 2 * mean_error + e
    weight_error = over(e * max(rows), average([norm(row) for row in data.rows]))
    allowed["nc2_norm_variation_weights"] = weight_error * 3 * count
    for name in ("nc2_equiangularity_weights", "nc2_cosine_std_weights", "minority_cosine"):
        allowed[name] = 2 * row_error + e
    allowed["nc0_weight_mean"] = e
    allowed["beta"] = e * values["beta"]
    allowed["alpha"] = e * values["alpha"]
    allowed["nc3_self_duality"] = mean_error + row_error + e
    alphas = [mp.sqrt(average([dot(h, h) for h in group])) for group in data.groups]
    pairs = zip(alphas, data.means, strict=True)
    raw = max(over(e * a + dim * STEP, norm(m)) for a, m in pairs)
    allowed["nc3_alignment_min"] = allowed["nc3_alignment_mean"] = raw + row_error + e
    allowed["nc3_frobenius"] = 4 * over(e * size, mean_size) + e
    allowed["unc3_duality"] = 4 * mean_error + e
    gram = values["nc2_gram_weights"]
    allowed["nc2_gram_weights"] = e if count <= dim + 1 else over(8 * e, gram)
    product = [[dot(w, m) for m in data.centred] for w in data.weight]
    product_size = mp.sqrt(sum(x * x for row in product for x in row))
    frobenius = mp.sqrt(sum(x * x for x in rows))
    inner = over(4 * e * frobenius * (mean_size + size), product_size)
    allowed["nc3_gram"] = inner if count <= dim + 1 else over(4 * inner, values["nc3_gram"])
    allowed["stable_rank_weights"] = e * count * values["stable_rank_weights"]
    allowed["rankme"] = 20 * dim * mp.sqrt(2 * dim * U) * values["rankme"]
    if 4 * e * size * mp.sqrt(trace) >= 1:
        allowed["nc1_trace_pinv"] = mp.inf
    if over(4 * e * size, mean_size) >= 1:
        allowed["nc1_trace_ratio"] = mp.inf
    allowed["cdnv"] = cdnv_error(data, e, size)
    return allowed | loss_side(data, values, e)


def cdnv_error(data: ExactData, e: Number, size: Number) -> Number:
    """Return the error of `cdnv`, which uses distances of class means."""
    errors, v = [], slow.variances(data)
    for a, b in pairs_of(len(data.means)):
        gap = norm(minus(data.centred[b], data.centred[a]))
        error = 2 * over(e * size, gap) + NEAR
        errors.append(over(v[a] + v[b], 2 * gap**2) * (2 * error + e) if error < 1 else mp.inf)
    return average(errors)


def loss_side(data: ExactData, values: dict[str, Number], e: Number) -> dict[str, Number]:
    """Return the errors of metrics that use logits."""
    longest = max(norm(h) for group in data.groups for h in group)
    sizes = [norm(w) * longest + abs(b) for w, b in zip(data.weight, data.bias, strict=True)]
    z = e * max(sizes)

    def of(loss: Number, error: Number) -> Number:
        return 2 * error * min(mpf(1), 2 * loss) if error < mpf("0.1") else 2 * error

    count = len(data.means)
    product = e * values["alpha"] * values["beta"] * 2
    squares = count * values["beta"] ** 2 + data.total * values["alpha"] ** 2
    factor = over(2 * (count - 1) * mp.sqrt(mpf(data.total) / count), squares)
    losses = {name: of(values[name], z) + e * values[name] for name in ("loss", "balanced_loss")}
    best = of(values["optimal_loss"], product) + e * values["optimal_loss"]
    return (
        losses
        | {
            "optimal_loss": best,
            "excess_loss": losses["balanced_loss"] + best,
            "margin": z,
            "normalised_margin": z * factor + e * abs(values["normalised_margin"]),
        }
        | decisions(data, e, max(sizes))
    )


def decisions(data: ExactData, e: Number, logit: Number) -> dict[str, Number]:
    """Return the shares of samples whose nearest class, or prediction, rounding can change."""
    size = max(mp.sqrt(average([dot(h, h) for h in group])) for group in data.groups)
    units, logits = slow.mean_units(data.groups), slow.logits_of(data)
    undecided = {"mean": 0, "angle": 0, "logits": 0}
    angle_errors = [over(4 * e, norm(u)) for u in units]
    for c, group in enumerate(data.groups):
        for h, z in zip(group, logits[c], strict=True):
            gaps = sorted(mp.sqrt(x) for x in slow.nearest_mean(data, h))
            undecided["mean"] += gaps[1] - gaps[0] <= 8 * e * (norm(h) + size)
            scores = slow.nearest_direction(units, h)
            error = max(angle_errors)
            top = sorted(scores, reverse=True)
            undecided["angle"] += not any(h) or top[0] - top[1] <= 2 * error
            top = sorted(z, reverse=True)
            undecided["logits"] += top[0] - top[1] <= 2 * e * logit
    share = {name: mpf(number) / data.total + U for name, number in undecided.items()}
    return {
        "accuracy": share["logits"],
        "nc4_ncc_accuracy": share["mean"],
        "nc4_agreement": share["mean"] + share["logits"],
        "nc4_cosine_accuracy": share["angle"],
        "nc4_cosine_agreement": share["angle"] + share["logits"],
    }


def beside_reference(
    train: ExactData, test: ExactData, values: dict[str, Number]
) -> dict[str, Number]:
    """Return the errors of the metrics of test data relative to training class means."""
    largest, dim = max(len(group) for group in train.groups), len(train.centre)
    e = 16 * mp.sqrt(mpf(largest + dim + len(train.means))) * U
    rows: Sequence[Any] = [h for data in (train, test) for group in data.groups for h in group]
    size = max(norm(h) for h in rows)
    spread = mp.sqrt(average([dot(row, row) for row in train.centred]))
    error = over(e * size, spread)
    undecided = wrong = 0
    logits = slow.logits_of(test)
    longest = max(norm(h) for group in test.groups for h in group)
    logit = max(norm(w) * longest + abs(b) for w, b in zip(test.weight, test.bias, strict=True))
    for c, group in enumerate(test.groups):
        for h, z in zip(group, logits[c], strict=True):
            gaps = sorted(mp.sqrt(x) for x in slow.nearest_mean(train, h))
            undecided += gaps[1] - gaps[0] <= 8 * e * (norm(h) + size)
            top = sorted(z, reverse=True)
            wrong += top[0] - top[1] <= 2 * e * logit
    shares = mpf(undecided) / test.total + U, mpf(wrong) / test.total
    strong = values["strong_test_collapse"]
    distance_error = 2 * mp.sqrt(strong) * error + error**2 + strong * (2 * error + e)
    shift = values["reference_mean_shift"]
    return {
        "reference_ncc_accuracy": shares[0],
        "reference_ncc_agreement": shares[0] + shares[1],
        "strong_test_collapse": distance_error,
        "weak_test_collapse": mp.inf if undecided else distance_error,
        "reference_mean_shift": 2 * mp.sqrt(shift) * error + error**2 + shift * (2 * error + e),
        "reference_spread_ratio": e * values["reference_spread_ratio"]
        if sum(slow.variances(train)) > SMALLEST
        else mp.inf,
    }
