"""The definitions of pan2023, chapter 3: the network, its effective depth, the conic hull data."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from nclab.claims.claim import Claim, Kind, Numbers
from nclab.claims.evidence import largest
from nclab.claims.verdict import Finding, Verdict
from nclab.metrics.effective_depth import effective_depth
from nclab.text import number

ROUNDING = 1e-9
"""Deviation that is rounding after a few layers of batch norm."""
TRIALS = {"quick": 2_000, "paper": 20_000}


class _Layer(nn.Module):
    """BN(max(W h + b, 0)), with its parts within reach."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(outputs, eps=1e-20, dtype=torch.float64)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """As torch computes it."""
        result: torch.Tensor = self.norm(self.linear(rows).relu())
        return result

    def by_hand(self, rows: torch.Tensor) -> torch.Tensor:
        """From its definition."""
        active = (rows @ self.linear.weight.T + self.linear.bias).clamp(min=0)
        centred = active - active.mean(0)
        spread = (centred.square().mean(0) + self.norm.eps).sqrt()
        return self.norm.weight * centred / spread + self.norm.bias


@torch.no_grad()
def _composition(preset: str) -> Numbers:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 5, generator=generator, dtype=torch.float64)
    layers = [_Layer(width, 7) for width in (5, 7, 7)]
    last = nn.Linear(7, 4, dtype=torch.float64)
    network = nn.Sequential(*layers, last)
    for parameter in network.parameters():
        parameter.normal_(generator=generator)
    for layer in layers:
        layer.norm.weight.uniform_(0.5, 2.0, generator=generator)
    outputs, hidden = network(rows), rows
    for layer in layers:
        hidden = layer.by_hand(hidden)
    alive = hidden.std(0) > 0
    means = hidden.mean(0) - layers[-1].norm.bias
    deviations = hidden.std(0, correction=0) - layers[-1].norm.weight
    by_hand = hidden @ last.weight.T + last.bias
    for layer in layers:  # positive factors before ReLU and batch norm change nothing
        layer.linear.weight.mul_(3.0)
        layer.linear.bias.mul_(3.0)
    return {
        "composition_error": largest((outputs - by_hand).numpy()),
        "mean_error": largest(means[alive].numpy()),
        "deviation_error": largest(deviations[alive].numpy()),
        "scaling_error": largest((outputs - network(rows)).numpy()),
    }


def _judge_composition(numbers: Numbers) -> Finding:
    worst = max(numbers.values())
    evidence = (
        f"composed by hand the network gives the same outputs (error "
        f"{number(numbers['composition_error'])}); post-BN features have mean b and standard "
        f"deviation gamma (errors {number(numbers['mean_error'])}, "
        f"{number(numbers['deviation_error'])}) and ignore the scale of the weights before "
        f"(error {number(numbers['scaling_error'])})"
    )
    return Finding(Verdict.HOLDS if worst <= ROUNDING else Verdict.REFUTED, evidence, numbers)


def _depths(preset: str) -> Numbers:
    rng = np.random.default_rng(1)
    differing, rising, none = 0, 0, 0
    for _ in range(TRIALS[preset]):
        accuracies = rng.integers(50, 101, size=8) / 100
        depths = []
        for epsilon in (0.0, 0.01, 0.05, 0.2):
            good = [
                i + 1 for i, a in enumerate(accuracies) if round(100 * (1 - a)) <= 100 * epsilon
            ]
            none += not good
            depths.append(effective_depth(accuracies.tolist(), epsilon=epsilon))
            differing += depths[-1] != (good[0] if good else len(accuracies))
        rising += any(late > early for early, late in pairwise(depths))
    return {"networks": TRIALS[preset], "differing": differing, "rising": rising, "none": none}


def _judge_depths(numbers: Numbers) -> Finding:
    evidence = (
        f"{numbers['networks']} series of layer accuracies: the depth differs from a search by "
        f"hand in {numbers['differing']} cases ({numbers['none']} without such a layer, where it "
        f"is the number of layers) and grows with epsilon in {numbers['rising']}"
    )
    right = numbers["differing"] == 0 and numbers["rising"] == 0 and numbers["none"] > 0
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


def _cones(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, TRIALS[preset], 16))
    planes = rng.normal(size=(2, 16))
    # The class of a point: the sides of the two planes that it is on; four classes in all.
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    inside = ((x @ planes.T)[:, None] * signs > 0).all(-1)  # (points, classes)
    scaled = (((3.7 * x) @ planes.T)[:, None] * signs > 0).all(-1)
    other = ((y @ planes.T)[:, None] * signs > 0).all(-1)
    both = (((x + y) @ planes.T)[:, None] * signs > 0).all(-1)
    return {
        "points": TRIALS[preset],
        "in_no_or_two_classes": int((inside.sum(1) != 1).sum()),
        "moved_by_scaling": int((inside != scaled).any(1).sum()),
        "sums_that_leave": int((inside & other & ~both).any(1).sum()),
        "smallest_class": int(inside.sum(0).min()),
    }


def _judge_cones(numbers: Numbers) -> Finding:
    evidence = (
        f"{numbers['points']} points, two planes, four classes: {numbers['in_no_or_two_classes']} "
        f"points in none or two of them, {numbers['moved_by_scaling']} moved by scaling, "
        f"{numbers['sums_that_leave']} sums of two members outside; smallest class "
        f"{numbers['smallest_class']}"
    )
    names = ("in_no_or_two_classes", "moved_by_scaling", "sums_that_leave")
    right = all(numbers[name] == 0 for name in names) and numbers["smallest_class"] > 0
    return Finding(Verdict.HOLDS if right else Verdict.REFUTED, evidence, numbers)


CLAIMS = (
    Claim(
        "pan2023/def-conic-hull",
        Kind.DEFINITION,
        "In a conic hull data set every class is a cone with its vertex at the origin, cut out "
        "by planes x . b_i > 0.",
        "pan2023, Sec. 3.1",
        _judge_cones,
        _cones,
        code="nclab.data.conic_hull.ConicHull",
    ),
    Claim(
        "pan2023/def-3.2.1",
        Kind.DEFINITION,
        "A multi-layer perceptron with batch norm is the composition of layers "
        "BN(max(W h + b, 0)) and a last linear layer.",
        "pan2023, Def. 3.2.1",
        _judge_composition,
        _composition,
        code="nclab.models.mlp.MLP",
    ),
    Claim(
        "pan2023/def-3.2.2",
        Kind.DEFINITION,
        "The epsilon-effective depth is the first layer whose nearest-class-centre error is at "
        "most epsilon, or the number of layers if there is none.",
        "pan2023, Def. 3.2.2",
        _judge_depths,
        _depths,
        code="nclab.metrics.effective_depth.effective_depth",
    ),
)
