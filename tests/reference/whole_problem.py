"""The whole problem behind a target, over every weight, feature and bias, from random starts.

Nothing of nclab is used: torch for gradients, scipy for descent.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


class Ended(NamedTuple):
    """Where a descent ended."""

    value: float
    classifier_gram: Tensor
    """(C, C) of the last map."""
    mean_gram: Tensor
    """(C, C) of the class means that it reads."""
    bias: Tensor


def descended(function: Callable[[Tensor], Tensor], start: np.ndarray) -> tuple[float, Tensor]:
    """The smallest value that L-BFGS finds from here, and its place."""

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.tensor(x, requires_grad=True)
        value = function(v)
        value.backward()
        assert v.grad is not None
        return float(value.detach()), v.grad.numpy()

    options = {"maxiter": 8000, "maxfun": 16000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
    return float(found.fun), torch.tensor(found.x)


def whole_problem(
    counts: list[int], decays: tuple[float, float], *, seed: int, **kind: Any
) -> Ended:
    """One random start.

    Kinds: dim, depth, loss="mse", smoothing, focal_gamma, bias (its penalty), relu (features >= 0),
    between (ReLU between the maps), classes (every class counts once in the norm of features),
    norms (root mean squares of features and rows, instead of penalties).
    """
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    n, C = len(labels), len(counts)
    d = kind.get("dim", C)
    sizes = [(C, d), *[(d, d)] * (kind.get("depth", 1) - 1), (d, n), (C, 1)]
    ends = np.cumsum([a * b for a, b in sizes])
    every = torch.tensor(counts).double()
    cost = 1 / every[labels] if kind.get("classes") else torch.ones(n).double()

    def split(v: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        parts = [p.view(s) for p, s in zip(v.tensor_split(ends[:-1].tolist()), sizes, strict=True)]
        *maps, H, bias = parts
        H = H.square() if kind.get("relu") else H
        if "norms" in kind:
            alpha, beta = kind["norms"]
            H = H * (alpha * math.sqrt(n) / H.norm())
            maps = [maps[0] * (beta * math.sqrt(C) / maps[0].norm())]
        return maps, H, bias

    def read(maps: list[Tensor], H: Tensor) -> Tensor:
        """What the last map reads."""
        for part in reversed(maps[1:]):
            H = part @ H
            H = H.relu() if kind.get("between") else H
        return H

    def function(v: Tensor) -> Tensor:
        maps, H, bias = split(v)
        Z = maps[0] @ read(maps, H)
        Z = Z if kind.get("bias") is None else Z + bias
        total = _loss(Z, labels, C, kind) + (kind.get("bias") or 0.0) / 2 * bias.square().sum()
        if "norms" in kind:
            return total
        total = total + decays[1] / 2 * (H.square() * cost).sum()
        return total + decays[0] / 2 * torch.stack([part.square().sum() for part in maps]).sum()

    value, place = descended(function, np.random.default_rng(seed).normal(size=ends[-1]))
    maps, H, bias = split(place)
    means = read(maps, H) @ torch.nn.functional.one_hot(labels, C).double() / every
    return Ended(value, maps[0] @ maps[0].T, means.T @ means, bias[:, 0])


def _loss(Z: Tensor, labels: Tensor, C: int, kind: dict[str, Any]) -> Tensor:
    n = len(labels)
    if kind.get("loss") == "mse":
        return (Z - torch.eye(C).double()[:, labels]).square().sum() / (2 * n)
    log_p = torch.log_softmax(Z, 0)
    own = log_p.gather(0, labels[None])[0]
    if focal_gamma := kind.get("focal_gamma"):
        return ((1 - own.exp()) ** focal_gamma * -own).mean()
    smoothing = kind.get("smoothing", 0.0)
    return -((1 - smoothing) * own + smoothing * log_p.mean(0)).mean()


def many_labels(C: int, copies: dict[int, int], decays: tuple[float, float], *, seed: int) -> float:
    """Pick-all-labels cross-entropy with every set of m labels `copies[m]` times."""
    from itertools import combinations

    sets = [s for m, many in copies.items() for s in combinations(range(C), m) for _ in range(many)]
    Y = torch.zeros(C, len(sets)).double()
    for place, labels in enumerate(sets):
        Y[list(labels), place] = 1.0

    def function(v: Tensor) -> Tensor:
        W, H = v[: C * C].view(C, C), v[C * C :].view(C, -1)
        loss = -(Y * torch.log_softmax(W @ H, 0)).sum() / len(sets)
        return loss + decays[0] / 2 * W.square().sum() + decays[1] / 2 * H.square().sum()

    rng = np.random.default_rng(seed)
    return descended(function, rng.normal(size=C * C + C * len(sets)))[0]


def on_unit_spheres(C: int, temperature: float, *, seed: int) -> float:
    """Cross-entropy of rows and features of norm 1, divided by a temperature."""

    def function(v: Tensor) -> Tensor:
        W, H = torch.nn.functional.normalize(v.view(2, C, C), dim=2)
        return -torch.log_softmax(W @ H.T / temperature, 0).diagonal().mean()

    return descended(function, np.random.default_rng(seed).normal(size=2 * C * C))[0]


def least_norm_with_margins(counts: list[int], *, biased: bool, seed: int) -> Ended:
    """Half the least |W|^2 + |H|^2, all samples counted, with own logits 1 above all others."""
    C, D = len(counts), np.array(counts, float)
    off = ~np.eye(C, dtype=bool)

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        W, H = x[: C * C], x[C * C : 2 * C * C].reshape(C, C)
        slopes = np.concatenate([W, (H * D).ravel(), np.zeros(C)])
        return float(W @ W + (H**2 * D).sum()) / 2, slopes

    def margins(x: np.ndarray) -> np.ndarray:
        W, H = x[: C * C].reshape(C, C), x[C * C : 2 * C * C].reshape(C, C)
        Z = W @ H + (x[2 * C * C :, None] if biased else 0.0)
        return (np.diag(Z) - Z - 1)[off]

    found = minimize(
        value,
        np.random.default_rng(seed).normal(size=2 * C * C + C),
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": margins},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    first, second, bias = torch.tensor(found.x).tensor_split([C * C, 2 * C * C])
    W, H = first.view(C, C), second.view(C, C)
    return Ended(float(found.fun), W @ W.T, H.T @ H, bias)


def widest_code(C: int, d: int, *, seed: int) -> Tensor:
    """(C, d) unit rows whose smallest margin is climbed, ever less smoothed; no known code used."""
    x = np.random.default_rng(seed).normal(size=2 * C * d)
    off = ~torch.eye(C, dtype=torch.bool)
    for sharp in (5.0, 20.0, 100.0, 500.0, 5e3, 5e4):

        def function(v: Tensor, sharp: float = sharp) -> Tensor:
            W, H = torch.nn.functional.normalize(v.view(2, C, d), dim=2)
            Z = H @ W.T
            return (sharp * (Z - Z.diagonal()[:, None])[off]).logsumexp(0) / sharp

        x = descended(function, x)[1].numpy()
    return torch.nn.functional.normalize(torch.tensor(x).view(2, C, d)[0])
