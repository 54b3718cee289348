"""Label smoothing is weight decay: the optimum of the unconstrained model is the same."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.compute import one_thread
from nclab.text import number
from nclab.theory.targets.closed_forms import simplex_gap

Array = NDArray[np.float64]
CASES = {
    "quick": ((4, 0.01, 0.1), (3, 0.05, 0.2)),
    "paper": ((4, 0.01, 0.1), (3, 0.05, 0.2), (10, 0.001, 0.1), (10, 0.005, 0.05), (6, 0.02, 0.3)),
}
"""Classes, weight decay and smoothing."""
SAME = 1e-6


def smoothed_gap(classes: int, decay: float, smoothing: float, *, seed: int = 0) -> float:
    """The gap of the logits that descent on free features and classifier finds, at the worst class.

    Classifier and features have weight decay `decay` and `decay / classes`, with one sample a
    class; the labels are smoothed.
    """
    C = classes
    labels = torch.arange(C)

    def function(x: Array) -> tuple[float, Array]:
        theta = torch.tensor(x, requires_grad=True)
        W, H = theta.view(2, C, C)
        loss = torch.nn.functional.cross_entropy((W @ H).T, labels, label_smoothing=smoothing)
        value = loss + decay / 2 * W.square().sum() + decay / (2 * C) * H.square().sum()
        (slope,) = torch.autograd.grad(value, theta)
        return float(value.detach()), slope.numpy()

    start = np.random.default_rng(seed).standard_normal(2 * C * C)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 40}
    found = minimize(function, start, jac=True, method="L-BFGS-B", options=options).x
    W, H = found.reshape(2, C, C)
    logits = W @ H
    gaps = np.diag(logits) - (logits.sum(0) - np.diag(logits)) / (C - 1)
    return float(gaps.min())


def gather(preset: str) -> dict[str, Any]:
    """The gap that is found with smoothing, and that of cross-entropy at the shifted decay."""
    with one_thread():
        rows = [
            {
                "classes": C,
                "decay": decay,
                "smoothing": smoothing,
                "found": smoothed_gap(C, decay, smoothing),
                "shifted": simplex_gap(C, decay + smoothing / C**0.5),
                "alone": simplex_gap(C, decay),
            }
            for C, decay, smoothing in CASES[preset]
        ]
    return {"rows": rows}


@claim(
    "findings/losses-smoothing-is-decay",
    Kind.PROPOSITION,
    "With free features label smoothing δ does what more weight decay does: the optimum at (λ, δ) "
    "has the logits of cross-entropy at λ + δ/√C.",
    "zhou2022, Sec. Abstract “produce equivalent features on training data”",
    gather=gather,
    code="nclab.theory.targets.closed_forms.simplex_gap",
)
def smoothing_is_decay(numbers: Numbers) -> Finding:
    """Descent with smoothing ends where the formula without it says."""
    rows = numbers["rows"]
    error = max(abs(row["found"] - row["shifted"]) / abs(row["found"]) for row in rows)
    moved = min(abs(row["found"] - row["alone"]) / abs(row["found"]) for row in rows)
    words = (
        f"largest relative difference of the gaps {number(error)} in {len(rows)} cases; without "
        f"the shift at least {number(moved)}"
    )
    if not error <= SAME:
        return Finding(Verdict.REFUTED, words, numbers)
    return Finding(Verdict.HOLDS if moved > 100 * SAME else Verdict.OPEN, words, numbers)
