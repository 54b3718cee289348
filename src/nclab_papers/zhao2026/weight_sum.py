"""NC0, the sum of the classifier's rows: what collapse needs of it, what plain SGD does to it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import judge_statement, relative_error, tally, with_hand_check
from nclab.compute import one_thread
from nclab.metrics import nc0_weight_mean, nc3_frobenius
from nclab.statistics import ClassMoments
from nclab.text import number
from nclab.theory.statements import ROUNDING, Inequality
from nclab.training.data.artificial import Teacher
from nclab.training.fleet import Fleet, Member, Recipe
from nclab.training.fleet.fleet import Backend
from nclab.training.models.mlp import Shape

SHAPES = ((2, 2), (3, 5), (4, 3), (5, 20), (10, 12))
"""(C, d) of the data sets that are drawn."""
STEPS = 40
"""Of the adversary's ascent."""


def decayed_sum(first: Tensor, rates: Sequence[float], weight_decay: float) -> Tensor:
    r"""The sum of the classifier's rows after steps of SGD without momentum on cross-entropy.

    $$\sum_c w_c(t) = \prod_{s<t}(1-\eta_s\lambda)\,\sum_c w_c(0)$$

    Source: zhao2026, Sec. Abstract (the dynamics of NC0 under SGD; this form is derived here)

    The gradient of cross-entropy in the logits sums to zero over the classes, so that only weight
    decay moves the sum.

    >>> decayed_sum(torch.tensor([8.0]), [1.0, 0.5], 0.5).tolist()
    [3.0]
    """
    return first * math.prod(1 - rate * weight_decay for rate in rates)


def _sides(weight: Tensor, means: Tensor) -> tuple[float, float]:
    """NC0, and the distance of the classifier from the centred class means, both of unit norm."""
    moments = ClassMoments(*means.shape)
    moments.update(means, torch.arange(len(means)))
    return nc0_weight_mean(weight), math.sqrt(nc3_frobenius(moments, weight))


def _adversary(weight: Tensor, means: Tensor) -> Tensor:
    """A classifier for which NC0 is as large beside the distance as ascent makes it."""
    centred = means - means.mean(0)
    goal = centred / centred.norm()
    own = weight / weight.norm()
    for _ in range(STEPS):
        unit = (own / own.norm()).requires_grad_()
        gain = unit.sum(0).norm() / math.sqrt(len(own)) / ((unit - goal).norm() + 1e-9)
        (slope,) = torch.autograd.grad(gain, unit)
        own = unit.detach() + 0.02 * slope / slope.norm()
    return own


def gather_necessary(preset: str) -> dict[str, Any]:
    """Random classifiers, such near to the class means, and an adversary's."""
    draws = {"quick": 130, "paper": 1300}[preset]
    generator = torch.Generator().manual_seed(0)
    left: list[float] = []
    right: list[float] = []
    with one_thread():
        for classes, dim in SHAPES:
            for draw in range(draws):
                means, noise = torch.randn(2, classes, dim, generator=generator).double()
                common = torch.randn(dim, generator=generator).double()
                size = 10 ** float(-3 * torch.rand((), generator=generator))
                centred = means - means.mean(0)
                near = centred / centred.norm() + size * common / math.sqrt(classes)
                weight = noise if draw % 4 == 0 else near + (draw % 4 == 1) * 0.1 * size * noise
                if draw % 20 == 0:
                    weight = _adversary(weight, means)
                for side, value in zip((left, right), _sides(weight, means), strict=True):
                    side.append(value)
    both = Inequality(
        np.array(left),
        "<=",
        np.array(right),
        "zhao2026, Sec. Abstract",
        tolerance=ROUNDING * np.maximum(1.0, np.array(right)),
    )
    known = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    return {
        **tally(both),
        "tightest": float((both.left / both.right).max()),
        "hand_error": relative_error((nc0_weight_mean(known), math.sqrt(0.5))),
    }


