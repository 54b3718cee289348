"""Closed forms against random-start optimisation of the full problem: no start ends lower.

| closed form (docs/targets.md)                      | test                                        |
|----------------------------------------------------|---------------------------------------------|
| any counts, merging, everything zero, class means  | ORDINARY, test_thresholds                   |
| given norms                                        | test_given_norms                            |
| no weight decay, with and without bias             | test_limit_of_no_weight_decay               |
| features >= 0, a class lost                        | ORDINARY, test_thresholds                   |
| squared error: no bias, free, penalised; d; depth  | ORDINARY, test_penalised_bias_if_balanced,  |
|                                                    | test_thresholds, test_deep_squared_error    |
| label smoothing, focal, unit spheres               | ORDINARY, test_unit_spheres                 |
| softmax codes                                      | test_softmax_codes                          |
| deep linear heads under cross-entropy              | test_deep_cross_entropy                     |

The numbers themselves, to all their digits, are in test_golden.py.
"""

import math
from typing import Any

import pytest
import torch

import nclab
from nclab.theory.targets.limits import best_margin, softmax_margin
from tests.reference.whole_problem import (
    least_norm_with_margins,
    on_unit_spheres,
    whole_problem,
    widest_code,
)

QUICK = [
    ([4, 2, 2, 1], (0.01, 0.02), {}),
    ([4, 2, 1], (0.01, 0.01), {"relu": True, "dim": 4}),
    ([4, 2, 1], (0.01, 0.02), {"loss": "mse", "bias": 0.3}),
]
ORDINARY = [
    ([4, 2, 2, 1], (0.01, 0.02), {"bias": 0.0}),
    ([4, 2, 2, 1], (0.01, 0.02), {"bias": 0.1}),
    ([4, 4, 1, 1], (0.02, 0.02), {"classes": True}),
    ([3, 1, 1], (0.02, 0.01), {"smoothing": 0.2}),
    ([2, 2, 2, 2], (0.01, 0.01), {"smoothing": 0.1}),
    ([2, 2, 2], (0.01, 0.02), {"relu": True}),
    ([4, 2, 1], (0.01, 0.01), {"loss": "mse"}),
    ([4, 2, 1], (0.01, 0.01), {"loss": "mse", "bias": 0.0}),
    ([4, 2, 1], (0.01, 0.01), {"loss": "mse", "dim": 2}),
    ([4, 2, 1], (0.01, 0.01), {"loss": "mse", "dim": 1}),
    ([2, 2, 2], (0.01, 0.01), {"loss": "mse", "bias": 0.0}),
    ([3, 2, 1], (0.004, 0.01), {"loss": "mse", "bias": 0.0, "depth": 2}),
    ([1, 1, 1, 1], (0.01, 0.01), {"focal_gamma": 2.0}),
    ([2, 2, 2], (0.005, 0.005), {"focal_gamma": 2.0}),
    ([3, 2, 1], (0.005, 0.005), {"focal_gamma": 2.0}),
]


def target_like(counts: list[int], decays: tuple[float, float], kind: dict[str, Any]) -> Any:
    """Return nclab's target for a problem of `whole_problem`."""
    loss = "label_smoothing" if "smoothing" in kind else "focal" if "focal_gamma" in kind else None
    names = ("bias", "dim", "depth", "smoothing", "focal_gamma")
    return nclab.target(
        counts=counts,
        weight_decay=decays,
        loss=loss or kind.get("loss", "cross_entropy"),
        features="relu" if kind.get("relu") else "free",
        average="classes" if kind.get("classes") else "samples",
        **{name: kind[name] for name in names if name in kind},
    )


