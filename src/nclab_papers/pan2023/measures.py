"""Claims about the cosines by which the thesis measures collapse, and their implications."""

import math

import numpy as np
import torch

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.statements import (
    describe,
    holds_if,
    judge_and_describe,
    judge_if,
    max_abs,
    relative_error,
    statement,
    tally,
)
from nclab.measurement.arrays import measure_features
from nclab.measurement.collapse import Collapse
from nclab.metrics.cosine import inter_cosine, intra_cosine
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.metrics.nc3_self_duality import nc3_alignment, nc3_alignment_raw
from nclab.metrics.nc4_nearest_center import nc4_cosine_accuracy
from nclab.statistics import ClassMoments
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import Inequality, norms, sample_losses, units
from nclab_papers.pan2023.loss_steps import networks
from nclab_papers.pan2023.setting import EXACT

CLOUDS = {"quick": 60, "paper": 600}
"""Number of random networks that the library measures one by one, by preset."""
MANY = {"quick": 2_000, "paper": 20_000}
"""Number of random networks that are evaluated together as one array, by preset."""


def _measured(weight: FloatArray, features: FloatArray) -> Collapse:
    """Measure weights (C, d) and features (C, N, d) with the library."""
    classes, per_class, dim = features.shape
    labels = np.repeat(np.arange(classes), per_class)
    return measure_features(features.reshape(-1, dim), labels, weight=weight)


