"""Soft targets: what their loss says about hard labels, attacked by networks that aim elsewhere."""

import math
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

import nclab
from nclab.errors import DataError
from nclab.theory.certificates.count_aware import (
    CountAwareBounds,
    hard_loss_upper,
    least_soft_losses,
)
from nclab.theory.layer_peeled import g

Array = NDArray[np.float64]


def simplex(classes: int) -> Array:
    """Return (C, C) unit rows of a simplex ETF."""
    return np.asarray((np.eye(classes) - 1 / classes) * math.sqrt(classes / (classes - 1)))


def log_probabilities(weight: Array, features: Array, bias: Array | None = None) -> Array:
    """Return (n, C) log softmax of the logits."""
    logits = features @ weight.T + (0.0 if bias is None else bias)
    top = logits.max(1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True)))


@pytest.mark.parametrize("classes", [3, 10])
def test_features_of_the_next_class(classes: int) -> None:
    """Targets that put .98 on the next class: small soft loss, negative alignment."""
    next_class = np.roll(np.eye(classes), 1, axis=0)
    targets = 0.02 * np.eye(classes) + 0.98 * next_class
    W = math.sqrt(3.0) * simplex(classes)
    H = next_class.T @ W
    log_p = log_probabilities(W, H)
    loss = float(-(targets * log_p.T).sum(0).mean())
    hard = float(-np.diag(log_p).mean())
    alignment = -1 / (classes - 1)
    root = math.sqrt(3.0)
    certificate = nclab.certify(
        classes, root, root, loss, counts=[7] * classes, targets=targets, delta=0.4
    )
    assert certificate.loss >= hard - 1e-12
    assert certificate.worst_case_inputs
    bounds = (certificate.alignment_lower, certificate.fraction_alignment_lower)
    assert not any(bound.valid and (bound.value or 0) > alignment for bound in bounds)
    assert not certificate.intra_lower.valid
    given = nclab.certify(
        classes,
        root,
        root,
        loss,
        counts=[7] * classes,
        targets=targets,
        class_losses=[hard] * classes,
        class_alphas=[root] * classes,
        class_betas=[root] * classes,
    )
    assert given.loss == pytest.approx(hard)
    assert not given.alignment_lower.valid


def test_anti_aligned_features_with_strong_smoothing() -> None:
    targets = 0.5 * np.eye(3) + 0.5 / 3
    W = simplex(3)
    log_p = log_probabilities(W, -W)
    loss = float(-(targets * log_p.T).sum(0).mean())
    certificate = nclab.certify(3, 1.0, 1.0, loss, counts=[4] * 3, targets=targets)
    deviation = float(((W + W) ** 2).sum())
    assert deviation == pytest.approx(12.0)
    assert 2 * (certificate.deviation_upper.value or 0.0) >= deviation - 1e-9


def test_label_smoothing_at_its_optimum_keeps_the_guarantee() -> None:
    """The soft optimum is the ETF whose hard loss is g: the certificate proves nearly all of it."""
    optimum = nclab.target(10, weight_decay=1e-4, loss="label_smoothing", smoothing=0.1)
    scale = float(optimum.logits[0, 0]) * 10 / 9
    W = math.sqrt(scale * 0.9) * simplex(10)
    targets = 0.9 * np.eye(10) + 0.01
    loss = float(-(targets * log_probabilities(W, W).T).sum(0).mean())
    root = math.sqrt(scale * 0.9)
    certificate = nclab.certify(10, root, root, loss, counts=[5] * 10, targets=targets)
    assert certificate.loss == pytest.approx(g(scale * 0.9, 10), rel=0.15)
    assert (certificate.alignment_lower.value or 0.0) > 0.8


def test_hard_targets_reduce_to_the_ratio_of_counts() -> None:
    for counts in ([3, 3, 3], [10, 5, 1], [2, 9]):
        sizes = np.array(counts, dtype=float)
        worst = sizes.sum() / (len(sizes) * sizes.min())
        bound = hard_loss_upper(sizes, np.eye(len(sizes)), 0.3)
        assert bound == pytest.approx(0.3 * worst, rel=1e-12)


def test_least_soft_loss_is_attained() -> None:
    """Probabilities proportional to the targets of the other classes attain it."""
    rng = np.random.default_rng(0)
    for classes in (2, 3, 8):
        targets = rng.dirichlet(np.full(classes, 0.7), classes).T
        x = rng.exponential(size=classes)
        for c in range(classes):
            p = targets[:, c] * (1 - math.exp(-x[c])) / (1 - targets[c, c])
            p[c] = math.exp(-x[c])
            soft = -float(targets[:, c] @ np.log(p))
            assert least_soft_losses(x, targets)[c] == pytest.approx(soft, rel=1e-12)


def test_class_losses_of_soft_labels_are_rejected() -> None:
    """The class losses are those of hard labels; soft ones contradict the mean soft loss."""
    targets = 0.9 * np.eye(4) + 0.025
    W = math.sqrt(3.0) * simplex(4)
    loss = float(-(targets * log_probabilities(W, W).T).sum(0).mean())
    root = math.sqrt(3.0)
    arrays: Any = {"class_alphas": [root] * 4, "class_betas": [root] * 4}
    with pytest.raises(DataError, match="of hard labels"):
        nclab.certify(
            4, root, root, loss, counts=[5] * 4, targets=targets, class_losses=[loss] * 4, **arrays
        )


