"""Bounds on the mean loss over samples: never violated, tight at the optimum, marked when
vacuous."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import nclab
from nclab.errors import DataError
from nclab.theory.certificates.count_aware import (
    bounds_from_probabilities,
    count_aware_bounds,
    residual_bound,
)
from nclab.theory.layer_peeled import g_inverse

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("networks", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_no_network_violates_a_bound(networks: int) -> None:
    bench = runpy.run_path(str(ROOT / "benchmarks" / "targets.py"))
    slacks = bench["attack"](networks, seed=5)
    assert slacks.networks >= networks
    assert not slacks.violations
    assert len(slacks.checks) == 9


def test_the_attack_detects_a_wrong_bound() -> None:
    bench = runpy.run_path(str(ROOT / "benchmarks" / "targets.py"))
    right = bench["attack"].__globals__["residual_bound"]
    bench["attack"].__globals__["residual_bound"] = lambda *a: right(*a) + 0.3
    assert "loss, by residuals" in bench["attack"](100, seed=5).violations


def test_equal_counts_give_the_balanced_numbers() -> None:
    bounds = count_aware_bounds([7] * 10, 5.0, 0.05)
    assert bounds.optimal_loss == pytest.approx(nclab.metrics.optimal_loss(10, 5.0), rel=1e-9)
    assert bounds.alignment_lower.value == pytest.approx(g_inverse(0.05, 10) / 5.0, rel=1e-6)


def test_tight_at_the_optimum() -> None:
    target = nclab.target(counts=[40, 8, 8, 2], norms=(2.0, 1.5))
    bounds = count_aware_bounds([40, 8, 8, 2], 3.0, target.loss)
    assert bounds.alignment_lower.value == pytest.approx(1.0, abs=1e-5)
    assert bounds.optimal_loss == pytest.approx(target.loss, rel=1e-9)


@pytest.mark.parametrize("relative", [0.0, 1e-9, 2e-6])
def test_a_loss_below_the_optimum_counts_as_an_error_of_that_size(relative: float) -> None:
    """Such a loss is accepted as rounding; a loss as far above the optimum is as likely."""
    counts = [10, 10, 10, 1, 1, 1]
    lowest = count_aware_bounds(counts, 2.0, 0.3).optimal_loss
    below = count_aware_bounds(counts, 2.0, lowest * (1 - relative)).within_upper.value
    above = count_aware_bounds(counts, 2.0, lowest * (1 + relative)).within_upper.value
    assert below is not None
    assert above is not None
    assert below > 0
    assert below >= above * (1 - 1e-3)


def test_own_probabilities_with_a_loss_below_their_bound_prove_no_collapse() -> None:
    optimum = nclab.target(counts=[6, 3, 1], norms=(1.5, 1.5))
    q = torch.softmax(optimum.logits, 0)
    sums = ((q - torch.eye(3).double()) * optimum.counts).T
    least = bounds_from_probabilities([6, 3, 1], sums, 2.25, optimum.loss)
    below = bounds_from_probabilities([6, 3, 1], sums, 2.25, least.optimal_loss * (1 - 1e-6))
    above = bounds_from_probabilities([6, 3, 1], sums, 2.25, least.optimal_loss * (1 + 1e-6))
    assert (below.within_upper.value or 0.0) >= (above.within_upper.value or 1.0) * (1 - 1e-3)


def test_a_loss_that_zero_features_reach_guarantees_nothing() -> None:
    bounds = count_aware_bounds([5, 2, 1], 3.0, 1.2)
    assert not bounds.within_upper.valid
    assert "vacuous" in bounds.within_upper.reason


def test_residuals_of_the_optimum_are_tight() -> None:
    """One pass over the samples of the optimum proves its loss."""
    counts = [10, 10, 10, 1, 1, 1]
    optimum = nclab.target(counts=counts, weight_decay=(0.02, 0.02))
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor(counts))
    q = torch.softmax(optimum.logits, 0)[:, labels]
    residual = q - torch.eye(6).double()[:, labels]
    entropy = float(-(q * q.log()).sum(0).mean())
    norm = math.sqrt(
        float(optimum.classifier_gram.trace())
        * float(optimum.mean_gram.diagonal() @ optimum.counts)
    )
    assert residual_bound(residual @ residual.T, entropy, 33, norm) == pytest.approx(
        optimum.loss, rel=1e-5
    )


def test_bounds_from_probabilities_are_tight_and_no_worse_than_residuals() -> None:
    counts = torch.tensor([10, 10, 10, 1, 1, 1])
    optimum = nclab.target(counts=counts, weight_decay=(0.02, 0.02))
    labels = torch.repeat_interleave(torch.arange(6), counts)
    norm = float(torch.linalg.svdvals(optimum.logits * counts.double().sqrt()).sum())
    product = norm / math.sqrt(6 * 33)
    noise = torch.randn(6, 33, generator=torch.Generator().manual_seed(0)).double()
    for size in (0.0, 0.5):
        logits = optimum.logits[:, labels] + size * noise
        q = torch.softmax(logits, 0)
        residual = q - torch.eye(6).double()[:, labels]
        loss = float(-torch.log_softmax(logits, 0)[labels, torch.arange(33)].mean())
        sums = torch.stack([residual[:, labels == c].sum(1) for c in range(6)])
        bounds = bounds_from_probabilities(counts, sums, product, loss)
        moment = residual_bound(
            residual @ residual.T, float(-(q * q.log()).sum(0).mean()), 33, norm
        )
        assert bounds.optimal_loss >= moment - 1e-12
        assert bounds.optimal_loss <= optimum.loss * (1 + 1e-9)
        if not size:
            assert bounds.optimal_loss == pytest.approx(optimum.loss, rel=1e-4)
            assert bounds.within_upper.value == pytest.approx(0.0, abs=1e-4)


def test_certify_explains_what_counts_cannot_tell() -> None:
    with pytest.raises(TypeError, match=r"^certify\(\) got an unexpected keyword argument 'foo'$"):
        nclab.certify(6, 2.0, 1.0, 0.3, foo=1)  # type: ignore[call-arg]
    with pytest.raises(DataError, match="matrix of numbers"):
        nclab.certify(6, 2.0, 1.0, 0.3, counts=[1] * 6, targets="x")
    message = " ".join(str(nclab.certify(6, 2.0, 1.0, 0.3, counts=[10, 10, 10, 1, 1, 1])).split())
    assert "no single class is guaranteed anything" in message
    assert "at most 0.1012 of the squared feature norm is within classes" in message
    assert "a small class may carry most of the loss" in message


def test_certify_with_counts() -> None:
    counts = [10, 10, 10, 1, 1, 1]
    certificate = nclab.certify(6, 2.0, 1.0, 0.3, counts=counts)
    assert certificate.count_aware is not None
    assert certificate.count_aware.optimal_loss == pytest.approx(0.26746353, abs=1e-8)
    assert "no network has less than 0.267464" in str(certificate)
    assert certificate.to_dict()["count_aware"]["within_upper"]["value"] < 0.2
    # Without class arrays the class-averaged side takes the worst that the counts allow.
    assert certificate.loss == pytest.approx(0.3 * 33 / 6)
    even = nclab.certify(4, 1.8, 1.8, 0.05, counts=[3] * 4)
    plain = nclab.certify(4, 1.8, 1.8, 0.05)
    assert even.intra_lower == plain.intra_lower
    assert plain.count_aware is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": [1, 2]}, "counts of 6 classes, got"),
        ({"counts": [1, 2, 3, 4, 5, -6]}, "counts above 0"),
        ({"targets": np.eye(6)}, "counts together with targets"),
        ({"counts": [1000, 1, 1, 1, 1, 1], "loss": 1e-9}, "contradicts the norms"),
    ],
)
def test_bad_counts_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=r"\S") as raised:
        nclab.certify(6, 2.0, 1.0, **{"loss": 0.3, **options})  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_a_trained_long_tailed_network() -> None:
    """The class-averaged certificate is vacuous; the one for the mean loss over samples is not."""
    torch.manual_seed(0)
    counts = torch.tensor([150, 40, 12, 4, 2])
    labels = torch.repeat_interleave(torch.arange(5), counts)
    inputs = 1.2 * torch.randn(5, 12)[labels] + torch.randn(len(labels), 12)
    body = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 6))
    head = torch.nn.Linear(6, 5)
    parameters = [*body.parameters(), *head.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-3)
    for _ in range(300):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(head(body(inputs)), labels).backward()
        optimiser.step()
    weight, bias = head.weight.detach(), head.bias.detach()
    collapse = nclab.measure_features(body(inputs).detach(), labels, weight=weight, bias=bias)
    certificate = collapse.certificate()
    assert not certificate.intra_lower.valid
    assert certificate.count_aware is not None
    assert certificate.measured is not None
    within, within_share = (
        certificate.count_aware.within_upper,
        certificate.measured["within_share"],
    )
    assert within.valid
    assert within.value is not None
    assert within_share is not None
    assert within_share <= within.value < 1
    assert "share of norm within classes" in str(certificate)
    streamed = collapse.certificate(pairs=False).count_aware
    assert streamed is not None
    assert streamed.proof == "the network's own probabilities"
    assert streamed.optimal_loss <= certificate.count_aware.optimal_loss * (1 + 1e-9)
    assert within_share <= (streamed.within_upper.value or 0.0)
    assert "nothing is guaranteed" not in str(certificate)
    record = collapse.to_dict()["certificate"]
    assert record["within_share"] <= record["within_upper"] < 1


def test_tiny_losses_are_accepted_without_a_false_bound() -> None:
    bounds = count_aware_bounds([1, 1, 1], 25.0, 1e-3)
    assert bounds.optimal_loss == 0.0
    assert 0 < (bounds.alignment_lower.value or 0.0) < 1
    tiny = count_aware_bounds([8, 2, 1], 25.0, 1e-13)
    assert tiny.optimal_loss >= 0.0
    assert (tiny.alignment_lower.value or 0.0) >= 0.0
    assert "zero" not in tiny.alignment_lower.reason


def test_uniform_targets_have_zero_features() -> None:
    bounds = count_aware_bounds([9, 5, 3, 1], 4.0, 1.5, targets=np.full((4, 4), 0.25))
    assert bounds.optimal_loss == pytest.approx(math.log(4))
    assert not bounds.within_upper.valid