def _cosines(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    intra_errors, inter_errors = [], []
    for W, H in zip(*networks(rng, CLOUDS[preset], 4, 5), strict=True):
        collapse = _measured(W, H)
        unit = units(H)
        all_pairs = np.einsum("cnd,kmd->cknm", unit, unit).mean((-1, -2))  # (C, C)
        intra_errors.append(max_abs(collapse.intra_cosine.numpy() - np.diag(all_pairs)))
        inter_errors.append(
            max_abs((collapse.inter_cosine.numpy() - all_pairs)[~np.eye(4, dtype=bool)])
        )
    apart = np.stack([np.eye(6), -np.eye(6)])
    return {
        "networks": CLOUDS[preset],
        "intra_error": max(intra_errors),
        "inter_error": max(inter_errors),
        "orthogonal_intra": _measured(np.eye(2, 6), apart).min_intra,
        "orthogonal_size": 6,
    }


@claim(
    "pan2023/sec-2.2-cosines",
    Kind.DEFINITION,
    "The intra-class cosine of a class is the average cosine of two of its features, the "
    "inter-class cosine of a pair that of a feature of each.",
    "pan2023, Sec. 2.2 “average cosine similarity of picking two feature vectors in the class”",
    gather=_cosines,
    code="nclab.metrics.cosine.intra_cosine",
)
def cosines(numbers: Numbers) -> Finding:
    worst = max(numbers["intra_error"], numbers["inter_error"])
    floor = 1 / numbers["orthogonal_size"]
    evidence = describe(
        "on {networks} networks the library's cosines are within {worst} of the averages over all "
        "pairs; because pairs with i = j count, {orthogonal_size} orthogonal features have an "
        "intra-class cosine of {orthogonal_intra} instead of 0",
        {**numbers, "worst": worst},
    )
    right = worst <= EXACT and abs(numbers["orthogonal_intra"] - floor) <= EXACT
    return holds_if(right, evidence, numbers)


@statement(
    "pan2023/sec-2.2-nc1",
    Kind.REMARK,
    "Intra-class cosine 1 means that all features of the class are the same up to scaling, "
    "whatever their norms.",
    "pan2023, Sec. 2.2 (NC1) “exactly the same up to scaling”",
    intra_cosine,
    judge=judge_and_describe(
        "1 - intra is the variance of the unit features: {tally}; features of one direction have "
        "intra 1 (error {same_direction_error}) even if their norms vary by {norm_variation} or "
        "more",
        lambda numbers: numbers["same_direction_error"] <= EXACT,
    ),
)
def variability(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    _, H = networks(rng, MANY[preset], 4, 5)
    unit = units(H)
    intra = np.square(unit.mean(-2)).sum(-1)
    spread = np.square(unit - unit.mean(-2, keepdims=True)).sum(-1).mean(-1)
    same = H[:, :, :1] * np.exp(rng.normal(size=H.shape[:-1]))[..., None]  # one direction per class
    lengths = norms(same)
    measured = [1 - _measured(np.eye(4, 4), features).intra_cosine.numpy() for features in H[:20]]
    return {
        "hand_error": relative_error((1 + np.array(measured), 1 + spread[:20])),
        **tally(Inequality(1 - intra, "==", spread, tolerance=EXACT)),
        "same_direction_error": max_abs(1 - np.square(units(same).mean(-2)).sum(-1)),
        "norm_variation": float((lengths.std(-1) / lengths.mean(-1)).min()),
    }


@statement(
    "pan2023/sec-2.2-nc2",
    Kind.REMARK,
    r"Inter-class cosine $-\frac{1}{C-1}$ for every pair means that the normalised features form "
    "a simplex equiangular tight frame.",
    "pan2023, Sec. 2.2 (NC2) “the feature vectors form a Simplex ETF after normalization”",
    inter_cosine,
    judge=judge_and_describe(
        "mean inter >= -mean intra / (C-1): {tally}; so -1/(C-1) for every pair implies intra 1 "
        "and the angles of a simplex, whose cosines are exact to {frame_error}",
        lambda numbers: numbers["frame_error"] <= EXACT,
    ),
)
def simplex(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    batches = []
    for classes in (3, 4, 10):
        _, H = networks(rng, MANY[preset] // 4, classes, 3)
        means = units(H).mean(-2)
        intra = np.square(means).sum(-1).mean(-1)
        total = np.square(means.sum(-2)).sum(-1)
        inter = (total - classes * intra) / (classes * (classes - 1))
        batches.append(Inequality(inter, ">=", -intra / (classes - 1), tolerance=EXACT))
    frame = simplex_etf(10, 12).numpy()
    collapse = _measured(frame, np.repeat(frame[:, None], 4, axis=1))
    off_diagonal = collapse.inter_cosine.numpy()[~np.eye(10, dtype=bool)]
    return {**tally(*batches), "frame_error": max_abs(off_diagonal + 1 / 9)}


@statement(
    "pan2023/sec-2.2-nc3",
    Kind.REMARK,
    "Cosine 1 between weight vector and mean feature, for every class, is self-duality: they are "
    "the same up to scaling.",
    "pan2023, Sec. 2.2 (NC3) “class mean feature vector is the same as the corresponding weight”",
    nc3_alignment,
    judge=judge_if(
        lambda numbers: (
            numbers["loss_change"] <= EXACT
            and numbers["raw_after"] < 0.99
            and all(abs(numbers[name] - 1) <= EXACT for name in ("raw_before", "centred_after"))
        ),
        "parallel rows have cosine {raw_before}; adding one vector to all rows does not change the "
        "loss (change {loss_change}) but changes the cosine to {raw_after}; with centred rows it "
        "remains {centred_after}",
    ),
)
def duality(preset: str) -> Numbers:
    frame = simplex_etf(4, 5).numpy()
    features = np.repeat(2 * frame[:, None], 3, axis=1)
    moved = frame + np.full(5, 0.7)
    moments = ClassMoments(4, 5)
    moments.update(features.reshape(-1, 5), np.repeat(np.arange(4), 3))
    rows, moved_rows = torch.from_numpy(frame), torch.from_numpy(moved)
    change = sample_losses(moved, features) - sample_losses(frame, features)
    return {
        "loss_change": max_abs(change),
        "raw_before": float(nc3_alignment_raw(moments, rows).min()),
        "raw_after": float(nc3_alignment_raw(moments, moved_rows).min()),
        "centred_after": float(nc3_alignment(moments, moved_rows).min()),
    }


@statement(
    "pan2023/sec-2.2-nc4",
    Kind.REMARK,
    "With high intra-class and low inter-class cosine, the mean of highest cosine is that of "
    "the right class for most features.",
    "pan2023, Sec. 2.2 (NC4) “finds the mean feature vector with the highest cosine”",
    nc4_cosine_accuracy,
    judge=judge_and_describe(
        "accuracy >= 1 - sum of (2 - 2 cos)(1 - intra)/(margin)^2, by Chebyshev: {tally}; this "
        "bound exceeds one half for {telling} networks; for the {collapsed} networks with intra > "
        "0.95 and inter < 0 the accuracy is at least {lowest_accuracy}",
        lambda numbers: numbers["lowest_accuracy"] >= 0.95,
        enough=50,
    ),
)
def nearest_mean(preset: str) -> Numbers:
    rng = np.random.default_rng(3)
    accuracies, counted, bounds, collapsed = [], [], [], []
    for W, H in zip(*networks(rng, CLOUDS[preset], 4, 40), strict=True):
        collapse = _measured(W, H)
        scores = (collapse.nc4_cosine_accuracy, collapse.min_intra, collapse.max_inter)
        accuracy, intra, inter = (float(score or 0.0) for score in scores)
        accuracies.append(accuracy)
        nearest = np.einsum("cnd,kd->cnk", units(H), units(units(H).mean(1))).argmax(-1)
        counted.append(float((nearest == np.arange(4)[:, None]).mean()))
        bounds.append(_accuracy_bound(collapse.intra_cosine.numpy(), collapse.inter_cosine.numpy()))
        if intra > 0.95 and inter < 0:
            collapsed.append(accuracy)
    both = Inequality(np.array(accuracies), ">=", np.array(bounds))
    return {
        **tally(both),
        "telling": int((np.array(bounds) > 0.5).sum()),
        "collapsed": len(collapsed),
        "lowest_accuracy": min(collapsed),
        "hand_error": relative_error((accuracies, counted)),
    }


def _accuracy_bound(intra: FloatArray, inter: FloatArray) -> float:
    """Return a lower bound on the accuracy of choosing the class mean with the largest cosine.

    Chebyshev's inequality is applied to u . (m_c/|m_c| - m_k/|m_k|), where u is a unit feature of
    class c, and m_c is the mean of the unit features of this class.

    Args:
        intra: (C,) intra-class cosines.
        inter: (C, C) inter-class cosines.
    """
    errors = []
    for c in range(len(intra)):
        wrong = 0.0
        for k in set(range(len(intra))) - {c}:
            cosine = inter[c, k] / math.sqrt(intra[c] * intra[k])
            mean = math.sqrt(intra[c]) - inter[c, k] / math.sqrt(intra[k])
            wrong += (2 - 2 * cosine) * (1 - intra[c]) / mean**2 if mean > 0 else 1.0
        errors.append(min(wrong, 1.0))
    return 1 - float(np.mean(errors))
