"""Steps (2.19) to (2.23) and the bound on NC3: by slow loops, tight, and in their dependence."""

import math
from typing import Any

import numpy as np
import pytest

from nclab.theory.layer_peeled import FloatArray
from nclab_papers.pan2023 import near_optimum as steps
from nclab_papers.pan2023.loss_steps import networks


def bend(x: float, classes: int) -> float:
    wrong = (classes - 1) * math.exp(x)
    return wrong / (1 + wrong) ** 2


def slow(W: FloatArray, H: FloatArray, delta: float) -> dict[str, float]:
    """Both sides of (2.19) and (2.20) for one network, counted class by class."""
    C = len(W)
    middle = W.mean(0)
    scores = [float((W[c] - middle) @ H[c].mean(0)) for c in range(C)]
    alphas = [math.sqrt(sum(float(h @ h) for h in H[c]) / len(H[c])) for c in range(C)]
    alpha = math.sqrt(sum(a * a for a in alphas) / C)
    beta = math.sqrt(sum(float(w @ w) for w in W) / C)
    x = [-C / (C - 1) * s for s in scores]
    second = sum(math.log1p((C - 1) * math.exp(v)) for v in x) / C
    second -= math.log1p((C - 1) * math.exp(sum(x) / C))
    third = sum(x) / C + C / (C - 1) * alpha * beta
    bound = min(bend(min(x), C), bend(max(x), C))
    root = math.sqrt(max(2 * second * (1 - delta) / (bound * delta), 0.0))
    low = alpha * beta - (C - 1) / C * (third + root)
    high = alpha * beta + (C - 1) / C * ((1 - delta) / delta * third + root)
    rounding = 1e-9 + math.sqrt(2e-15 * (1 - delta) / (bound * delta))  # of the gap, in the root
    norms = [a * float(np.linalg.norm(w - middle)) for a, w in zip(alphas, W, strict=True)]
    return {
        "low": low,
        "high": high,
        "below": sum(s < low - rounding for s in scores),
        "above": sum(p > high + rounding for p in norms),
    }


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("delta", [0.1, 0.34, 0.6])
def test_scores_and_norms_as_a_slow_loop_counts_them(classes: int, delta: float) -> None:
    W, H = networks(np.random.default_rng(classes), 40, classes, 3)
    low, high = steps.low_scores(W, H, delta), steps.large_norms(W, H, delta)
    assert low.always
    assert high.always
    for at in range(len(W)):
        found = slow(W[at], H[at], delta)
        scale = 1 + abs(found["high"])
        if scale < 1e4:  # beyond, rounding of the gap is all there is
            near: dict[str, Any] = {"rel": 1e-5, "abs": 1e-5 * scale}
            assert float(low.right[at]) == pytest.approx(found["low"], **near)
            assert float(high.right[at]) == pytest.approx(found["high"], **near)
        assert found["below"] <= delta * classes
        assert found["above"] <= delta * classes


@pytest.mark.parametrize("classes", [3, 6])
@pytest.mark.parametrize("delta", [0.2, 0.5])
def test_others_as_a_slow_loop_counts_them(classes: int, delta: float) -> None:
    W, H = networks(np.random.default_rng(classes), 30, classes, 2)
    W, H = W / 3, H / 3
    differences = steps.other_classes(W, H, delta, centred=False)
    scores = steps.other_classes(W, H, delta, centred=True)
    assert differences.always
    assert scores.always
    for at in range(len(W)):
        middle = W[at].mean(0)
        for c in range(classes):
            h = H[at, c].mean(0)
            x = [float((W[at, j] - W[at, c]) @ h) for j in range(classes) if j != c]
            m = sum(x) / len(x)
            lost = max(sum(map(math.exp, x)) - (classes - 1) * math.exp(m), 0.0)
            right = m + math.sqrt(2 * lost / (math.exp(m) * delta))
            assert float(differences.right[at, c]) == pytest.approx(right, rel=1e-6, abs=1e-6)
            assert sum(v > right + 1e-9 for v in x) <= delta * (classes - 1)
            own = float((W[at, c] - middle) @ h)
            assert float(scores.right[at, c]) == pytest.approx(right + own, rel=1e-6, abs=1e-6)


def test_a_bound_that_is_shrunk_is_broken() -> None:
    """They are not so generous that nothing could break them."""
    rng = np.random.default_rng(0)
    W, H = networks(rng, 4000, 3, 1)
    for step in (steps.low_scores, steps.large_norms):
        both = step(W, H, 0.5)
        middle = np.sqrt(np.square(W).sum((1, 2)) / 3 * np.square(H).sum((1, 2, 3)) / 3)
        assert (np.abs(both.left - middle) > 0.5 * np.abs(both.right - middle)).any()


def test_nc3_needs_its_factor_at_small_norms() -> None:
    W, H = networks(np.random.default_rng(1), 500, 3, 1)
    both = steps.self_duality(1e-3 * W, 1e-3 * H, 0.1)
    assert both.always
    product = 1e-6 * np.sqrt(np.square(W).sum((1, 2)) / 3 * np.square(H).sum((1, 2, 3)) / 3)
    without = 1 - (1 - both.right) / (2 / (3 * product))
    assert (both.left < without - 1e-6).mean() > 0.2
