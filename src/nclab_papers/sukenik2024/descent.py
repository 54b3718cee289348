"""Deep unconstrained models: gradient descent from many starts, and two explicit solutions.

The model has free features H, one column per class, and L linear maps W_1 ... W_L. The logits are
Z = W_L s(W_{L-1} ... s(W_1 H)), where s is ReLU or the identity. The objective is the mean loss of
the columns of Z plus half of the weight decay times the squared norms of H and all maps, together
called the factors. Descent runs in float64 on one thread.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import pad

from nclab.claims.claim import Finding, Numbers, Verdict, claim
from nclab.claims.claim import Kind as ClaimKind
from nclab.claims.statements import holds_if, relative_error
from nclab.text import number
from nclab.theory.targets.deep_heads import deep_relu, vertices

Kind = Literal["linear", "relu"]
DeepLoss = Literal["mse", "cross_entropy"]
Factors = list[Tensor]
"""Features (B, w, C), then the maps (B, w, w), the last of which is (B, C, w). B is the number of
runs, C of classes, and w the width."""

MOMENTUM = 0.9
FIRST_RATE, GROWTH, LARGEST_RATE = 0.01, 1.02, 1.0
"""Learning rate: the first one, its growth per step, and its bound. The rate falls to zero in the
last fifth of the steps, because at the kinks of ReLU runs never converge at a constant rate."""
SLACK = 1.1
"""A step is accepted if the objective is at most this multiple of the smallest objective so far. A
rejected step clears the momentum and halves the rate. With less slack, descent would stop at a kink
of ReLU."""
CONVERGED = 1e-6
"""A run has converged if the norm of its gradient, divided by its first norm, is below this."""
CHECK_EVERY = 25
"""Number of steps between two checks for convergence."""
RANK_THRESHOLD = 0.01
"""The rank is the number of singular values above this share of the largest."""


@dataclass(frozen=True)
class Model:
    """The sizes and the loss of all runs of a batch."""

    kind: Kind
    loss: DeepLoss
    classes: int
    width: int
    layers: int
    """Number of linear maps, L."""

    def start(self, seed: int) -> Factors:
        """Draw factors whose entries have variance 1/width."""
        generator = torch.Generator().manual_seed(seed)
        C, w = self.classes, self.width
        shapes = [(w, C), *[(w, w)] * (self.layers - 1), (C, w)]
        scale = w**-0.5
        return [
            torch.randn(shape, generator=generator, dtype=torch.float64) * scale for shape in shapes
        ]


class Evaluation(NamedTuple):
    """Objective, gradient and hidden values of a batch of factors."""

    value: Tensor
    """Objectives, shape (B,)."""
    gradients: Factors
    logits: Tensor
    """Logits, shape (B, C, C); column c holds the logits of class c."""
    hidden: Tensor
    """Last hidden layer before its ReLU, shape (B, w, C)."""


class EndState(NamedTuple):
    """The end of a run."""

    value: float
    rank: int
    """Rank of the last hidden layer before its ReLU."""
    accuracy: float
    steps: int
    gradient: float
    """Norm of the last gradient divided by the norm of the first."""


def evaluate(model: Model, factors: Factors, decay: Tensor) -> Evaluation:
    """Return objective, gradient and hidden values of every run.

    Args:
        decay: (B,) weight decay of every run.
    """
    C = model.classes
    relu = model.kind == "relu"
    inputs, outputs = [factors[0]], factors[0]
    for layer in range(1, model.layers + 1):
        outputs = factors[layer] @ inputs[-1]
        if layer == model.layers:
            break
        hidden = outputs
        inputs.append(outputs.clamp(min=0) if relu else outputs)
    eye = torch.eye(C, dtype=torch.float64)
    if model.loss == "mse":
        residual = outputs - eye
        loss = residual.square().sum((1, 2)) / (2 * C)
        delta = residual / C
    else:
        log_p = outputs.log_softmax(1)
        loss = -log_p.diagonal(dim1=1, dim2=2).mean(1)
        delta = (log_p.exp() - eye) / C
    weight = decay[:, None, None]
    gradients = [torch.empty(0)] * len(factors)
    for layer in range(model.layers, 0, -1):
        below = inputs[layer - 1]
        gradients[layer] = torch.baddbmm(weight * factors[layer], delta, below.mT)
        delta = factors[layer].mT @ delta
        if relu and layer > 1:
            delta = delta * (below > 0)
    gradients[0] = delta + weight * factors[0]
    penalty = decay / 2 * sum(factor.square().sum((1, 2)) for factor in factors)
    return Evaluation(loss + penalty, gradients, outputs, hidden)


def descend(
    model: Model, starts: Sequence[Factors], decays: Sequence[float], steps: int
) -> list[EndState]:
    """Run descent with momentum from every start, each with its weight decay; return end states."""
    factors = [torch.stack(parts) for parts in zip(*starts, strict=True)]
    decay = torch.tensor(decays, dtype=torch.float64)
    ends: dict[int, EndState] = {}
    runs = torch.arange(len(starts))
    current = evaluate(model, factors, decay)
    first = _norm(current.gradients)
    speed = [torch.zeros_like(factor) for factor in factors]
    rate = torch.full_like(decay, FIRST_RATE)
    smallest = current.value
    for step in range(1, steps + 1):
        size = (rate * min(1.0, 5 * (1 - step / (steps + 1))))[:, None, None]
        moves = [MOMENTUM * v - size * g for v, g in zip(speed, current.gradients, strict=True)]
        moved = [factor + move for factor, move in zip(factors, moves, strict=True)]
        candidate = evaluate(model, moved, decay)
        accepted = candidate.value <= SLACK * smallest  # False for nan
        rate = torch.where(accepted, (rate * GROWTH).clamp(max=LARGEST_RATE), rate / 2)
        smallest = torch.where(accepted, torch.minimum(smallest, candidate.value), smallest)
        if bool(accepted.all()):
            factors, speed, current = moved, moves, candidate
        else:
            mask = accepted[:, None, None]
            factors = _select(mask, moved, factors)
            speed = [torch.where(mask, move, 0.0) for move in moves]
            current = Evaluation(
                torch.where(accepted, candidate.value, current.value),
                _select(mask, candidate.gradients, current.gradients),
                *_select(mask, candidate[2:], current[2:]),
            )
        if step % CHECK_EVERY and step < steps:
            continue
        share = _norm(current.gradients) / first
        ended = (share < CONVERGED) | (step == steps)
        for index in ended.nonzero().flatten().tolist():
            ends[int(runs[index])] = _end_state(current, index, step, float(share[index]))
        if bool(ended.all()):
            break
        if bool(ended.any()):
            running = ~ended
            runs, decay, rate, first, smallest = (
                values[running] for values in (runs, decay, rate, first, smallest)
            )
            factors, speed = ([part[running] for part in parts] for parts in (factors, speed))
            gradients = [gradient[running] for gradient in current.gradients]
            value, logits, hidden = current.value, current.logits, current.hidden
            current = Evaluation(value[running], gradients, logits[running], hidden[running])
    return [ends[index] for index in range(len(starts))]


def _select(mask: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> list[Tensor]:
    return [torch.where(mask, *pair) for pair in zip(new, old, strict=True)]


def _norm(gradients: Factors) -> Tensor:
    squares = (gradient.square().sum((1, 2)) for gradient in gradients)
    return sum(squares, torch.zeros(())).sqrt()


def _end_state(current: Evaluation, index: int, step: int, share: float) -> EndState:
    values = torch.linalg.svdvals(current.hidden[index])
    logits = current.logits[index]
    accuracy = (logits.argmax(0) == torch.arange(len(logits))).double().mean()
    rank = int((values > RANK_THRESHOLD * values[0]).sum()) if float(values[0]) > 0 else 0
    return EndState(float(current.value[index]), rank, float(accuracy), step, share)


CASES = {
    "quick": ((10, 4, 1e-3),),
    "paper": ((10, 4, 1e-3), (6, 4, 1e-3), (10, 5, 1e-3), (15, 4, 1e-3), (10, 4, 5e-4)),
}
"""Numbers of classes and of maps, and weight decays, at which the two solutions are compared."""
ROUNDING = 1e-8
"""Largest accepted relative difference between an objective and its closed formula."""
Build = Callable[[float], Factors]
"""Function that returns the factors of a network whose logits Z are `size` times the identity."""


def collapsed(classes: int, layers: int) -> Build:
    """Return a function that builds a collapsed network; each factor is a multiple of I."""
    eye = torch.eye(classes, dtype=torch.float64)
    return lambda size: [eye * size ** (1 / (layers + 1))] * (layers + 1)


def on_graph(classes: int, layers: int) -> Build:
    """Return a function that builds a network of low rank from a complete graph.

    The C classes are the edges of the graph, and all layers but the last represent its r vertices.
    X is the incidence matrix (C, r) of edges and vertices. Two different edges share at most one
    vertex, so ReLU(X X' - 1) is the identity.
    """
    r = vertices(classes)
    assert r is not None
    edges = torch.combinations(torch.arange(r))
    X = torch.zeros(classes, r, dtype=torch.float64).scatter_(1, edges, 1.0)
    left, values, right = torch.linalg.svd(X.T, full_matrices=False)
    parts = [values.sqrt()[:, None] * right, left * values.sqrt()]
    parts += [torch.eye(r, dtype=torch.float64)] * (layers - 3)
    # Every column of X' has the sum 2, so (X - 0.5) X' = X X' - 1.
    parts += [X - 0.5, torch.eye(classes, dtype=torch.float64)]
    norms = [float(part.norm()) for part in parts]

    def build(size: float) -> Factors:
        norm_each = (size * math.prod(norms)) ** (1 / len(parts))
        scaled = [part * (norm_each / norm) for part, norm in zip(parts, norms, strict=True)]
        return [
            pad(part, (0, classes - part.shape[1], 0, classes - part.shape[0])) for part in scaled
        ]

    return build


def best_value(build: Build, classes: int, layers: int, decay: float) -> float:
    """Return the smallest objective of a built network over all sizes of its logits.

    The objective is computed by `evaluate`, for ReLU and the squared error.
    """
    model = Model("relu", "mse", classes, classes, layers)
    penalty = torch.tensor([decay], dtype=torch.float64)

    def value(size: float) -> float:
        return float(evaluate(model, [part[None] for part in build(size)], penalty).value)

    optimum = minimize_scalar(value, bounds=(0.3, 1.0), options={"xatol": 1e-10})
    return float(optimum.fun)


def gather(preset: str) -> dict[str, Any]:
    """Return the smallest objectives of the networks built by `collapsed` and by `on_graph`.

    Also return the largest relative difference between them and their closed formulas.
    """
    rows = []
    for classes, layers, decay in CASES[preset]:
        formula = deep_relu(classes, layers, decay)
        values = {
            name: best_value(build(classes, layers), classes, layers, decay)
            for name, build in (("collapse", collapsed), ("graph", on_graph))
        }
        rows.append(
            {
                "classes": classes,
                "layers": layers,
                "decay": decay,
                **values,
                "formula_error": relative_error(
                    (formula.collapse, values["collapse"]), (formula.graph, values["graph"])
                ),
            }
        )
    return {"rows": rows}


@claim(
    "sukenik2024/low-rank-beats-collapse",
    ClaimKind.THEOREM,
    "Collapse is not optimal in deep unconstrained models with ReLU: at 10 classes and four maps a "
    "network of lower rank, built on a graph, has a smaller objective.",
    "sukenik2024, Sec. Abstract “DNC stops being optimal for the deep unconstrained features”",
    gather=gather,
    code="nclab.theory.targets.deep_heads.deep_relu",
)
def low_rank_beats_collapse(numbers: Numbers) -> Finding:
    """Require that the network of `on_graph` has a smaller objective than the collapsed network.

    The verdict is open if the objectives differ from their closed formulas.
    """
    rows = numbers["rows"]
    objectives = "; ".join(
        f"C = {row['classes']}, L = {row['layers']}: {row['graph']:.8f} for the graph, "
        f"{row['collapse']:.8f} for collapse"
        for row in rows
    )
    error = max(row["formula_error"] for row in rows)
    if error > ROUNDING:
        reason = f"the formula differs from the built networks by {number(error)}; {objectives}"
        return Finding(Verdict.OPEN, reason, numbers)
    below = all(row["graph"] < row["collapse"] for row in rows)
    return holds_if(below, objectives, numbers)