def draw_targets(rng: np.random.Generator, classes: int) -> Array:
    """Draw columns: smoothed, mostly on another class, or random."""
    kind = rng.integers(4)
    if kind == 0:
        amount = rng.uniform(0, 0.9)
        return np.asarray((1 - amount) * np.eye(classes) + amount / classes)
    if kind == 1:
        own = 10 ** rng.uniform(-4, 0)
        return np.asarray(own * np.eye(classes) + (1 - own) * np.roll(np.eye(classes), 1, axis=0))
    columns = rng.dirichlet(np.full(classes, 10 ** rng.uniform(-1.5, 1)), classes).T
    return np.asarray(columns if kind == 2 else 0.5 * np.eye(classes) + 0.5 * columns)


def attack(networks: int, seed: int) -> dict[str, float]:
    """Return the smallest slack of every bound over networks that fit soft targets."""
    rng = np.random.default_rng(seed)
    slacks: dict[str, float] = {}

    def add(name: str, slack: float) -> None:
        slacks[name] = min(slacks.get(name, math.inf), slack)

    for index in range(networks):
        C, d = int(rng.integers(2, 8)), 8
        counts = rng.integers(1, 9, size=C) if rng.random() < 0.6 else np.full(C, 3)
        labels = np.repeat(np.arange(C), counts)
        targets = draw_targets(rng, C)
        W, H, b = fitting_network(rng, labels, targets, d, biased=rng.random() < 0.3)
        log_p = log_probabilities(W, H, b)
        loss = float(-(targets[:, labels].T * log_p).sum(1).mean())
        hard = -log_p[np.arange(len(labels)), labels]
        by_class = np.array([hard[labels == c].mean() for c in range(C)])
        alphas = np.array([math.sqrt((H[labels == c] ** 2).sum(1).mean()) for c in range(C)])
        alpha, beta = math.sqrt((H**2).sum(1).mean()), float(np.linalg.norm(W)) / math.sqrt(C)
        centred, offset = W - W.mean(0), b - b.mean()
        options: Any = {"counts": counts, "targets": targets, "bias_norm": np.linalg.norm(offset)}
        means = np.stack([H[labels == c].mean(0) for c in range(C)])
        units = H / np.linalg.norm(H, axis=1, keepdims=True)
        unit_means = np.stack([units[labels == c].mean(0) for c in range(C)])
        lengths = np.linalg.norm(centred, axis=1) * np.linalg.norm(means, axis=1)
        cosines = (centred * means).sum(1) / lengths
        for with_classes in (False, True):
            arrays: Any = {}
            if with_classes:
                betas = np.linalg.norm(centred, axis=1)
                arrays = {"class_losses": by_class, "class_alphas": alphas, "class_betas": betas}
            with bounds_by_samples(index % 20 == 0, loss):
                certificate = nclab.certify(
                    C, alpha, beta, loss, pairs=index % 50 == 0, **options, **arrays
                )
            add("hard loss", certificate.loss * (1 + 1e-12) - by_class.mean())
            if certificate.alignment_lower.valid:
                add("alignment", cosines.min() - certificate.alignment_lower.value)
            if certificate.intra_lower.valid:
                add("intra", (unit_means**2).sum(1).min() - certificate.intra_lower.value)
            if certificate.inter_upper.valid and certificate.inter_upper.value is not None:
                largest = (unit_means @ unit_means.T)[~np.eye(C, dtype=bool)].max()
                add("inter", certificate.inter_upper.value - largest)
            size = certificate.alpha * certificate.beta * C
            deviation = size - float((centred * means).sum())
            limit = certificate.deviation_upper.value
            assert limit is not None
            add("deviation", (limit - deviation) / size)
            if with_classes:
                add("class alignment", (cosines - certificate.class_alignment_lower).min())
                intra = (unit_means**2).sum(1)
                add("class intra", (intra - certificate.class_intra_lower).min())
            if isinstance(bounds := certificate.count_aware, CountAwareBounds):
                add("loss", loss - bounds.optimal_loss)
                within = ((H - means[labels]) ** 2).sum() / (H**2).sum()
                add("within", bounds.within_upper.value - within)
    return slacks


def bounds_by_samples(wanted: bool, loss: float) -> AbstractContextManager[object]:
    """Return a context that leaves out the programs of the bounds by samples, for speed."""
    if wanted:
        return nullcontext()
    name = "nclab.theory.certificates.certification.count_aware_bounds"
    return mock.patch(name, return_value=SimpleNamespace(loss=loss))


def fitting_network(
    rng: np.random.Generator, labels: NDArray[np.intp], targets: Array, d: int, *, biased: bool
) -> tuple[Array, Array, Array]:
    """Return noise, or factors of logits that fit the targets, with noise and outliers."""
    C = len(targets)
    b = rng.normal(size=C) * 10 ** rng.uniform(-2, 0.3) if biased else np.zeros(C)
    if rng.random() < 0.15:
        size = 10 ** rng.uniform(-1, 0.5)
        return size * rng.normal(size=(C, d)), rng.normal(size=(len(labels), d)), b
    floor = 10 ** rng.uniform(-6, -1)
    logits = np.log(targets + floor) - b[:, None]
    logits = logits - logits.mean(0)
    U, s, V = np.linalg.svd(logits * rng.uniform(0.5, 1.1))
    W, means = np.zeros((C, d)), np.zeros((C, d))
    W[:, :C], means[:, :C] = U * np.sqrt(s), V.T * np.sqrt(s)
    size = 10 ** rng.uniform(-6, -0.5)
    H = means[labels] + size * rng.normal(size=(len(labels), d))
    if rng.random() < 0.3:
        H[int(rng.integers(len(H)))] *= rng.choice([1e-6, -1e-3, -0.5])
    return W + size * rng.normal(size=W.shape), H, b


@pytest.mark.parametrize("networks", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_network_with_soft_targets_violates_a_bound(networks: int) -> None:
    slacks = attack(networks, seed=3)
    assert set(slacks) >= {"alignment", "intra", "deviation", "class alignment", "within"}
    assert min(slacks.values()) > -1e-9, slacks
