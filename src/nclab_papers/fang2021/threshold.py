"""Minority collapse in the layer-peeled model: the imbalance from which on it is there."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.compute import one_thread
from nclab.text import number
from nclab.theory.targets.dispatch import target

Array = NDArray[np.float64]
CASES = {
    "quick": ((5, 5, 1.0), (3, 2, 1.5)),
    "paper": ((5, 5, 1.0), (5, 5, 2.0), (7, 3, 2.0), (3, 7, 2.0), (3, 2, 1.5)),
}
"""Majority and minority classes, and the root of the product of both bounds."""
BESIDE = 0.05
"""The search looks at imbalances this much below and above."""
APART, TOGETHER = 1 - 1e-3, 1 - 1e-6
"""Cosines of minority classifiers that differ, and that do not."""


def critical_ratio(large: int, small: int, size: float) -> float:
    r"""The imbalance at which minority classes merge in the layer-peeled model.

    $$\min \tfrac1n\sum_i \ell(Wh_i,y_i),\quad \tfrac1C\|W\|^2\le E_W,\quad
      \tfrac1C\sum_c\tfrac1{n_c}\sum_{i\in c}\|h_i\|^2\le E_H,\qquad
      t(R^*) = \frac{n_B}{n}$$

    Source: fang2021, Sec. Abstract (Minority Collapse; the equation is derived in docs/targets.md)

    `large` classes have R times the samples of `small` ones, `size` is $\sqrt{E_W E_H}$, and t the
    price of the norm at the optimum: classes of $n_B$ samples merge where it is above their share.
    """

    def excess(log_ratio: float) -> float:
        counts = [math.exp(log_ratio)] * large + [1.0] * small
        price = 1 / sum(counts)  # the share of a minority class
        found = target(counts=counts, weight_decay=(price, price), average="classes")
        norm = float(torch.linalg.svdvals(found.logits).sum())
        return math.log(max(norm, 1e-9) / (size * (large + small)))

    high = 1.0
    while excess(high) < 0:
        high += 1.5
    return math.exp(brentq(excess, max(1e-9, high - 1.5), high, xtol=1e-7))


def minority_cosine_at(large: int, small: int, size: float, ratio: float) -> float:
    """Cosine of minority classifiers after descent on the model itself, from a random start."""
    C = large + small
    share = np.array([ratio] * large + [1.0] * small)
    share /= share.sum()
    weight = torch.tensor(share)
    labels = torch.arange(C)
    bound = C * size  # |W| |H|; each is kept at the root of it

    def function(x: Array) -> tuple[float, Array]:
        theta = torch.tensor(x, requires_grad=True)
        W, H = theta.view(2, C, C)
        logits = bound * (W / W.norm()) @ (H / H.norm())
        loss = weight @ torch.nn.functional.cross_entropy(logits.T, labels, reduction="none")
        (slope,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), slope.numpy()

    start = np.random.default_rng(0).standard_normal(2 * C * C)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 40}
    found = minimize(function, start, jac=True, method="L-BFGS-B", options=options).x
    rows = found[: C * C].reshape(C, C)[large:]
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return float((units.sum(0) @ units.sum(0) - small) / (small * (small - 1)))


def gather(preset: str) -> dict[str, Any]:
    """The critical imbalance of some models, and what descent finds on both sides of it."""
    rows = []
    with one_thread():
        for large, small, size in CASES[preset]:
            ratio = critical_ratio(large, small, size)
            below, above = (
                minority_cosine_at(large, small, size, ratio * factor)
                for factor in (1 - BESIDE, 1 + BESIDE)
            )
            rows.append(
                {
                    "classes": [large, small],
                    "size": size,
                    "ratio": ratio,
                    "below": below,
                    "above": above,
                }
            )
    return {"rows": rows}


@claim(
    "fang2021/minority-threshold",
    Kind.THEOREM,
    "In the layer-peeled model classifiers of minority classes coincide from a finite imbalance "
    "on, and not before.",
    "fang2021, Sec. Abstract “a hitherto unknown phenomenon that we term Minority Collapse”",
    gather=gather,
    code="nclab_papers.fang2021.threshold.critical_ratio",
)
def minority_threshold(numbers: Numbers) -> Finding:
    """Descent ends apart just below the critical imbalance and together just above it."""
    rows = numbers["rows"]
    words = ", ".join(
        f"{row['classes'][0]} + {row['classes'][1]} classes at {number(row['size'])}: "
        f"R* = {row['ratio']:.5f}"
        for row in rows
    )
    if not all(row["above"] >= TOGETHER for row in rows):
        return Finding(Verdict.REFUTED, f"apart above it; {words}", numbers)
    if not all(row["below"] <= APART for row in rows):
        return Finding(Verdict.REFUTED, f"together below it; {words}", numbers)
    return Finding(Verdict.HOLDS, words, numbers)