@pytest.mark.parametrize(
    ("counts", "decays", "kind"),
    [*QUICK, *(pytest.param(*end, marks=pytest.mark.slow) for end in ORDINARY)],
    ids=str,
)
def test_no_random_start_is_lower_and_one_is_as_low(
    counts: list[int], decays: tuple[float, float], kind: dict[str, Any]
) -> None:
    optimum = target_like(counts, decays, kind)
    starts = 3 if kind.get("relu") or kind.get("focal_gamma") else 2
    ends = [whole_problem(counts, decays, seed=seed, **kind) for seed in range(starts)]
    best = min(ends, key=lambda end: end.value)
    assert best.value > optimum.objective * (1 - 1e-7)
    assert best.value < optimum.objective * (1 + (1e-4 if kind.get("relu") else 1e-7))
    close = 3e-2 if kind.get("relu") else 3e-3
    assert torch.allclose(best.classifier_gram, optimum.classifier_gram, atol=close)
    assert torch.allclose(best.mean_gram, optimum.mean_gram, atol=close)
    if kind.get("bias") is not None:
        middle = 0.0 if kind.get("loss") == "mse" else best.bias.mean()
        centred = optimum.bias - (0.0 if kind.get("loss") == "mse" else optimum.bias.mean())
        assert torch.allclose(best.bias - middle, centred, atol=1e-3)


def _merged(grams: Any) -> bool:
    """Whether the last two classes share a mean."""
    gram = grams.mean_gram
    return float(gram[-1, -1] + gram[-2, -2] - 2 * gram[-1, -2]) < 1e-3 * float(gram[0, 0])


def _last_is_lost(grams: Any) -> bool:
    return float(grams.mean_gram[-1, -1]) < 1e-3 * float(grams.mean_gram[0, 0])


def _zero(grams: Any) -> bool:
    return float(grams.mean_gram.norm()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "critical", "kind", "state_reached"),
    [
        ([4, 4, 1, 1], math.sqrt(1) / 10, {}, _merged),
        ([4, 4, 1, 1], 1 / 10, {"classes": True}, _merged),
        ([4, 4, 1, 1], 2 / 10, {}, _zero),
        ([4, 2, 1], math.sqrt(1 * 2 / 3) / 7, {"relu": True}, _last_is_lost),
        ([4, 2, 1], math.sqrt(1) / 7, {"loss": "mse"}, _last_is_lost),
        ([1, 1, 1, 1], 0.9 / math.sqrt(4) / 2, {"smoothing": 0.1}, _zero),
    ],
    ids=["merge", "merge, classes", "zero", "lost, relu", "lost, mse", "zero, smoothing"],
)
def test_thresholds(
    counts: list[int], critical: float, kind: dict[str, Any], state_reached: Any
) -> None:
    """Classes change a few per cent above the weight t of the formula, and not below it."""
    for side in (0.94, 1.06):
        t = critical * side
        ends = [whole_problem(counts, (t, t), seed=seed, **kind) for seed in (0, 1)]
        assert state_reached(min(ends, key=lambda end: end.value)) == (side > 1)
        assert state_reached(target_like(counts, (t, t), kind)) == (side > 1)


@pytest.mark.slow
@pytest.mark.parametrize(("product", "least"), [(2.0, 0.26746353), (4.0, 0.02221950)])
def test_given_norms(product: float, least: float) -> None:
    counts = [10] * 3 + [1] * 3
    norms = (1.0, product)
    ends = [whole_problem(counts, (0, 0), seed=k, norms=norms).value for k in (0, 1)]
    assert min(ends) == pytest.approx(least, rel=1e-6)
    assert min(ends) > nclab.target(counts=counts, norms=norms).loss * (1 - 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [[10, 10, 1, 1], [9, 4, 1]])
@pytest.mark.parametrize("biased", [False, True])
def test_limit_of_no_weight_decay(counts: list[int], biased: bool) -> None:
    """The limit has the least norm that gives every class a margin of 1."""
    optimum = nclab.target(counts=counts, weight_decay=0.0, bias=0.0 if biased else None)
    ends = [least_norm_with_margins(counts, biased=biased, seed=seed) for seed in range(3)]
    best = min(ends, key=lambda end: end.value)
    norm = float(torch.linalg.svdvals(optimum.logits * optimum.counts.sqrt()).sum())
    assert best.value == pytest.approx(norm, rel=1e-6)
    for end, other in (
        (best.classifier_gram, optimum.classifier_gram),
        (best.mean_gram, optimum.mean_gram),
    ):
        assert torch.allclose(end / end.norm(), other / other.norm(), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [0.2, 0.4, 3.0])
