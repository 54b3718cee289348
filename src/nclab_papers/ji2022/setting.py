"""The setting of ji2022: simplex ETF, the four criteria of collapse, the objective and its flow."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import holds_if, judge_if, max_abs, statement
from nclab.measurement.arrays import measure_features
from nclab.metrics.nc1_variability import nc1_within_variation
from nclab.metrics.nc2_simplex_etf import nc2_equiangularity_means, simplex_etf
from nclab.metrics.nc3_self_duality import nc3_self_duality
from nclab.metrics.nc4_nearest_center import nc4_agreement
from nclab.statistics import SecondPass
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.layer_peeled import FloatArray, g
from nclab.ulpm.flow import flow
from nclab.ulpm.landscape import square_norm
from nclab.ulpm.problem import Problem, log_gradient, log_loss, optimal_log_loss
from nclab.ulpm.separation import optimal_point
from nclab_papers.pan2023.loss_steps import lowest_loss

EXACT = 1e-12
"""An error of at most this size counts as rounding."""


def _layer_peeled(preset: str) -> Numbers:
    """Search for the smallest loss with given norms, and bound how far networks near it deviate.

    The bound on the deviation from collapse is computed by the library and by hand.
    """
    classes, product = 4, 2.0
    best, root = g(product, classes), math.sqrt(product)
    rows = []
    for relative in (1e-2, 1e-4, 1e-6):
        bound = certify(classes, root, root, best * (1 + relative)).deviation_upper.value
        wrong = -math.expm1(-best)  # probability of the wrong classes
        rows.append(
            {
                "relative_excess": relative,
                "deviation": float(bound or 0.0),
                "by_hand": (classes - 1) * math.log1p(math.expm1(best * relative) / wrong),
            }
        )
    searched = lowest_loss(classes, 4, product=product)
    return {"search_gap": searched / best - 1, "rows": rows}


@claim(
    "ji2022/eq-1",
    Kind.EQUATION,
    "The layer-peeled model (1), with bounded norms of W and H, has collapse as its only global "
    "optimum.",
    "ji2022, Eq. (1) “is the only global optimum of the LPM objective”",
    gather=_layer_peeled,
    code="nclab.theory.certificates.norms_and_loss.deviation_upper",
)
def eq_1(numbers: Numbers) -> Finding:
    bounds = [row["deviation"] for row in numbers["rows"]]
    evidence = (
        f"a search over W and H of fixed norms ends at a loss that is relatively "
        f"{number(numbers['search_gap'])} above the loss of a simplex ETF. If the loss is at most "
        f"1e-2, 1e-4, 1e-6 above it, the squared distance of weights and features from self-dual "
        f"collapse is at most {', '.join(number(2 * bound) for bound in bounds)}"
    )
    linear = all(0 < b < a / 50 for a, b in pairwise(bounds))
    proved = all(abs(row["deviation"] / row["by_hand"] - 1) <= 1e-6 for row in numbers["rows"])
    right = -1e-9 <= numbers["search_gap"] <= 1e-6 and linear and proved
    return holds_if(right, evidence, numbers)


@statement(
    "ji2022/def-2.1",
    Kind.DEFINITION,
    "A simplex equiangular tight frame is a symmetric matrix sqrt(K/(K-1)) Q (I - 11'/K) with Q "
    "orthogonal.",
    "ji2022, Def. 2.1 “is said to be simplex equiangular tight frame”",
    simplex_etf,
    judge=judge_if(
        lambda numbers: numbers["gram_error"] <= EXACT,
        "the columns form a simplex ETF for every tested orthogonal Q (error {gram_error}). The "
        "matrix need not be symmetric: |M - M'| of the random ones is at least {asymmetry} |M|",
    ),
)
def def_2_1(preset: str) -> Numbers:
    """Build simplex ETFs by Definition 2.1 with random orthogonal Q; measure their Gram matrices.

    The error is the difference from the Gram matrix of a simplex ETF. Also measure the error of
    `simplex_etf`, and how far the defined matrices are from symmetric.
    """
    rng = np.random.default_rng(0)
    gram, asymmetry = [], []
    for classes in (3, 4, 10):
        Q = np.linalg.qr(rng.normal(size=(classes, classes)))[0]
        M = math.sqrt(classes / (classes - 1)) * Q @ (np.eye(classes) - 1 / classes)
        frame = simplex_etf(classes, classes).numpy()
        expected = (np.eye(classes) * classes - 1) / (classes - 1)
        gram += [max_abs(columns.T @ columns - expected) for columns in (M, frame.T)]
        asymmetry.append(float(np.linalg.norm(M - M.T) / np.linalg.norm(M)))
    return {"gram_error": max(gram), "asymmetry": min(asymmetry)}


def _by_hand(H: FloatArray, W: FloatArray) -> dict[str, float]:
    """Return the metrics of Section 4 of the paper by their formulas, without the library.

    H has four classes of three samples, as in `LABELS`.
    """
    classes = H.reshape(4, 3, -1)
    means = classes.mean(1)
    centre = means.mean(0)
    inside, outside = classes - means[:, None], classes - centre
    mean_rows, rows = (part - part.mean(0) for part in (means, W))
    units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (mean_rows, rows)]
    cosines = (units[0] @ units[0].T)[~np.eye(4, dtype=bool)]
    nearest = np.square(H[:, None] - means).sum(-1).argmin(1)
    return {
        "within": float(np.linalg.norm(inside, axis=-1).mean())
        / float(np.linalg.norm(outside, axis=-1).mean()),
        "cosines": float(np.abs(cosines + 1 / 3).mean()),
        "duality": float(np.linalg.norm(units[0] - units[1], axis=1).mean()),
        "agreement": float((nearest == (H @ W.T).argmax(1)).mean()),
    }


LABELS = np.repeat(np.arange(4), 3)
"""Labels of the tested networks: four classes of three samples."""


def _collapsed(scale: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return classifier and features of a collapsed network with W = `scale` times the means."""
    frame = simplex_etf(4, 5).numpy()
    return scale * frame, np.repeat(frame, 3, axis=0)


