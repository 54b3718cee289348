"""All metrics as slow, obvious loops in plain numpy, without any code of nclab."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def slow_metrics(
    features: Any, labels: Any, weight: Any | None = None, bias: Any | None = None
) -> dict[str, Any]:
    """Return all scalars of a measurement, computed from definitions in float64."""
    h = np.asarray(features, dtype=np.float64)
    y = np.asarray(labels)
    classes = range(int(y.max()) + 1)
    count = len(classes)
    groups = [h[y == c] for c in classes]
    means = np.array([two_pass_mean(group) for group in groups])
    centre = sum(means) / count
    out: dict[str, Any] = dict(cosines(groups, ""))
    out |= cosines([group - centre for group in groups], "centred_")
    out |= nc1(groups, means, centre)
    out |= nc2(means - centre, "means")
    out |= nc4(h, y, groups, means)
    out |= directional(groups, means) | ranks(h, groups, means, centre)
    out["gnc2_uniformity"] = log_distances(means - centre)
    alphas = [np.mean([row @ row for row in group]) for group in groups]
    out["alpha"] = float(np.sqrt(np.mean(alphas)))
    if weight is not None:
        w = np.asarray(weight, dtype=np.float64)
        b = np.zeros(count) if bias is None else np.asarray(bias, dtype=np.float64)
        out |= nc2(w - w.mean(0), "weights") | nc3(means, centre, w)
        out |= loss_side(h, y, w, b, out["alpha"])
        out |= classifier_rows(w, means - centre, [len(group) for group in groups])
        predicted = np.argmax(h @ w.T + b, axis=1)
        out["nc4_agreement"] = float(np.mean(nearest(h, means) == predicted))
        out["nc4_cosine_agreement"] = float(np.mean(nearest_angle(h, groups) == predicted))
    return out


def two_pass_mean(rows: Array) -> Array:
    """Return the mean, corrected by the mean of the residuals."""
    first = rows.mean(0)
    return np.asarray(first + (rows - first).mean(0))


def unit(row: Array) -> Array:
    """Return the row scaled to norm one."""
    return row / np.sqrt(row @ row)


def cosines(groups: list[Array], prefix: str) -> dict[str, float]:
    """Return averages of cosines over all pairs of samples, including i = j."""
    intra, inter = [], []
    for c, left in enumerate(groups):
        units = [unit(row) for row in left]
        intra.append(np.mean([u @ v for u in units for v in units]))
        for right in groups[c + 1 :]:
            inter.append(np.mean([u @ unit(row) for u in units for row in right]))
    return {
        f"{prefix}min_intra": float(min(intra)),
        f"{prefix}mean_intra": float(np.mean(intra)),
        f"{prefix}max_inter": float(max(inter)),
        f"{prefix}mean_inter": float(np.mean(inter)),
    }


def nc1(groups: list[Array], means: Array, centre: Array) -> dict[str, float]:
    """Return the NC1 metrics, with explicit covariances."""
    total = sum(len(group) for group in groups)
    count, dim = means.shape
    within = np.zeros((dim, dim))
    spread, reach = [], []
    for group, mean in zip(groups, means, strict=True):
        for row in group:
            within += np.outer(row - mean, row - mean) / total
            spread.append(np.sqrt(np.sum((row - mean) ** 2)))
            reach.append(np.sqrt(np.sum((row - centre) ** 2)))
    between = sum(np.outer(mean - centre, mean - centre) for mean in means) / count
    variances = [
        np.mean([np.sum((row - mean) ** 2) for row in group])
        for group, mean in zip(groups, means, strict=True)
    ]
    pairs = [
        (variances[c] + variances[k]) / (2 * np.sum((means[c] - means[k]) ** 2))
        for c in range(count)
        for k in range(c + 1, count)
    ]
    # The pseudo-inverse is that of the means, because their covariance would lose digits.
    root = np.linalg.pinv((means - centre) / np.sqrt(count), rcond=1e-13)
    return {
        "nc1_trace_pinv": float(np.trace(within @ (root @ root.T)) / count),
        "nc1_trace_ratio": float(np.trace(within) / np.trace(between)),
        "cdnv": float(np.mean(pairs)),
        "nc1_within_variation": float(np.mean(spread) / np.mean(reach)),
    }


def nc2(rows: Array, suffix: str) -> dict[str, float]:
    """Return the NC2 metrics from norms and angles of centred rows."""
    norms = np.array([np.sqrt(row @ row) for row in rows])
    count = len(rows)
    angles = [unit(rows[c]) @ unit(rows[k]) for c in range(count) for k in range(count) if c != k]
    ideal = -1 / (count - 1)
    return {
        f"nc2_norm_variation_{suffix}": float(np.std(norms) / np.mean(norms)),
        f"nc2_equiangularity_{suffix}": float(np.mean([abs(a - ideal) for a in angles])),
        f"nc2_cosine_std_{suffix}": float(np.std(angles)),
    }


def nc3(means: Array, centre: Array, w: Array) -> dict[str, float]:
    """Return the NC3 metrics, which compare means with classifier rows."""
    rows, centred = w - w.mean(0), means - centre
    gaps = [np.linalg.norm(unit(m) - unit(r)) for m, r in zip(centred, rows, strict=True)]
    alignment = [unit(r) @ unit(m) for m, r in zip(means, rows, strict=True)]
    apart = w / np.linalg.norm(w) - centred / np.linalg.norm(centred)
    return {
        "nc3_self_duality": float(np.mean(gaps)),
        "nc3_alignment_min": float(min(alignment)),
        "nc3_alignment_mean": float(np.mean(alignment)),
        "nc3_frobenius": float(np.sum(apart**2)),
    }


def nearest(h: Array, means: Array) -> NDArray[np.int64]:
    """Return the nearest class mean of every row, from explicit distances."""
    return np.array([np.argmin([np.sum((row - mean) ** 2) for mean in means]) for row in h])


def nearest_angle(h: Array, groups: list[Array]) -> NDArray[np.int64]:
    """Return the nearest mean direction of every row."""
    directions = [unit(np.mean([unit(row) for row in group], axis=0)) for group in groups]
    return np.array([np.argmax([unit(row) @ d for d in directions]) for row in h])


def nc4(h: Array, y: Any, groups: list[Array], means: Array) -> dict[str, float]:
    """Return the accuracies of nearest class means and directions."""
    return {
        "nc4_ncc_accuracy": float(np.mean(nearest(h, means) == y)),
        "nc4_cosine_accuracy": float(np.mean(nearest_angle(h, groups) == y)),
    }


def loss_side(h: Array, y: Any, w: Array, b: Array, alpha: float) -> dict[str, float]:
    """Return loss, accuracy, margins and norms, computed sample by sample."""
    count = len(w)
    losses: list[list[float]] = [[] for _ in range(count)]
    margins, correct = [], []
    for row, label in zip(h, y, strict=True):
        z = w @ row + b
        others = np.delete(z - z[label], label)
        top = max(0.0, others.max())
        if top == 0:
            losses[label].append(float(np.log1p(np.sum(np.exp(others)))))
        else:
            losses[label].append(float(top + np.log(np.exp(-top) + np.sum(np.exp(others - top)))))
        margins.append(-others.max())
        correct.append(np.argmax(z) == label)
    beta = float(np.sqrt(np.mean([row @ row for row in w])))
    balanced = float(np.mean([np.mean(group) for group in losses]))
    best = float(np.log1p((count - 1) * np.exp(-count / (count - 1) * alpha * beta)))
    n = len(h) / count
    size = np.sum(w**2) + len(h) * alpha**2
    return {
        "loss": float(np.mean([x for group in losses for x in group])),
        "balanced_loss": balanced,
        "optimal_loss": best,
        "excess_loss": balanced - best,
        "accuracy": float(np.mean(correct)),
        "beta": beta,
        "margin": float(min(margins)),
        "normalised_margin": float(min(margins) * 2 * (count - 1) * np.sqrt(n) / size),
    }


def directional(groups: list[Array], means: Array) -> dict[str, float]:
    """Return the variance in the direction of other classes, and Cantelli's bound on errors."""
    count, total = len(means), sum(len(group) for group in groups)
    values, wrong = [], 0.0
    for c, group in enumerate(groups):
        allowed = 0.0
        for k in range(count):
            if k != c:
                direction = means[k] - means[c]
                value = (
                    np.mean([((row - means[c]) @ direction) ** 2 for row in group])
                    / (direction @ direction) ** 2
                )
                values.append(value)
                allowed += value / (value + 0.25)
        wrong += min(1.0, allowed) * len(group) / total
    return {"directional_cdnv": float(np.mean(values)), "ncc_error_bound": float(wrong)}