@claim(
    "zhao2026/nc0-necessary",
    Kind.PROPOSITION,
    "NC0 going to zero is necessary for collapse: divided by √C‖W‖, the sum of the classifier's "
    "rows is at most the distance of the classifier from the centred class means.",
    "zhao2026, Sec. Abstract “whose convergence to zero is a necessary condition for NC”",
    gather=gather_necessary,
    code="nclab.metrics.nc0_weight_mean",
)
def nc0_necessary(numbers: Numbers) -> Finding:
    """No classifier has a larger NC0 than distance, and some come close."""
    found = with_hand_check(judge_statement)(numbers)
    if found.verdict is Verdict.HOLDS and numbers["tightest"] < 0.9:
        return Finding(Verdict.OPEN, "the search came nowhere near to equality", numbers)
    return found


TOLERANCES: dict[tuple[Backend, torch.dtype], float] = {
    ("torch", torch.float64): 1e-12,
    ("auto", torch.float32): 1e-5,
}
"""Relative rounding of some dozens of steps."""


def gather_law(preset: str) -> dict[str, Any]:
    """A small fleet trained by SGD without momentum, and once with it, where the law is another."""
    epochs = {"quick": 12, "paper": 60}[preset]
    samples = Teacher(inputs=6, classes=5, samples=110, width=20).draw()
    shape = Shape(inputs=6, classes=5, layers=3, width=10)
    members = [Member("affine", 0.05, seed=0), Member("none", 0.2, seed=1)]
    rows = []
    for (backend, dtype), tolerance in TOLERANCES.items():
        for momentum in (0.0, 0.9):
            recipe = Recipe(epochs=epochs, batch=25, rate=0.1, momentum=momentum)
            fleet = Fleet(shape, members, recipe, *samples, dtype=dtype, backend=backend)
            before = [_sum(fleet, index) for index in range(len(members))]
            rates = []
            for epoch in range(epochs):
                rates += [recipe.rate_at(epoch)] * recipe.steps(len(samples))
                fleet.train_epoch()
            for index, member in enumerate(members):
                predicted = decayed_sum(before[index], rates, member.weight_decay)
                error = (_sum(fleet, index) - predicted).norm() / before[index].norm()
                rows.append(
                    {
                        "backend": backend,
                        "dtype": str(dtype).removeprefix("torch."),
                        "weight_decay": member.weight_decay,
                        "momentum": momentum,
                        "steps": len(rates),
                        "kept": math.prod(1 - rate * member.weight_decay for rate in rates),
                        "error": float(error),
                        "tolerance": tolerance,
                    }
                )
    return {"rows": rows}


def _sum(fleet: Fleet, index: int) -> Tensor:
    """Of the classifier's rows."""
    return fleet.model(index).classifier.weight.detach().double().sum(0)


@claim(
    "zhao2026/sgd-weight-sum",
    Kind.PROPOSITION,
    "Under SGD without momentum the sum of the classifier's rows shrinks by 1 − ηλ at every step, "
    "whatever the network and the data.",
    "zhao2026, Sec. Abstract “exhibit qualitatively different NC0 dynamics”",
    gather=gather_law,
    code="nclab_papers.zhao2026.weight_sum.decayed_sum",
)
def sgd_weight_sum(numbers: Numbers) -> Finding:
    """Trained networks obey it to rounding, and with momentum they do not."""
    rows = numbers["rows"]
    exact = [row for row in rows if not row["momentum"]]
    others = [row for row in rows if row["momentum"]]
    worst = max(exact, key=lambda row: row["error"] / row["tolerance"])
    words = (
        f"largest relative error {number(worst['error'])} in {worst['dtype']} after "
        f"{worst['steps']} steps; with momentum at least "
        f"{number(min(row['error'] for row in others))}"
    )
    if not worst["error"] <= worst["tolerance"]:
        return Finding(Verdict.REFUTED, words, numbers)
    sharp = all(row["error"] > 100 * row["tolerance"] for row in others)
    return Finding(Verdict.HOLDS if sharp else Verdict.OPEN, words, numbers)
