"""Direct minimisation over all weights, features and biases, to check targets.

The starts are random. Gradients are torch's and descent is scipy's; no code of nclab is used.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


class Ended(NamedTuple):
    """The end of a minimisation."""

    value: float
    classifier_gram: Tensor
    """(C, C) Gram matrix of the last map's rows."""
    mean_gram: Tensor
    """(C, C) Gram matrix of the class means that the last map reads."""
    bias: Tensor


def descended(function: Callable[[Tensor], Tensor], start: np.ndarray) -> tuple[float, Tensor]:
    """Minimise by L-BFGS from a start; return the value and the point."""

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.tensor(x, requires_grad=True)
        value = function(v)
        value.backward()
        assert v.grad is not None
        return float(value.detach()), v.grad.numpy()

    options = {"maxiter": 8000, "maxfun": 16000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    result = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
    return float(result.fun), torch.tensor(result.x)


def whole_problem(
    counts: list[int], decays: tuple[float, float], *, seed: int, **kind: Any
) -> Ended:
    """Minimise from one random start.

    Options in `kind`: dim, depth, loss="mse", smoothing, focal_gamma, bias (its penalty), relu
    (features >= 0), classes (every class counts once in the norm of features), norms (root mean
    squares of features and rows, instead of penalties).
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
        """Return the inputs of the last map."""
        for part in reversed(maps[1:]):
            H = part @ H
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

    value, solution = descended(function, np.random.default_rng(seed).normal(size=ends[-1]))
    maps, H, bias = split(solution)
    means = read(maps, H) @ torch.nn.functional.one_hot(labels, C).double() / every
    return Ended(value, maps[0] @ maps[0].T, means.T @ means, bias[:, 0])


def _loss(Z: Tensor, labels: Tensor, C: int, kind: dict[str, Any]) -> Tensor:
    n = len(labels)
    if kind.get("loss") == "mse":
        return (Z - torch.eye(C).double()[:, labels]).square().sum() / (2 * n)
    log_p = torch.log_softmax(Z, 0)
    label_log_p = log_p.gather(0, labels[None])[0]
    if focal_gamma := kind.get("focal_gamma"):
        return ((1 - label_log_p.exp()) ** focal_gamma * -label_log_p).mean()
    smoothing = kind.get("smoothing", 0.0)
    return -((1 - smoothing) * label_log_p + smoothing * log_p.mean(0)).mean()


def on_unit_spheres(C: int, temperature: float, *, seed: int) -> float:
    """Minimise the cross-entropy for rows and features of norm 1 and a temperature."""

    def function(v: Tensor) -> Tensor:
        W, H = torch.nn.functional.normalize(v.view(2, C, C), dim=2)
        return -torch.log_softmax(W @ H.T / temperature, 0).diagonal().mean()

    return descended(function, np.random.default_rng(seed).normal(size=2 * C * C))[0]


def least_norm_with_margins(counts: list[int], *, biased: bool, seed: int) -> Ended:
    """Minimise (|W|^2 + |H|^2) / 2 over all samples, with all margins at least 1."""
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

    result = minimize(
        value,
        np.random.default_rng(seed).normal(size=2 * C * C + C),
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": margins},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    first, second, bias = torch.tensor(result.x).tensor_split([C * C, 2 * C * C])
    W, H = first.view(C, C), second.view(C, C)
    return Ended(float(result.fun), W @ W.T, H.T @ H, bias)


def widest_code(C: int, d: int, *, seed: int) -> Tensor:
    """Return (C, d) unit rows that maximise the smallest margin, with decreasing smoothing."""
    x = np.random.default_rng(seed).normal(size=2 * C * d)
    off = ~torch.eye(C, dtype=torch.bool)
    for sharp in (5.0, 20.0, 100.0, 500.0, 5e3, 5e4):

        def function(v: Tensor, sharp: float = sharp) -> Tensor:
            W, H = torch.nn.functional.normalize(v.view(2, C, d), dim=2)
            Z = H @ W.T
            return (sharp * (Z - Z.diagonal()[:, None])[off]).logsumexp(0) / sharp

        x = descended(function, x)[1].numpy()
    return torch.nn.functional.normalize(torch.tensor(x).view(2, C, d)[0])