def _noisy() -> tuple[FloatArray, FloatArray]:
    """Return classifier and features far from collapse, whose means are not centred at 0."""
    rng = np.random.default_rng(3)
    W, H = _collapsed()
    return W + 0.5 * rng.normal(size=W.shape), H + 0.7 * rng.normal(size=H.shape) + 0.5


def _second_pass(W: FloatArray, H: FloatArray) -> SecondPass:
    second_pass = measure_features(H, LABELS, W).second_pass
    assert second_pass is not None
    return second_pass


def _within(preset: str) -> Numbers:
    """Measure within-class variation at several noise sizes, and compare with the formula."""
    rng = np.random.default_rng(1)
    W, H = _collapsed()
    noise = rng.normal(size=H.shape)
    variations, errors = {}, []
    for size in (0.0, 1e-6, 1e-3, 0.1):
        moved = H + size * noise
        measured = nc1_within_variation(_second_pass(W, moved))
        errors.append(measured - _by_hand(moved, W)["within"])
        variations[f"{size:g}"] = measured
    return {"within_variation": variations, "error": max_abs(errors)}


@claim(
    "ji2022/nc1",
    Kind.DEFINITION,
    "Variability collapse: every feature equals the mean of its class.",
    "ji2022, Sec. 2.1 (NC1) “Variability collapse”",
    gather=_within,
    code="nclab.metrics.nc1_variability.nc1_within_variation",
)
def nc1(numbers: Numbers) -> Finding:
    variations = numbers["within_variation"]
    values = list(variations.values())
    rows = ", ".join(f"{number(value)} at {size}" for size, value in variations.items())
    evidence = (
        f"within-class variation by noise size: {rows}; it is 0 exactly if every feature equals "
        f"its class mean"
    )
    growing = values[0] <= EXACT and all(a < b for a, b in pairwise(values))
    return holds_if(growing and numbers["error"] <= EXACT, evidence, numbers)


def _angles(preset: str) -> Numbers:
    """Compare two statements of NC2 in the paper, a formula and a sentence.

    The formula does not centre the class means; the sentence does. They differ for a simplex whose
    centre is not the origin.
    """
    centres = []
    for classes in (3, 4, 10):
        values, vectors = np.linalg.eigh((np.eye(classes) * classes - 1) / (classes - 1))
        vectors *= np.sqrt(np.maximum(values, 0.0))  # the rows have the printed cosines
        centres.append(float(np.linalg.norm(vectors.mean(0))))
    W, H = _collapsed()
    W_noisy, H_noisy = _noisy()
    moved = H + 0.5
    means = moved[::3]
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    off = ~np.eye(4, dtype=bool)
    # A simplex W = H, moved by half a unit orthogonally to itself: its loss is above the optimum.
    problem, frame = Problem(4, 1, 4, "sum"), simplex_etf(4, 4).numpy()
    theta = np.tile(frame + 0.5 * np.linalg.svd(frame)[2][-1], (2, 1))
    theta *= math.sqrt(8 / square_norm(theta))
    collapse = measure_features(moved, LABELS, W)
    return {
        "centre": max_abs(centres),
        "moved_gap": math.exp(log_loss(problem, theta)) - math.exp(optimal_log_loss(problem, 8.0)),
        "uncentred_error": max_abs((unit @ unit.T)[off] + 1 / 3),
        "centred_error": nc2_equiangularity_means(collapse.moments),
        "formula_error": abs(
            nc2_equiangularity_means(measure_features(H_noisy, LABELS, W_noisy).moments)
            - _by_hand(H_noisy, W_noisy)["cosines"]
        ),
        "norm_variation": float(collapse.nc2_norm_variation_means or 0.0),
    }