def exp_entropy(sizes: Any) -> float:
    """Return exp(-sum p log p) of the shares p of the sizes."""
    shares = [size / sum(sizes) for size in sizes if size > 0]
    return float(np.exp(-sum(p * np.log(p) for p in shares)))


def ranks(h: Array, groups: list[Array], means: Array, centre: Array) -> dict[str, float]:
    """Return effective ranks of the features and of the whitened class means."""
    spread = np.concatenate([group - mean for group, mean in zip(groups, means, strict=True)])
    whitened = (means - centre) @ np.linalg.inv(np.linalg.cholesky(spread.T @ spread / len(h))).T
    signal = np.linalg.svd(whitened, compute_uv=False)
    return {
        "rankme": exp_entropy(np.linalg.svd(h, compute_uv=False)),
        "lidar": exp_entropy(signal**2),
    }


def log_distances(rows: Array) -> float:
    """Return the coefficient of variation of log inverse distances of directions."""
    count = len(rows)
    logs = [
        np.log(1 / np.linalg.norm(unit(rows[c]) - unit(rows[k])))
        for c in range(count)
        for k in range(c + 1, count)
    ]
    return float(np.std(logs) / abs(np.mean(logs)))


def classifier_rows(w: Array, centred: Array, sizes: list[int]) -> dict[str, Any]:
    """Return the metrics of classifier rows, with explicit Gram matrices."""
    count = len(w)
    simplex = (np.eye(count) - np.ones((count, count)) / count) / np.sqrt(count - 1)
    rows = w - w.mean(0)
    small = [c for c in range(count) if sizes[c] <= max(sizes) / 2]
    pairs = [unit(rows[c]) @ unit(rows[k]) for c in small for k in small if c != k]
    gram, logits = w @ w.T, w @ centred.T
    return {
        "nc0_weight_mean": np.linalg.norm(sum(w)) / (np.sqrt(count) * np.linalg.norm(w)),
        "unc3_duality": np.var([unit(w[c]) @ unit(centred[c]) for c in range(count)]),
        "nc2_gram_weights": np.linalg.norm(gram / np.linalg.norm(gram) - simplex),
        "nc3_gram": np.linalg.norm(logits / np.linalg.norm(logits) - simplex),
        "stable_rank_weights": np.sum(w**2) / np.linalg.norm(w, ord=2) ** 2,
        "minority_cosine": np.mean(pairs) if pairs else None,
    }
