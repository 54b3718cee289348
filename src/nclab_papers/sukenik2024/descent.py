"""Descent on the deep unconstrained model, many starts at once.

Free features H, one column a class, and L linear maps, with ReLU between them or without:
Z = W_L s(W_{L-1} ... s(W_1 H)). Minimised are the mean loss of the columns of Z and half of the
weight decay times the squared norm of all factors, in float64 on one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["linear", "relu"]
DeepLoss = Literal["mse", "cross_entropy"]
Factors = list[Tensor]
"""Features (B, w, C), then the maps (B, w, w) but for the last, (B, C, w)."""

MOMENTUM = 0.9
FIRST_RATE, GROWTH, MOST = 0.01, 1.02, 1.0
"""Of the step: it grows up to the most. It goes down to zero in the last fifth of the steps, as
the edges of ReLU keep a step of constant size from coming to rest."""
SLACK = 1.1
"""A step that would leave the objective above so many times the smallest so far is not taken, its
momentum forgotten, the next half as large. Less slack, and descent would stop at an edge."""
REST = 1e-6
"""A run has come to rest where its gradient is below this share of its first."""
CHECK = 25
"""Steps between two looks at who has come to rest."""
RANK = 0.01
"""Singular values above this share of the largest count."""


@dataclass(frozen=True)
class Model:
    """What all runs of a batch have in common."""

    kind: Kind
    loss: DeepLoss
    classes: int
    width: int
    layers: int
    """Linear maps, L."""

    def start(self, seed: int) -> Factors:
        """Normal numbers of variance 1/width, whatever loss and kind are."""
        generator = torch.Generator().manual_seed(seed)
        C, w = self.classes, self.width
        shapes = [(w, C), *[(w, w)] * (self.layers - 1), (C, w)]
        scale = w**-0.5
        return [
            torch.randn(one, generator=generator, dtype=torch.float64) * scale for one in shapes
        ]


class Look(NamedTuple):
    """The model at some factors."""

    value: Tensor
    """(B,) objectives."""
    slopes: Factors
    logits: Tensor
    """(B, C, C) column c holds the logits of class c."""
    hidden: Tensor
    """(B, w, C) the last hidden layer before its ReLU."""


class Rest(NamedTuple):
    """Where a run ended."""

    value: float
    rank: int
    """Of the last hidden layer before its ReLU."""
    accuracy: float
    steps: int
    gradient: float
    """Its norm over that of the first."""


def look(model: Model, factors: Factors, decay: Tensor) -> Look:
    """Objective and gradient of every run; decay is (B,)."""
    C = model.classes
    relu = model.kind == "relu"
    inputs, seen = [factors[0]], factors[0]
    for place in range(1, model.layers + 1):
        seen = factors[place] @ inputs[-1]
        if place == model.layers:
            break
        hidden = seen
        inputs.append(seen.clamp(min=0) if relu else seen)
    eye = torch.eye(C, dtype=torch.float64)
    if model.loss == "mse":
        rest = seen - eye
        loss = rest.square().sum((1, 2)) / (2 * C)
        delta = rest / C
    else:
        log_p = seen.log_softmax(1)
        loss = -log_p.diagonal(dim1=1, dim2=2).mean(1)
        delta = (log_p.exp() - eye) / C
    weight = decay[:, None, None]
    slopes = [torch.empty(0)] * len(factors)
    for place in range(model.layers, 0, -1):
        below = inputs[place - 1]
        slopes[place] = torch.baddbmm(weight * factors[place], delta, below.mT)
        delta = factors[place].mT @ delta
        if relu and place > 1:
            delta = delta * (below > 0)
    slopes[0] = delta + weight * factors[0]
    penalty = decay / 2 * sum(one.square().sum((1, 2)) for one in factors)
    return Look(loss + penalty, slopes, seen, hidden)


def descend(
    model: Model, starts: Sequence[Factors], decays: Sequence[float], steps: int
) -> list[Rest]:
    """Gradient descent with momentum from every start, each with its weight decay and step size."""
    now = [torch.stack(parts) for parts in zip(*starts, strict=True)]
    decay = torch.tensor(decays, dtype=torch.float64)
    found: dict[int, Rest] = {}
    places = torch.arange(len(starts))
    here = look(model, now, decay)
    first = _norm(here.slopes)
    speed = [torch.zeros_like(one) for one in now]
    rate = torch.full_like(decay, FIRST_RATE)
    least = here.value
    for step in range(1, steps + 1):
        size = (rate * min(1.0, 5 * (1 - step / (steps + 1))))[:, None, None]
        fast = [MOMENTUM * v - size * g for v, g in zip(speed, here.slopes, strict=True)]
        tried = [one + move for one, move in zip(now, fast, strict=True)]
        there = look(model, tried, decay)
        better = there.value <= SLACK * least  # a nan is not
        rate = torch.where(better, (rate * GROWTH).clamp(max=MOST), rate / 2)
        least = torch.where(better, torch.minimum(least, there.value), least)
        if bool(better.all()):
            now, speed, here = tried, fast, there
        else:
            taken = better[:, None, None]
            now = _chosen(taken, tried, now)
            speed = [torch.where(taken, one, 0.0) for one in fast]
            here = Look(
                torch.where(better, there.value, here.value),
                _chosen(taken, there.slopes, here.slopes),
                *_chosen(taken, there[2:], here[2:]),
            )
        if step % CHECK and step < steps:
            continue
        share = _norm(here.slopes) / first
        ended = (share < REST) | (step == steps)
        for index in ended.nonzero().flatten().tolist():
            found[int(places[index])] = _rest(here, index, step, float(share[index]))
        if bool(ended.all()):
            break
        if bool(ended.any()):
            left = ~ended
            places, decay, rate, first, least = (
                one[left] for one in (places, decay, rate, first, least)
            )
            now, speed = ([one[left] for one in parts] for parts in (now, speed))
            slopes = [one[left] for one in here.slopes]
            here = Look(here.value[left], slopes, here.logits[left], here.hidden[left])
    return [found[index] for index in range(len(starts))]


def _chosen(taken: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> list[Tensor]:
    return [torch.where(taken, one, other) for one, other in zip(new, old, strict=True)]


def _norm(slopes: Factors) -> Tensor:
    return sum((one.square().sum((1, 2)) for one in slopes), torch.zeros(())).sqrt()


def _rest(here: Look, index: int, step: int, share: float) -> Rest:
    values = torch.linalg.svdvals(here.hidden[index])
    logits = here.logits[index]
    right = (logits.argmax(0) == torch.arange(len(logits))).double().mean()
    rank = int((values > RANK * values[0]).sum()) if float(values[0]) > 0 else 0
    return Rest(float(here.value[index]), rank, float(right), step, share)
