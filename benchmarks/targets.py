"""Measure the gaps and times of targets, and attack every bound for unequal class counts.

Usage: python benchmarks/targets.py [--vectors 200] [--networks 20000] [--seed 0] [--large]
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

import nclab
from nclab.errors import DataError
from nclab.theory.certificates.count_aware import (
    bounds_from_probabilities,
    count_aware_bounds,
    residual_bound,
)
from nclab.theory.targets.program import critical_weight
from nclab.theory.targets.program_solver import solve
from nclab.theory.targets.search import program_of_classes

FloatArray = NDArray[np.float64]
ROUNDING = 1e-9
EACH = 50
"""Number of networks that share one setting."""


@dataclass
class Slacks:
    """Smallest slack of every bound, relative to the bounded quantity, and the number of checks."""

    smallest: dict[str, float] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    networks: int = 0

    def add(self, name: str, slack: float) -> None:
        """Record one check; a negative slack beyond rounding is a violation."""
        self.smallest[name] = min(self.smallest.get(name, math.inf), slack)
        self.checks[name] = self.checks.get(name, 0) + 1

    @property
    def violations(self) -> dict[str, float]:
        """Count the bounds that a network violated by more than rounding."""
        return {name: slack for name, slack in self.smallest.items() if slack < -ROUNDING}


@dataclass(frozen=True)
class Network:
    """Classifier (C, d), bias (C,), features (n, d)."""

    weight: FloatArray
    bias: FloatArray
    features: FloatArray


def random_counts(rng: np.random.Generator, largest: int = 50) -> FloatArray:
    """Draw counts of 2 to `largest` classes with ratios up to 1,000, some of them equal."""
    C = int(rng.integers(2, largest + 1))
    counts = np.round(10 ** rng.uniform(0, rng.uniform(0.1, 3.0), C))
    return rng.choice(counts, C) if rng.random() < 0.3 else counts


def gaps(vectors: int, seed: int) -> Iterator[tuple[int, float, float]]:
    """Return the number of classes, relative gap and CPU seconds of random targets."""
    rng = np.random.default_rng(seed)
    for _ in range(vectors):
        counts = random_counts(rng)
        n = counts.sum()
        P = np.eye(len(counts)) - 1 / len(counts)
        most = np.linalg.norm(P * np.sqrt(counts), 2) / n
        t = most * 10 ** rng.uniform(-4, -0.05)
        bias = (None, 0.0, float(10 ** rng.uniform(-2, 1)))[int(rng.integers(3))]
        started = time.process_time()
        found = nclab.target(counts=counts, weight_decay=(t, t), bias=bias)
        yield len(counts), found.relative_gap or 0.0, time.process_time() - started


def attack(networks: int, seed: int) -> Slacks:
    """Attack with random and adversarial networks: any counts, bias, smoothed or noisy labels."""
    rng, slacks = np.random.default_rng(seed), Slacks()
    while slacks.networks < networks:
        _attack_setting(rng, slacks)
    return slacks


def _attack_setting(rng: np.random.Generator, slacks: Slacks) -> None:
    C = int(rng.integers(2, 7))
    counts = rng.integers(1, int(rng.choice([3, 8, 40])) + 1, C)
    labels = np.repeat(np.arange(C), counts)
    n, d = len(labels), int(rng.integers(1, C + 3))
    smoothing = float(rng.choice([0.0, 0.0, rng.uniform(0.01, 0.5)]))
    T = (1 - smoothing) * np.eye(C) + smoothing / C
    if rng.random() < 0.2:  # label noise: soft targets of a class
        T = 0.7 * T + 0.3 * rng.dirichlet(np.ones(C), C).T
    biased = bool(rng.random() < 0.4)
    soft = None if np.array_equal(T, np.eye(C)) else T
    setting = nclab.target(counts=counts, weight_decay=0.01, targets=soft).setting
    setting = replace(setting, bias=0.0 if biased else None)
    base = program_of_classes(setting, 1.0)
    most = critical_weight(base)
    path = []
    for share in (0.5, 0.1, 0.02, 0.003):
        program = replace(base, weight=most * share)
        optimum = solve(program, gap=1e-6)
        path.append((program.weight, optimum.lower, optimum.point.common.numpy()))
    targets = T[:, labels]
    seen: list[tuple[FloatArray, float]] = []
    others: list[tuple[FloatArray, float]] = []
    for _ in range(EACH):
        net = _network(rng, labels, C, d, [M for _, _, M in path], biased)
        slacks.networks += 1
        logits = net.weight @ net.features.T + net.bias[:, None]
        shifted = logits - logits.max(0)
        log_p = shifted - np.log(np.exp(shifted).sum(0))
        loss = float(-(targets * log_p).sum(0).mean())
        q = np.exp(log_p)
        norms = float(np.linalg.norm(net.weight) * np.linalg.norm(net.features))
        if norms < 1e-12:
            continue
        means = np.stack([net.features[labels == c].mean(0) for c in range(C)])
        within = float(((net.features - means[labels]) ** 2).sum() / (net.features**2).sum())
        rho = 0.0
        for t, dual, _ in path:
            slacks.add("loss, by the dual", (loss - (dual - t * norms)) / max(loss, 1e-9))
            penalty = t / 2 * float((net.weight**2).sum() + (net.features**2).sum())
            slacks.add("objective, by the dual", (loss + penalty - dual) / dual)
            rho = max(rho, (dual - loss) / (t * norms))
        slacks.add("share within classes", 1 - rho**2 - within if rho < 1 else 1e-12 - (rho - 1))
        if slacks.networks % 40 == 0:
            _attack_certificate(slacks, counts, soft, biased, net, loss, within)
        if soft is None:
            rests = np.stack([(q - targets)[:, labels == c].sum(1) for c in range(C)])
            size = norms / math.sqrt(C * n)
            centred = float(np.linalg.norm(net.bias - net.bias.mean()))
            own = bounds_from_probabilities(counts, rests, size, loss, bias_norm=centred)
            slacks.add("loss, by own probabilities", own.excess_loss / max(loss, 1e-9))
            assert own.within_upper.value is not None
            slacks.add("share within, by own probabilities", own.within_upper.value - within)
            others.append((rests, centred))
            for one, allowed in others[-6:]:
                if allowed >= centred:  # other networks with these norms
                    found = bounds_from_probabilities(
                        counts, one, size, math.inf, bias_norm=allowed
                    )
                    slack = (loss - found.optimal_loss) / max(loss, 1e-9)
                    slacks.add("loss, by another's probabilities", slack)
        if not biased:
            moment = (q - targets) @ (q - targets).T
            seen.append((moment, float(-(q * log_p).sum(0).mean())))
            for S, H in seen[-6:]:
                bound = residual_bound(S, H, n, norms)
                slacks.add("loss, by residuals", (loss - bound) / max(loss, 1e-9))


def _attack_certificate(
    slacks: Slacks,
    counts: NDArray[np.int64],
    soft: FloatArray | None,
    biased: bool,
    net: Network,
    loss: float,
    within: float,
) -> None:
    """Attack the public function `certify` as a user calls it."""
    alpha = math.sqrt(float((net.features**2).sum(1).mean()))
    beta = float(np.linalg.norm(net.weight)) / math.sqrt(len(counts))
    try:
        found = count_aware_bounds(counts, alpha * beta, loss, bias=biased, targets=soft)
    except DataError as error:
        slacks.add(f"refused: {error}", -1.0)
        return
    slacks.add("count_aware_bounds, loss", (loss - found.optimal_loss) / max(loss, 1e-9))
    assert found.within_upper.value is not None
    slacks.add("count_aware_bounds, within", found.within_upper.value - within)


def _network(
    rng: np.random.Generator,
    labels: NDArray[np.int64],
    C: int,
    d: int,
    logits: list[FloatArray],
    biased: bool,
) -> Network:
    """Return noise, an optimum with noise, or an optimum with one class or sample moved."""
    bias = rng.normal(size=C) * 10 ** rng.uniform(-2, 0.5) if biased else np.zeros(C)
    kind = rng.random()
    if kind < 0.25:
        W, H = rng.normal(size=(C, d)), rng.normal(size=(len(labels), d))
        return Network(W * 10 ** rng.uniform(-1, 1), bias, H * 10 ** rng.uniform(-1, 1))
    M = logits[int(rng.integers(len(logits)))]
    roots = np.sqrt(np.bincount(labels, minlength=C))
    U, s, V = np.linalg.svd(M * roots)
    W, means = U * np.sqrt(s), (V.T * np.sqrt(s)) / roots[:, None]
    H = means[labels]
    if kind < 0.75:
        size = 10 ** rng.uniform(-6, 0)
        W, H = W + size * rng.normal(size=W.shape), H + size * rng.normal(size=H.shape)
    elif kind < 0.9:
        H = H.copy()
        H[int(rng.integers(len(H)))] *= rng.normal()
    else:
        H = H * (labels != int(rng.integers(C)))[:, None]
    size = 10 ** rng.uniform(-0.3, 0.3)
    return Network(W * size, bias * rng.choice([0, 1e-3, 1]), H * size)


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=200)
    parser.add_argument("--networks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="a thousand classes of 1280 to 5")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.vectors:
        rows = list(gaps(asked.vectors, asked.seed))
        worst = max(rows, key=lambda row: row[1])
        slowest = max(row[2] for row in rows)
        print(f"{len(rows)} count vectors: largest gap {worst[1]:.1e} (C = {worst[0]}),", end=" ")
        print(f"at most {slowest:.2f} s, mean {sum(row[2] for row in rows) / len(rows):.2f} s")
    if asked.large:
        counts = 1280 * (5 / 1280) ** (np.arange(1000) / 999)
        for kind, many in (("distinct", counts), ("whole", np.round(counts))):
            for decay in (5e-4, 2.5e-3):
                started = time.process_time()
                found = nclab.target(counts=many, weight_decay=decay)
                seconds = time.process_time() - started
                gap = found.relative_gap
                print(f"1000 classes, {kind} counts, λ = {decay}: gap {gap:.1e}, {seconds:.1f} s")
    if asked.networks:
        slacks = attack(asked.networks, asked.seed)
        print(f"{slacks.networks} networks")
        for name, slack in sorted(slacks.smallest.items()):
            print(f"  {name}: {slacks.checks[name]} checks, smallest slack {slack:.3e}")
        print("violations:", slacks.violations or "none")


if __name__ == "__main__":
    main()
