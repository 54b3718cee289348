"""Deep heads under squared error: singular values that are zero cost nothing, and a penalised
bias is attacked by descent on all factors."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

import nclab

Array = NDArray[np.float64]


def least(s: float, n: float, decay: float, factors: int) -> float:
    """Return min over sigma >= 0 of (s - sigma)^2 / 2n + F/2 decay sigma^(2/F), by a scan."""

    def cost(x: float) -> float:
        return float((s - x) ** 2 / (2 * n) + factors / 2 * decay * x ** (2 / factors))

    grid = np.linspace(0, s, 2001)
    k = int(np.argmin([cost(x) for x in grid]))
    bounds = (grid[max(k - 1, 0)], grid[min(k + 1, 2000)])
    inside = minimize_scalar(cost, bounds=bounds, options={"xatol": 1e-14})
    return min(cost(0.0), float(inside.fun))


@pytest.mark.parametrize("depth", [2, 5, 15])
@pytest.mark.parametrize("bias", [None, 0.0])
def test_singular_values_of_rounding_cost_nothing(depth: int, bias: float | None) -> None:
    for counts in ([4, 3, 2, 1], [5, 5, 5], [40, 7, 7, 1, 1, 1]):
        nu = np.array(counts, float)
        n, C = nu.sum(), len(nu)
        squares = np.linalg.eigvalsh(np.diag(nu) - (bias is not None) * np.outer(nu, nu) / n)
        decay = 0.2 * math.sqrt(nu.min()) / n / (depth + 1)
        singular = np.sqrt(squares[1 if bias is not None else 0 :])
        expected = sum(least(s, n, decay, depth + 1) for s in singular)
        optimum = nclab.target(
            counts=counts, weight_decay=(decay, decay), bias=bias, loss="mse", depth=depth
        )
        assert optimum.objective == pytest.approx(expected, rel=1e-11)
        assert optimum.lower_bound == pytest.approx(optimum.objective, rel=1e-14)
        rank = int(torch.linalg.matrix_rank(optimum.logits, rtol=1e-9))
        spectrum = torch.linalg.eigvalsh(optimum.classifier_gram)
        assert int((spectrum > 1e-9 * spectrum.max()).sum()) == rank < C + (bias is None)


def test_a_large_bias_penalty_is_nearly_no_bias() -> None:
    options: dict[str, Any] = {"counts": [4, 3, 2, 1], "weight_decay": (0.006, 0.008)}
    options |= {"loss": "mse", "depth": 2}
    none = nclab.target(**options)
    assert none.objective is not None
    penalised = nclab.target(**options, bias=1e4)
    assert penalised.objective is not None
    assert penalised.objective <= none.objective
    assert penalised.objective == pytest.approx(none.objective, rel=1e-4)


def objective(
    x: Array, counts: Array, decays: tuple[float, float], bias: float | None, depth: int, d: int
) -> tuple[float, Array]:
    """Return the objective of all factors and its gradient; features of a class coincide."""
    C, n = len(counts), counts.sum()
    sizes = [(C, d), *[(d, d)] * (depth - 1), (d, C), (C, 1)]
    ends = np.cumsum([a * b for a, b in sizes])[:-1]
    v = torch.tensor(x, requires_grad=True)
    *maps, H, b = (
        part.view(size) for part, size in zip(v.tensor_split(ends.tolist()), sizes, strict=True)
    )
    Z, nu = H, torch.tensor(counts)
    for part in reversed(maps):
        Z = part @ Z
    Z = Z if bias is None else Z + b
    value = ((Z - torch.eye(C).double()).square().sum(0) @ nu) / (2 * n)
    value = value + (bias or 0.0) / 2 * b.square().sum() + decays[1] / 2 * (H.square() @ nu).sum()
    value = value + sum(decays[0] / 2 * part.square().sum() for part in maps)
    (slope,) = torch.autograd.grad(value, v)
    return float(value.detach()), slope.numpy()


def start(rng: np.random.Generator, counts: Array, bias: float | None, depth: int, d: int) -> Array:
    """Return factors of the labels plus noise, of a random rank; their singular values are alike,
    because descent from random factors of many maps ends at zero."""
    C, F = len(counts), depth + 1
    roots = np.sqrt(counts)
    Y = np.diag(roots) * rng.uniform(0.5, 1.2)
    if bias is not None and rng.random() < 0.5:
        Y = Y - np.outer(Y @ roots, roots) / counts.sum() * rng.uniform(0, 1.2)
    Y = Y + rng.choice([0.0, 0.1, 0.5, 1.0]) * roots.mean() * rng.normal(size=(C, C)) / math.sqrt(C)
    U, s, V = np.linalg.svd(Y)
    s[int(rng.integers(1, min(C, d) + 1)) :] = 0.0
    s = (s * rng.permutation(rng.choice([0.0, 1.0, 1.0, 1.0], size=C)))[:d] ** (1 / F)
    turns = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(depth)]
    width = min(C, d)
    left = np.zeros((C, d))
    left[:, :width] = U[:, :width] * s[:width]
    right = np.zeros((d, C))
    right[:width] = s[:width, None] * V[:width] / roots
    middle = np.zeros((d, d))
    middle[:width, :width] = np.diag(s[:width])
    parts = [left @ turns[0]]
    parts += [turns[k].T @ middle @ turns[k + 1] for k in range(depth - 1)]
    parts += [turns[-1].T @ right, 0.1 * rng.normal(size=C) * (bias is not None)]
    return np.concatenate([part.ravel() for part in parts])


def attack(targets: int, starts: int, seed: int) -> dict[str, float]:
    """Return the smallest (descent - target)/target over random settings, by kind of bias."""
    rng = np.random.default_rng(seed)
    slacks: dict[str, float] = {}
    for _ in range(targets):
        C, depth = int(rng.integers(2, 7)), int(rng.integers(2, 16))
        counts = rng.integers(1, 12, size=C).astype(float)
        kind = str(rng.choice(["none", "free", "penalised"]))
        bias = {"none": None, "free": 0.0}.get(kind, float(10 ** rng.uniform(-3, 4)))
        d = int(rng.integers(1, C)) if rng.random() < 0.2 else C
        n, F = counts.sum(), depth + 1
        s = math.sqrt(rng.choice(counts))
        critical = s ** (2 - 2 / F) / (n * (F - 1)) * ((F - 2) / (F - 1)) ** (1 - 2 / F)
        size = critical * rng.choice([0.01, 0.1, 0.5, 0.9])
        decays = (float(size * math.exp(rng.normal())), float(size * math.exp(rng.normal())))
        optimum = nclab.target(
            counts=counts, weight_decay=decays, bias=bias, loss="mse", depth=depth, dim=d
        )
        assert optimum.objective is not None
        options = {"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 30}
        ends = [
            minimize(
                objective,
                start(rng, counts, bias, depth, d),
                (counts, decays, bias, depth, d),
                jac=True,
                method="L-BFGS-B",
                options=options,
            ).fun
            for _ in range(starts)
        ]
        slack = (min(ends) - optimum.objective) / optimum.objective
        slacks[kind] = min(slacks.get(kind, math.inf), slack)
        name = f"reached, {kind}"
        slacks[name] = slacks.get(name, 0) + (abs(slack) < 1e-6)
        if optimum.lower_bound is not None:
            below = (min(ends) - optimum.lower_bound) / optimum.objective
            slacks["lower bound"] = min(slacks.get("lower bound", math.inf), below)
    return slacks


@pytest.mark.parametrize("targets", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_no_descent_is_below_a_deep_target(targets: int) -> None:
    slacks = attack(targets, 6, seed=2)
    assert min(slacks.values()) > -1e-7, slacks


def lowest_logits(
    rng: np.random.Generator, counts: Array, decay: float, bias: float, factors: int
) -> float:
    """Return the lowest objective of a search over logits of every rank, the bias eliminated."""
    C, n, roots = len(counts), counts.sum(), torch.tensor(counts).sqrt()
    direction = roots / roots.norm()

    def loss(Z: torch.Tensor) -> torch.Tensor:
        residual = Z - roots.diag()
        square = residual.square().sum() - (residual @ direction).square().sum() / (1 + bias)
        return square / (2 * n)

    def value(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        squares = torch.linalg.svdvals(A @ B)[: A.shape[1]].square() + 1e-30
        return loss(A @ B) + factors / 2 * decay * (squares ** (1 / factors)).sum()

    def flat(x: Array, rank: int) -> tuple[float, Array]:
        v = torch.tensor(x, requires_grad=True)
        total = value(v[: C * rank].view(C, rank), v[C * rank :].view(rank, C))
        (slope,) = torch.autograd.grad(total, v)
        return float(total.detach()), np.nan_to_num(slope.numpy())

    best = float(loss(torch.zeros(C, C, dtype=torch.float64)))
    for rank in range(1, C + 1):
        for k in range(6):
            Y = np.diag(np.sqrt(counts)) - (k == 1) * np.outer(np.sqrt(counts), counts) / n
            Y += (k > 1) * rng.choice([0.3, 1.0]) * float(roots.mean()) * rng.normal(size=(C, C))
            U, s, V = np.linalg.svd(Y)
            chosen = np.arange(rank) if k < 2 else rng.permutation(C)[:rank]
            left, right = U[:, chosen] * np.sqrt(s[chosen]), V[chosen] * np.sqrt(s[chosen])[:, None]
            begin = np.concatenate([left.ravel(), right.ravel()])
            options = {"maxiter": 600, "ftol": 1e-15, "gtol": 1e-10}
            end = minimize(flat, begin, (rank,), jac=True, method="L-BFGS-B", options=options)
            best = min(best, float(end.fun))
    return best


@pytest.mark.parametrize("targets", [1, pytest.param(80, marks=pytest.mark.slow)])
def test_no_logits_of_any_rank_are_below_a_target_with_a_penalised_bias(targets: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(targets):
        C, factors = int(rng.integers(2, 5)), int(rng.integers(3, 17))
        counts = rng.integers(1, 12, size=C).astype(float)
        bias, s = float(10 ** rng.uniform(-3, 4)), math.sqrt(rng.choice(counts))
        power = ((factors - 2) / (factors - 1)) ** (1 - 2 / factors)
        critical = s ** (2 - 2 / factors) / (counts.sum() * (factors - 1)) * power
        decay = float(critical * rng.choice([0.01, 0.1, 0.3, 0.6, 0.9]))
        optimum = nclab.target(
            counts=counts, weight_decay=(decay, decay), bias=bias, loss="mse", depth=factors - 1
        )
        best = lowest_logits(rng, counts, decay, bias, factors)
        assert optimum.objective == pytest.approx(best, rel=1e-7)
        assert optimum.lower_bound is not None
        assert optimum.lower_bound <= best