@claim(
    "ji2022/nc2",
    Kind.DEFINITION,
    "Convergence to a simplex: the class means, after centring by their global mean, have equal "
    "norms and equal angles; cos(h_k, h_j) = -1/(K-1), |h_k| = |h_j|.",
    "ji2022, Sec. 2.1 (NC2) “forming equal-sized angles between any given pair”",
    gather=_angles,
    code="nclab.metrics.nc2_simplex_etf.nc2_equiangularity_means",
)
def nc2(numbers: Numbers) -> Finding:
    """Require that the formula implies the sentence; the sentence alone is weaker."""
    gap = numbers["moved_gap"]
    evidence = (
        f"means with the printed cosines have their centre at the origin (error "
        f"{number(numbers['centre'])}), so centring changes nothing. For a simplex moved off the "
        f"origin, sentence and formula differ: its cosines deviate by "
        f"{number(numbers['uncentred_error'])} without centring and by "
        f"{number(numbers['centred_error'])} with centring. The theorems need the formula: the "
        f"loss of a moved simplex is {number(gap)} above the smallest loss at its norm"
    )
    errors = (numbers[name] for name in ("centred_error", "formula_error", "norm_variation"))
    right = all(0 <= error <= EXACT for error in errors) and numbers["centre"] <= 1e-7
    right = right and numbers["uncentred_error"] > EXACT and gap > 1e-3
    return holds_if(right, evidence, numbers)


def _duality(preset: str) -> Numbers:
    """Measure collapsed networks with W = C H for a positive and a negative constant C."""

    def distance(W: FloatArray, H: FloatArray) -> float:
        return nc3_self_duality(measure_features(H, LABELS, W).moments, torch.from_numpy(W))

    numbers: dict[str, Any] = {}
    for name, scale in (("positive", 2.0), ("negative", -2.0)):
        W, H = _collapsed(scale)
        numbers[name] = {
            "constant": scale,
            "residual": max_abs(W - scale * H[::3]),
            "accuracy": float((np.argmax(H @ W.T, axis=1) == LABELS).mean()),
            "distance": distance(W, H),
        }
    W, H = _noisy()
    return {**numbers, "error": abs(distance(W, H) - _by_hand(H, W)["duality"])}


@claim(
    "ji2022/nc3",
    Kind.DEFINITION,
    "Self-duality: there is a constant C with w_k = C h_k for every class.",
    "ji2022, Sec. 2.1 (NC3) “Convergence to self-duality”",
    gather=_duality,
    code="nclab.metrics.nc3_self_duality.nc3_self_duality",
)
def nc3(numbers: Numbers) -> Finding:
    good, bad = numbers["positive"], numbers["negative"]
    evidence = (
        f"w_k = C h_k with C = {good['constant']:g} classifies {good['accuracy']:.0%} correctly. "
        f"C = {bad['constant']:g} ({bad['accuracy']:.0%} correct) is excluded by NC4 but not by "
        f"the formula. Their distances from self-duality are {number(good['distance'])} and "
        f"{number(bad['distance'])}"
    )
    measured = abs(good["distance"]) <= 1e-7 and abs(bad["distance"] - 2) <= 1e-7
    right = good["accuracy"] == 1 and max(good["residual"], numbers["error"]) <= EXACT
    return holds_if(right and measured, evidence, numbers)


def _nearest(preset: str) -> Numbers:
    """Measure how often the class with the largest score is that of the nearest class mean.

    Also measure this for the class with the smallest score, as the paper prints. The score of class
    k is <w_k, h> for a random feature h.
    """
    rng = np.random.default_rng(2)
    W, H = _collapsed()
    W_noisy, H_noisy = _noisy()
    points = rng.normal(size=(2_000, 5))
    nearest = np.square(points[:, None] - H[::3]).sum(-1).argmin(1)
    scores = points @ W.T
    return {
        "argmax_agreement": float((scores.argmax(1) == nearest).mean()),
        "argmin_agreement": float((scores.argmin(1) == nearest).mean()),
        "measured_agreement": nc4_agreement(_second_pass(W_noisy, H_noisy)),
        "by_hand": _by_hand(H_noisy, W_noisy)["agreement"],
    }


