"""One-hot, smoothed and mixed labels: errors, advice and losses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import nclab
from nclab.statistics import blocks
from tests.contract import assert_same

GENERATOR = torch.Generator().manual_seed(0)
C = 4
Y = torch.arange(48) % C
X = torch.randn(48, 6, generator=GENERATOR).double() + functional.one_hot(Y, 6)
W, B = torch.randn(C, 6, generator=GENERATOR).double(), torch.randn(C, generator=GENERATOR).double()
ONE_HOT = functional.one_hot(Y)
MIXED = 0.7 * ONE_HOT + 0.3 * torch.rand(48, C, generator=GENERATOR).double().softmax(1)
SMOOTH = 0.9 * ONE_HOT.double() + 0.1 / C
BOUNDS = {"optimal_loss", "excess_loss"}
LOSSES = {"loss", "balanced_loss"}


@pytest.mark.parametrize("targets", [MIXED, SMOOTH, ONE_HOT.double(), ONE_HOT])
def test_the_loss_uses_soft_labels_and_other_metrics_their_largest_class(targets: Any) -> None:
    measured = nclab.measure_features(X, targets, W, B, soft=True)
    logits = X @ W.T + B
    losses = -(targets * logits.log_softmax(1)).sum(1)
    assert measured.loss == pytest.approx(float(losses.mean()), rel=1e-10)
    classes = targets.argmax(1)
    by_class = torch.stack([losses[classes == c].mean() for c in range(C)])
    assert measured.class_loss is not None
    assert torch.allclose(measured.class_loss, by_class, rtol=1e-10)
    assert measured.balanced_loss == pytest.approx(float(by_class.mean()), rel=1e-10)
    hard = nclab.measure_features(X, classes, W, B)
    assert_same(measured.scalars(), hard.scalars(), relative=1e-12, leaving_out=BOUNDS | LOSSES)
    assert measured.excess_loss is None
    assert (
        measured.notes["excess_loss"]
        == "the bound holds for hard labels, but the loss is that of soft labels"
    )
    # Bounds on classes are those of the labels' classes; the loss of the labels has its own.
    certificate, expected = measured.certificate(), hard.certificate()
    assert certificate.loss == pytest.approx(hard.balanced_loss, rel=1e-10)
    assert certificate.alignment_lower.value == pytest.approx(
        expected.alignment_lower.value, abs=1e-9
    )
    for solved in (certificate, measured.certificate(pairs=False)):
        assert solved.count_aware is not None
        assert solved.count_aware.loss == measured.loss
        assert solved.count_aware.optimal_loss <= measured.loss
    with pytest.raises(nclab.DataError, match="optimal_loss is missing"):
        replace(measured, residuals=None).certificate()


def test_a_tiny_loss_keeps_its_digits() -> None:
    measured = nclab.measure_features(40 * ONE_HOT.double(), ONE_HOT, torch.eye(C), soft=True)
    assert measured.loss == pytest.approx(
        (C - 1) * torch.tensor(-40.0).double().exp().item(), rel=1e-9
    )


def test_batches_and_models_agree() -> None:
    batches = [(X[:13], MIXED[:13]), (X[13:], MIXED[13:])]
    whole = nclab.measure_features(X, MIXED, W, B, soft=True)
    measured = nclab.measure_features(batches, weight=W, bias=B, soft=True)
    assert_same(measured.scalars(), whole.scalars(), relative=1e-10)
    net = nn.Linear(6, C).double()
    with torch.no_grad():
        net.weight.copy_(W)
        net.bias.copy_(B)
    report = nclab.measure(net, batches, soft=True)
    assert_same(report.last.scalars(), whole.scalars(), relative=1e-10)


@pytest.mark.parametrize("labels", [ONE_HOT, ONE_HOT.float(), MIXED])
def test_the_error_for_one_hot_labels_names_both_solutions(labels: torch.Tensor) -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, C)).double()
    for refuse in (
        lambda: nclab.measure(net, [(X, labels)]),
        lambda: nclab.measure_features(X, labels),
    ):
        with pytest.raises(
            nclab.NclabError, match=r"labels\.argmax\(-?1\), or.*soft=True"
        ) as caught:
            refuse()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y, r"soft labels of shape \(samples, 4\), got \(48,\)"),
        (MIXED[:, :3], r"soft labels of shape \(samples, 4\), got \(48, 3\)"),
        (2 * MIXED, "with sum 1, got a row with sum 2"),
        (MIXED - 0.5, "non-negative"),
    ],
)
def test_labels_that_are_no_distributions_raise(labels: torch.Tensor, message: str) -> None:
    with pytest.raises(nclab.DataError, match=message):
        nclab.measure_features(X, labels, W, soft=True)


@pytest.mark.parametrize("compiled", [0, 2**62])
def test_the_kernel_and_an_ignored_class_leave_targets_with_their_rows(
    compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "COMPILED_SIZE", compiled)
    measured = nclab.measure_features(
        X.float(), MIXED, W, B, soft=True, ignore_index=1, allow_missing=True
    )
    kept = MIXED.argmax(1) != 1
    losses = -(MIXED * (X.float().double() @ W.T + B).log_softmax(1)).sum(1)
    assert measured.loss == pytest.approx(float(losses[kept].mean()), rel=1e-10)


def test_soft_labels_exclude_intervals() -> None:
    with pytest.raises(nclab.DataError, match="class numbers as labels for intervals"):
        nclab.measure_features(X, MIXED, W, B, soft=True, intervals=True)
    net = nn.Linear(6, C).double()
    with pytest.raises(nclab.DataError, match="class numbers as labels for intervals"):
        nclab.measure(net, [(X, MIXED)], soft=True, intervals=True)
