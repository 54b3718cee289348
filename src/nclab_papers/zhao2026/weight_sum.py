"""NC0, the norm of the sum of the classifier's rows, and how it changes under SGD.

Collapse is possible only if NC0 goes to zero.
"""

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
"""Numbers of classes and of dimensions of the random class means."""
STEPS = 40
"""Number of gradient steps of `_adversary`."""


def decayed_sum(first: Tensor, rates: Sequence[float], weight_decay: float) -> Tensor:
    r"""Return the sum of the classifier's rows after SGD without momentum on cross-entropy.

    $$\sum_c w_c(t) = \prod_{s<t}(1-\eta_s\lambda)\,\sum_c w_c(0)$$

    Source: zhao2026, Sec. Abstract (the dynamics of NC0 under SGD; this form is derived here)

    eta_s is the learning rate of step s and lambda the weight decay. The gradient of cross-entropy
    with respect to the logits sums to zero over the classes, so only weight decay changes the sum.

    >>> decayed_sum(torch.tensor([8.0]), [1.0, 0.5], 0.5).tolist()
    [3.0]
    """
    return first * math.prod(1 - rate * weight_decay for rate in rates)


def _sides(weight: Tensor, means: Tensor) -> tuple[float, float]:
    """Return NC0, and the distance between the classifier and the centred class means.

    Both matrices are scaled to norm 1 before their distance is taken.
    """
    moments = ClassMoments(*means.shape)
    moments.update(means, torch.arange(len(means)))
    return nc0_weight_mean(weight), math.sqrt(nc3_frobenius(moments, weight))


def _adversary(weight: Tensor, means: Tensor) -> Tensor:
    """Return a classifier made by gradient ascent on NC0 / (distance from the class means)."""
    centred = means - means.mean(0)
    means_unit = centred / centred.norm()
    adversary = weight / weight.norm()
    for _ in range(STEPS):
        unit = (adversary / adversary.norm()).requires_grad_()
        nc0 = unit.sum(0).norm() / math.sqrt(len(adversary))
        ratio = nc0 / ((unit - means_unit).norm() + 1e-9)
        (gradient,) = torch.autograd.grad(ratio, unit)
        adversary = unit.detach() + 0.02 * gradient / gradient.norm()
    return adversary


def gather_necessary(preset: str) -> dict[str, Any]:
    """Compare NC0 with the distance from the class means for many classifiers.

    They are random, near the class means, or made by `_adversary` to violate the claim.
    """
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
    inequality = Inequality(
        np.array(left), "<=", np.array(right), tolerance=ROUNDING * np.maximum(1.0, np.array(right))
    )
    example = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    return {
        **tally(inequality),
        "tightest": float((inequality.left / inequality.right).max()),
        "hand_error": relative_error((nc0_weight_mean(example), math.sqrt(0.5))),
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
    """Require that NC0 is at most the distance from the class means, and once nearly equal."""
    finding = with_hand_check(judge_statement)(numbers)
    if finding.verdict is Verdict.HOLDS and numbers["tightest"] < 0.9:
        ratio = number(numbers["tightest"])
        evidence = f"the search reached only {ratio} of equality; at least 0.9 is needed"
        return Finding(Verdict.OPEN, evidence, numbers)
    return finding


TOLERANCES: dict[tuple[Backend, torch.dtype], float] = {
    ("torch", torch.float64): 1e-12,
    ("auto", torch.float32): 1e-5,
}
"""Largest accepted relative rounding error after some dozens of steps, by backend and precision."""


def gather_law(preset: str) -> dict[str, Any]:
    """Compare `decayed_sum` with small networks trained by SGD, without and with momentum."""
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
    """Return the sum of the classifier's rows of a network."""
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
    """Require that `decayed_sum` is exact up to rounding without momentum, but not with it."""
    rows = numbers["rows"]
    plain = [row for row in rows if not row["momentum"]]
    momentum = [row for row in rows if row["momentum"]]
    worst = max(plain, key=lambda row: row["error"] / row["tolerance"])
    evidence = (
        f"largest relative error {number(worst['error'])} in {worst['dtype']} after "
        f"{worst['steps']} steps; with momentum the error is at least "
        f"{number(min(row['error'] for row in momentum))}"
    )
    if not worst["error"] <= worst["tolerance"]:
        return Finding(Verdict.REFUTED, evidence, numbers)
    distinct = all(row["error"] > 100 * row["tolerance"] for row in momentum)
    return Finding(Verdict.HOLDS if distinct else Verdict.OPEN, evidence, numbers)