@claim(
    "ji2022/nc4",
    Kind.DEFINITION,
    "Nearest class centre: the classifier's argmin over k of <w_k, h> becomes the class with the "
    "nearest mean.",
    "ji2022, Sec. 2.1 (NC4) “Simplification to Nearest Class-Center”",
    gather=_nearest,
    code="nclab.metrics.nc4_nearest_center.nc4_agreement",
)
def nc4(numbers: Numbers) -> Finding:
    most, least = numbers["argmax_agreement"], numbers["argmin_agreement"]
    evidence = (
        f"at collapse the class of the nearest mean has the largest <w_k, h> for {most:.1%} of "
        f"random features, and the smallest <w_k, h>, as printed, for {least:.1%}"
    )
    if not abs(numbers["measured_agreement"] - numbers["by_hand"]) <= EXACT:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return holds_if(least == 1, evidence, numbers, corrected=most == 1)


@statement(
    "ji2022/eq-4",
    Kind.EQUATION,
    "The objective of the unconstrained layer-peeled model, the sum of the cross-entropies as a "
    "function of W and H, is not convex.",
    "ji2022, Eq. (4) “The objective function (4) is generally non-convex”",
    log_loss,
    judge=judge_if(
        lambda numbers: (
            numbers["loss_between"] > (numbers["loss_here"] + numbers["loss_there"]) / 2
            and abs(numbers["loss_here"] / numbers["loss_there"] - 1) <= EXACT
            and abs(numbers["loss_here"] / numbers["by_hand"] - 1) <= EXACT
        ),
        "(W, H) and (-W, -H) both have the loss {loss_here}, but the point between them has "
        "{loss_between}, so the loss is not convex",
    ),
)
def eq_4(preset: str) -> Numbers:
    """Evaluate the loss at (W, H), at (-W, -H), and at the point 0 between them."""
    problem = Problem(4, 2, 5, "sum")
    theta = 2 * optimal_point(problem)
    point, opposite, middle = (math.exp(log_loss(problem, s * theta)) for s in (1.0, -1.0, 0.0))
    logits = theta[4:] @ theta[:4].T
    correct = logits[np.arange(8), problem.labels]
    by_hand = float(np.sum(np.log(np.exp(logits).sum(1)) - correct))
    losses = {"loss_here": point, "loss_there": opposite, "loss_between": middle}
    return {**losses, "by_hand": by_hand}


def _direction(preset: str) -> Numbers:
    """Measure how log(loss) changes in a step along the gradient and against it.

    The paper prints the gradient, without a minus sign, as the direction of the flow. Also
    compare the first step of the computed flow with the negative gradient.
    """
    problem = Problem(4, 2, 5, "sum")
    theta = problem.initial(scale=0.5, seed=1)
    before, gradient = log_gradient(problem, theta)
    time, step = 1e-5, 1e-3
    speed = (flow(problem, theta, log_time=math.log(time)).theta - theta) / time
    descent = -math.exp(before) * gradient
    return {
        "change_printed": log_loss(problem, theta + step * gradient) - before,
        "change_corrected": log_loss(problem, theta - step * gradient) - before,
        "speed_error": float(np.linalg.norm(speed - descent) / np.linalg.norm(descent)),
    }


@claim(
    "ji2022/sec-2.2-flow",
    Kind.EQUATION,
    "Gradient flow is dW/dt = dL/dW, dH/dt = dL/dH.",
    "ji2022, Sec. 2.2 “the gradient flow of the the objective function”",
    gather=_direction,
    code="nclab.ulpm.flow.flow",
)
def sec_2_2_flow(numbers: Numbers) -> Finding:
    up, down = numbers["change_printed"], numbers["change_corrected"]
    evidence = (
        f"a small step along dL/dW, as printed, changes the log loss by {number(up)}; a step along "
        f"-dL/dW changes it by {number(down)}. The computed flow starts along -dL/dW (relative "
        f"error {number(numbers['speed_error'])})"
    )
    if not numbers["speed_error"] <= 1e-3:
        return Finding(Verdict.REFUTED, evidence, numbers)
    return holds_if(up < 0, evidence, numbers, corrected=down < 0)