def test_penalised_bias_if_balanced(penalty: float) -> None:
    """The optimum is the simplex ETF until nt/(sqrt m - nt) = .269, then moves to the orthogonal
    frame."""
    t, m, C = 0.05, 2, 3
    n = C * m
    s1 = math.sqrt(m) - n * t
    s0 = max(math.sqrt(m) - n * t * (1 + penalty) / penalty, 0.0)
    ends = [whole_problem([m] * C, (t, t), seed=k, loss="mse", bias=penalty) for k in (0, 1)]
    best = min(ends, key=lambda end: end.value)
    optimum = nclab.target(counts=[m] * C, weight_decay=(t, t), loss="mse", bias=penalty)
    assert best.value == pytest.approx(optimum.objective, rel=1e-9)
    cosine = (s0 - s1) / (s0 + (C - 1) * s1)
    assert float(optimum.classifier_cosines[0, 1]) == pytest.approx(cosine, abs=1e-12)
    gram = best.classifier_gram
    assert float(gram[0, 1] / gram[0, 0]) == pytest.approx(cosine, abs=1e-4)
    bias = (1 - s0 / math.sqrt(m)) / (C * (1 + penalty))
    assert optimum.bias.tolist() == pytest.approx([bias] * C, rel=1e-12)
    assert best.bias.tolist() == pytest.approx([bias] * C, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_unit_spheres(temperature: float) -> None:
    optimum = nclab.target(10, norms=(1.0, 1 / temperature))
    best = min(on_unit_spheres(10, temperature, seed=seed) for seed in (0, 1))
    assert best == pytest.approx(optimum.loss, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("C", "d"), [(4, 5), (5, 2), (5, 3), (6, 4), (7, 4), (8, 3), (12, 3)])
def test_softmax_codes(C: int, d: int) -> None:
    codes = [widest_code(C, d, seed=seed) for seed in range(4)]
    margins = [softmax_margin(code) for code in codes]
    assert max(margins) == pytest.approx(best_margin(C, d).lower, abs=2e-6)
    for code, margin in zip(codes, margins, strict=True):
        cosines = code @ code.T - 2 * torch.eye(C)
        assert margin >= 1 - float(cosines.max()) - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("F", [2, 3, 4])
@pytest.mark.parametrize("decay", [0.02, 0.07, 0.12])
def test_deep_squared_error(F: int, decay: float) -> None:
    """Above the critical decay zero is best, though descent may end elsewhere."""
    kind = {"loss": "mse", "depth": F - 1}
    optimum = target_like([2, 2, 2], (decay, decay), kind)
    ends = [whole_problem([2, 2, 2], (decay, decay), seed=k, **kind).value for k in range(9)]
    best = min(*ends, 0.5)  # zero costs a half
    assert best == pytest.approx(optimum.objective, rel=1e-6)
    assert min(ends) > optimum.objective * (1 - 1e-7)


@pytest.mark.slow
def test_deep_cross_entropy() -> None:
    """Descent on three factors ends at the orthoplex; on four at rank 4, above our rank 3."""
    optimum = target_like([1] * 6, (0.001, 0.001), {"depth": 2})
    ends = [whole_problem([1] * 6, (0.001, 0.001), seed=k, depth=2).value for k in range(6)]
    assert min(ends) == pytest.approx(optimum.objective, rel=1e-6)
    assert min(ends) > optimum.objective * (1 - 1e-7)
    deeper = [whole_problem([1] * 10, (0.001, 0.001), seed=k, depth=3) for k in range(4)]
    best = min(deeper, key=lambda end: end.value)
    assert best.value == pytest.approx(0.0414437, abs=5.1e-8)
    assert int((torch.linalg.eigvalsh(best.classifier_gram) > 1e-6).sum()) == 4
    assert best.value > 0.04070236 * (1 - 1e-6)  # what `search` finds, test_golden.py
