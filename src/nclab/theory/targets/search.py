"""Where nothing is proved: the whole problem over weights and features, from random starts."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nclab.theory.targets.descent import descend
from nclab.theory.targets.program import Program
from nclab.theory.targets.setting import Setting
from nclab.theory.targets.solve import solve
from nclab.theory.targets.solved import Solved
from nclab.threads import one_thread

STARTS = 6
STEPS = 4000


def search(setting: Setting, *, starts: int = STARTS, seed: int = 0) -> Solved:
    """The lowest objective that random starts find, with the means of all classes free.

    Features that are not negative are squares. Samples of a class share one feature, which is no
    restriction for losses that are convex in the logits.
    """
    with one_thread():
        found = min(
            (_one(setting, torch.Generator().manual_seed(seed + k)) for k in range(starts)),
            key=lambda one: one.loss + one.penalty,
        )
        return found._replace(
            lower=_relaxed(setting),
            proof=f"best of {starts} starts: no proof",
            source="docs/targets.md, search",
        )


def _relaxed(setting: Setting) -> float | None:
    """What the convex program without the limits of dimension and sign proves, if it applies."""
    if setting.depth > 1 or setting.focus or setting.loss == "mse" or setting.norms is not None:
        return None
    return solve(program_of_classes(setting, setting.weight)).lower


def program_of_classes(setting: Setting, weight: float) -> Program:
    """The program with every class as a group of its own."""
    C = setting.num_classes
    flat = torch.full((C, C), 1 / C, dtype=torch.float64)
    hard = torch.eye(C, dtype=torch.float64)
    mass = (1 - setting.smoothing) * hard + setting.smoothing * flat
    mass = mass if setting.targets is None else setting.targets
    ones = torch.ones_like(setting.counts)
    own = mass.diagonal().clone()
    return Program(
        setting.counts, ones, mass, own, setting.metric, weight, setting.bias, setting.focus
    )


def _one(setting: Setting, generator: torch.Generator) -> Solved:
    shapes = _shapes(setting)
    start = torch.cat([torch.randn(a * b, generator=generator).double() for a, b in shapes])
    start *= 0.5
    if setting.bias is not None:
        start = torch.cat([start, torch.zeros(setting.num_classes).double()])

    def function(x: Tensor) -> tuple[float, Tensor]:
        x = x.detach().requires_grad_()
        loss, penalty = _costs(setting, *_split(setting, shapes, x))
        value = loss + penalty
        (slope,) = torch.autograd.grad(value, x)
        return float(value.detach()), slope

    x = descend(function, start, steps=STEPS, rest=1e-14, memory=30).point
    parts, bias = _split(setting, shapes, x)
    loss, penalty = _costs(setting, parts, bias)
    read = parts[-1]
    for part in reversed(parts[1:-1]):
        read = part @ read
    scale = 1.0 if setting.weight_decay is None else setting.weight / setting.weight_decay[0]
    left, right = parts[0] @ parts[0].T / scale, read.T @ read * scale
    norm = math.sqrt(float(left.trace()) * float(right.diagonal() @ setting.metric))
    return Solved(
        logits=parts[0] @ read,
        bias=bias,
        loss=float(loss),
        penalty=float(penalty),
        left=left,
        right=right,
        lower=None,
        proof="",
        geometry="found by search",
        source="",
        norm=norm,
        weight=0.0 if setting.weight_decay is None else setting.weight,
    )


def _shapes(setting: Setting) -> list[tuple[int, int]]:
    C = setting.num_classes
    dim = C if setting.dim is None else min(setting.dim, C)
    return [(C, dim), *[(dim, dim)] * (setting.depth - 1), (dim, C)]


def _split(
    setting: Setting, shapes: Sequence[tuple[int, int]], x: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Factors from the last linear map to the features, and the bias."""
    parts, place = [], 0
    for rows, columns in shapes:
        parts.append(x[place : place + rows * columns].view(rows, columns))
        place += rows * columns
    bias = x[place:] if setting.bias is not None else x.new_zeros(setting.num_classes)
    if setting.features == "relu":
        parts[-1] = parts[-1].square()
    if setting.norms is not None:
        alpha, beta = setting.norms
        total = float(setting.metric.sum())
        size = (parts[-1].square() @ setting.metric).sum().sqrt()
        parts[0] = parts[0] * (beta * math.sqrt(setting.num_classes) / parts[0].norm())
        parts[-1] = parts[-1] * (alpha * math.sqrt(total) / size)
    return parts, bias


def _costs(setting: Setting, parts: Sequence[Tensor], bias: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and penalty."""
    logits = parts[-1]
    for part in reversed(parts[:-1]):
        logits = part @ logits
    logits = logits + bias[:, None]
    penalty = logits.new_zeros(()) + (setting.bias or 0.0) / 2 * bias.square().sum()
    if setting.weight_decay is not None:
        on_weights, on_features = setting.weight_decay
        for part in parts[:-1]:
            penalty = penalty + on_weights / 2 * part.square().sum()
        penalty = penalty + on_features / 2 * (parts[-1].square() @ setting.metric).sum()
    return (setting.counts * losses(setting, logits)).sum() / setting.samples, penalty


def losses(setting: Setting, logits: Tensor) -> Tensor:
    """(C,) the loss of each class at its column of logits."""
    C = setting.num_classes
    if setting.loss == "mse":
        return (logits - torch.eye(C).to(logits)).square().sum(0) / 2
    log_p = torch.log_softmax(logits, 0)
    if setting.focus:
        own = log_p.diagonal()
        return (1 - own.exp()).clamp(min=1e-300) ** setting.focus * -own
    if setting.targets is not None:
        return -(setting.targets * log_p).sum(0)
    return -(1 - setting.smoothing) * log_p.diagonal() - setting.smoothing * log_p.mean(0)


def without_dimension(setting: Setting) -> Setting:
    """The same with as many dimensions as the optimum wants."""
    return replace(setting, dim=None)
