"""Gradient descent on the deep unconstrained model, for many starts at once.

The model has free features H, one column per class, and L linear maps, with or without ReLU
between them: Z = W_L s(W_{L-1} ... s(W_1 H)). The objective is the mean loss of the columns of Z
plus half of the weight decay times the squared norm of all factors. Descent runs in float64 on one
thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["linear", "relu"]
DeepLoss = Literal["mse", "cross_entropy"]
Factors = list[Tensor]
"""Features (B, w, C), then the maps (B, w, w); the last map is (B, C, w)."""

MOMENTUM = 0.9
FIRST_RATE, GROWTH, LARGEST_RATE = 0.01, 1.02, 1.0
"""Learning rate: its start, its growth per step, and its bound. The rate falls to zero in the last
fifth of the steps, because runs at the edges of ReLU never converge at a constant rate."""
SLACK = 1.1
"""Largest objective of an accepted step, as a multiple of the smallest objective so far. A rejected
step clears the momentum and halves the rate. With less slack, descent would stop at an edge."""
CONVERGED = 1e-6
"""Share of its first norm below which the gradient of a run counts as zero."""
CHECK_EVERY = 25
"""Steps between two checks for convergence."""
RANK_THRESHOLD = 0.01
"""Share of the largest singular value above which a singular value counts for the rank."""


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
        """Draw factors with variance 1/width; they do not depend on loss and kind."""
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
    """Norm of the gradient over the norm of the first gradient."""


def evaluate(model: Model, factors: Factors, decay: Tensor) -> Evaluation:
    """Return objective and gradient of every run; decay has shape (B,)."""
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
    """Run gradient descent with momentum from every start, each with its own weight decay."""
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
    return [torch.where(mask, accepted, kept) for accepted, kept in zip(new, old, strict=True)]


def _norm(gradients: Factors) -> Tensor:
    squares = (gradient.square().sum((1, 2)) for gradient in gradients)
    return sum(squares, torch.zeros(())).sqrt()


def _end_state(current: Evaluation, index: int, step: int, share: float) -> EndState:
    values = torch.linalg.svdvals(current.hidden[index])
    logits = current.logits[index]
    accuracy = (logits.argmax(0) == torch.arange(len(logits))).double().mean()
    rank = int((values > RANK_THRESHOLD * values[0]).sum()) if float(values[0]) > 0 else 0
    return EndState(float(current.value[index]), rank, float(accuracy), step, share)
