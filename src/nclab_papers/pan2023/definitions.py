"""Definitions of chapter 3 of the thesis: network, effective depth and conic hull data."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from nclab.claims.claim import Kind, Numbers
from nclab.claims.statements import judge_if, max_abs, statement
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.statements import BoolArray
from nclab.training.data.artificial import ConicHull
from nclab.training.models.mlp import MLP, Shape

ROUNDING = 1e-9
"""An error of at most this size, after a few layers of batch norm, counts as rounding."""
TRIALS = {"quick": 2_000, "paper": 20_000}


@statement(
    "pan2023/def-conic-hull",
    Kind.DEFINITION,
    "In a conic hull data set every class is a cone with its vertex at the origin, cut out by "
    r"planes $x \cdot b_i > 0$.",
    "pan2023, Sec. 3.1 “within an infinite cone with the vertex at the origin”",
    ConicHull,
    judge=judge_if(
        lambda numbers: (
            numbers["smallest_class"] > 0
            and numbers["sums"] > 0
            and not any(
                numbers[name]
                for name in ("outside_their_cone", "moved_by_scaling", "sums_that_leave")
            )
        ),
        "of {points} points in four classes between two planes, {outside_their_cone} are outside "
        "the cone of their class or in two cones, and {moved_by_scaling} leave it when scaled; "
        "{sums_that_leave} of {sums} sums of two members leave the cone; the smallest class has "
        "{smallest_class} points",
    ),
)
def cones(preset: str) -> Numbers:
    rng = np.random.default_rng(2)
    planes = rng.normal(size=(2, 16))
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    normals = tuple(tuple(map(tuple, planes * sign[:, None])) for sign in signs)
    drawn = ConicHull(inputs=16, samples=TRIALS[preset], cones=normals, seed=2).draw()
    x, labels = drawn.inputs.double().numpy(), drawn.labels.numpy()
    expected = np.eye(4, dtype=bool)[labels]

    def inside(points: FloatArray) -> BoolArray:
        """Return (points, classes): whether a point is in the cone of a class."""
        result: BoolArray = ((points @ planes.T)[:, None] * signs > 0).all(-1)
        return result

    order = np.argsort(labels, kind="stable")
    ahead = order[1:][labels[order[1:]] == labels[order[:-1]]]
    behind = order[:-1][labels[order[1:]] == labels[order[:-1]]]
    return {
        "points": len(x),
        "outside_their_cone": int((inside(x) != expected).any(1).sum()),
        "moved_by_scaling": int((inside(3.7 * x) != expected).any(1).sum()),
        "sums": len(ahead),
        "sums_that_leave": int((inside(x[ahead] + x[behind]) != expected[ahead]).any(1).sum()),
        "smallest_class": int(expected.sum(0).min()),
    }


def _by_hand(block: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return BN(max(W h + b, 0)) for the rows h, written out, with the parameters of a layer."""
    linear, _, norm = block.children()
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    active = (rows @ linear.weight.T + linear.bias).clamp(min=0)
    centred = active - active.mean(0)
    return norm.weight * centred / (centred.square().mean(0) + norm.eps).sqrt() + norm.bias


@statement(
    "pan2023/def-3.2.1",
    Kind.DEFINITION,
    r"A multi-layer perceptron with batch norm is the composition of layers $\mathrm{BN}(\max(Wh "
    "+ b, 0))$ and a last linear layer.",
    "pan2023, Def. 3.2.1 “(MLP) classifier with batch normalization of depth L”",
    MLP,
    judge=judge_if(
        lambda numbers: max(numbers.values()) <= ROUNDING,
        "layers composed by hand give the outputs of the network (error {composition_error}); "
        "features after batch norm have mean b and standard deviation gamma (errors {mean_error}, "
        "{deviation_error}) and do not depend on the scale of the preceding weights (error "
        "{scaling_error})",
    ),
)
@torch.no_grad()
def composition(preset: str) -> Numbers:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 5, generator=generator, dtype=torch.float64)
    network, _ = MLP.seeded(Shape(inputs=5, classes=4, layers=4, width=7), seed=0)
    network = network.double()  # in training mode: statistics of the batch
    for parameter in network.parameters():
        parameter.normal_(generator=generator)
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm1d)]
    for norm in norms:
        norm.eps = 1e-20  # the definition has no eps
        norm.weight.uniform_(0.5, 2.0, generator=generator)
    outputs, hidden = network(rows), rows
    for block in network.hidden:
        hidden = _by_hand(block, hidden)
    alive = hidden.std(0) > 0
    means = hidden.mean(0) - norms[-1].bias
    deviations = hidden.std(0, correction=0) - norms[-1].weight
    by_hand = hidden @ network.classifier.weight.T + network.classifier.bias
    for block in network.hidden:  # positive factors before ReLU and batch norm cancel
        for parameter in next(block.children()).parameters():
            parameter.mul_(3.0)
    return {
        "composition_error": max_abs((outputs - by_hand).numpy()),
        "mean_error": max_abs(means[alive].numpy()),
        "deviation_error": max_abs(deviations[alive].numpy()),
        "scaling_error": max_abs((outputs - network(rows)).numpy()),
    }


@statement(
    "pan2023/def-3.2.2",
    Kind.DEFINITION,
    r"The $\varepsilon$-effective depth is the first layer whose nearest-class-centre error is "
    r"at most $\varepsilon$, or the number of layers if there is none.",
    "pan2023, Def. 3.2.2 “Suppose we have a dataset S and a neural network”",
    effective_depth,
    judge=judge_if(
        lambda numbers: numbers["differing"] == numbers["rising"] == 0 < numbers["none"],
        "on {networks} series of layer accuracies the depth differs from a direct search in "
        "{differing} cases ({none} cases have no such layer, and the depth is the number of "
        "layers) and increases with epsilon in {rising}",
    ),
)
def depths(preset: str) -> Numbers:
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
