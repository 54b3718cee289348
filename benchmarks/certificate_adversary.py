"""Attack every certificate with random and optimised networks and report the smallest slack.

Usage: python benchmarks/certificate_adversary.py [--configurations 20000] [--seed 0]
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import torch

from nclab.errors import DataError
from nclab.metrics.cross_entropy import optimal_loss
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.certification import certify
from nclab.theory.layer_peeled import FloatArray

ROUNDING = 1e-9
STEPS = 60
SNAPSHOTS = (5, 15, 30, 45, 60)


@dataclass(frozen=True)
class Network:
    """Weights (C, d), features (C, N, d) and bias (C,)."""

    weight: FloatArray
    features: FloatArray
    bias: FloatArray
    delta: float | None = None
    """Fraction of the pairs of classes to attack; drawn at random if None."""


@dataclass
class Slacks:
    """The smallest slack of every certificate and how often it was valid."""

    smallest: dict[str, float] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    networks: int = 0
    nearest: float = 1.0
    """Smallest slack of the bound on a fraction of the pairs, over the guaranteed deviation."""

    def add(self, name: str, slack: float) -> None:
        """Record one check; a negative slack beyond rounding is a violation."""
        self.smallest[name] = min(self.smallest.get(name, math.inf), slack)
        self.checks[name] = self.checks.get(name, 0) + 1

    @property
    def violations(self) -> dict[str, float]:
        """Count the bounds that a network violated by more than rounding."""
        return {name: slack for name, slack in self.smallest.items() if slack < -ROUNDING}


def random_networks(rng: np.random.Generator, count: int) -> Iterator[Network]:
    """Draw a simplex ETF or noise; add noise, heavy tails, lost classes and zero features."""
    for _ in range(count):
        classes, samples = int(rng.integers(2, 13)), int(rng.integers(1, 9))
        dim = max(1, classes - 1 + int(rng.integers(0, 4)))
        product = math.exp(rng.uniform(math.log(0.5), math.log(12.0)))
        rows = _simplex(rng, classes, dim)
        if rng.random() < 0.3:
            rows = _merged(rng, rows)
        size = 10 ** rng.uniform(-6, 0.3)
        weight = rows + size * rng.normal(size=rows.shape)
        features = np.repeat(rows[:, None], samples, axis=1)
        features = features + size * rng.normal(size=features.shape)
        if rng.random() < 0.4:
            features *= np.exp(10 ** rng.uniform(-4, 0) * rng.normal(size=(classes, samples, 1)))
        if rng.random() < 0.3:
            features[0, 0] *= rng.choice([1e-6, -1e-6, -0.1, 0.3])
        if rng.random() < 0.2:
            features[0] *= rng.uniform(0.2, 2.0)
            weight[0] *= rng.uniform(0.2, 2.0)
        bias = np.zeros(classes)
        if rng.random() < 0.4:
            bias = 10 ** rng.uniform(-4, 0) * rng.normal(size=classes)
        yield _scaled(weight, features, bias, product, rng)


def optimised_networks(rng: np.random.Generator, count: int) -> Iterator[Network]:
    """Minimise a cosine plus a multiple of the loss at fixed norms; yield all iterates."""
    made = 0
    while made < count:
        classes, samples = int(rng.integers(2, 13)), int(rng.integers(1, 9))
        batch, dim = 20, classes + 1
        product = math.exp(rng.uniform(math.log(0.5), math.log(12.0)))
        rows = np.stack([_simplex(rng, classes, dim) for _ in range(batch)])
        size = 10 ** rng.uniform(-4, -0.3)
        start_w = rows + size * rng.normal(size=rows.shape)
        start_h = np.repeat(rows[:, :, None], samples, axis=2)
        start_h = start_h + size * rng.normal(size=start_h.shape)
        weight = torch.tensor(start_w, requires_grad=True)
        features = torch.tensor(start_h, requires_grad=True)
        with_bias = rng.random() < 0.3
        bias = torch.zeros(batch, classes, dtype=torch.double, requires_grad=True)
        reward = torch.tensor(10 ** rng.uniform(-3, 3, size=batch))
        aim, pairs = int(rng.integers(0, 5)), _graph(rng, classes)
        optimiser = torch.optim.Adam(
            [weight, features, bias] if with_bias else [weight, features],
            lr=10 ** rng.uniform(-2.5, -1),
        )
        for step in range(1, STEPS + 1):
            w, h = _unit(weight, features, product)
            optimiser.zero_grad()
            (reward * _losses(w, h, bias).log() + _aims(w, h, pairs)[aim]).sum().backward()
            optimiser.step()
            if step in SNAPSHOTS:
                w, h = _unit(weight.detach(), features.detach(), product)
                for i in range(batch):
                    offset = bias.detach()[i].numpy().copy()
                    yield Network(w[i].numpy(), h[i].numpy(), offset)
                made += batch


def pair_networks(rng: np.random.Generator, count: int) -> Iterator[Network]:
    """Maximise the smallest cosine over k pairs, relative to the square root of the excess loss.

    The start moves the features along the graph of the pairs and the weights a little, because the
    worst networks with a small excess loss have this form.
    """
    made = 0
    while made < count:
        classes, samples = int(rng.integers(2, 13)), int(rng.integers(1, 6))
        batch, dim = 10, classes
        product = math.exp(rng.uniform(math.log(1.0), math.log(10.0)))
        pairs = _graph(rng, classes)
        edges = np.zeros((classes, classes))
        edges[pairs[:, 0], pairs[:, 1]] = edges[pairs[:, 1], pairs[:, 0]] = 1.0
        rows = np.stack([_simplex(rng, classes, dim) for _ in range(batch)])
        size = 10 ** rng.uniform(-3, -0.3, size=(batch, 1, 1))
        stretch = classes * product / (classes - 1)
        ratio = (classes - stretch) / (classes + stretch)
        start_w = rows + size * ratio * edges @ rows
        start_h = np.repeat((rows + size * edges @ rows)[:, :, None], samples, axis=2)
        noise = 10 ** rng.uniform(-3, 0) * size
        start_w = start_w + noise * rng.normal(size=start_w.shape) / classes
        start_h = start_h + noise[..., None] * rng.normal(size=start_h.shape) / classes
        weight = torch.tensor(start_w, requires_grad=True)
        features = torch.tensor(start_h, requires_grad=True)
        bias = torch.zeros(batch, classes, dtype=torch.double)
        if rng.random() < 0.15:
            bias = torch.tensor(10 ** rng.uniform(-6, -2) * rng.normal(size=(batch, classes)))
        best = optimal_loss(classes, product)
        optimiser = torch.optim.Adam([weight, features], lr=10 ** rng.uniform(-4, -2))
        share = (len(pairs) - 0.5) / (classes * (classes - 1) / 2)
        for step in range(41):
            w, h = _unit(weight, features, product)
            if step in (0, 10, 20, 40):
                for i in range(batch):
                    at, of, plus = (part[i].detach().numpy().copy() for part in (w, h, bias))
                    yield Network(at, of, plus, share)
                made += batch
            unit = torch.nn.functional.normalize(h, dim=-1).mean(2)
            least = (unit[:, pairs[:, 0]] * unit[:, pairs[:, 1]]).sum(-1).min(1).values
            moved = (least + 1 / (classes - 1)).clamp(min=1e-6)
            excess = (_losses(w, h, bias) - best).clamp(min=1e-12 * best)
            optimiser.zero_grad()
            (excess.log() / 2 - moved.log()).sum().backward()
            optimiser.step()


def attack(network: Network, rng: np.random.Generator, slacks: Slacks) -> None:
    """Certify a network from its norms and losses and compare with its geometry."""
    w, h = network.weight, network.features
    classes = len(w)
    centred = w - w.mean(0)
    offset = network.bias - network.bias.mean()
    losses = _class_losses(network)
    alphas = np.sqrt((h**2).sum(-1).mean(1))
    betas = np.linalg.norm(centred, axis=1)
    alpha, beta = (
        math.sqrt(float((alphas**2).mean())),
        float(np.linalg.norm(w)) / math.sqrt(classes),
    )
    loss = float(losses.mean())
    delta = network.delta
    if delta is None and rng.random() < 0.7:
        delta = float(rng.uniform(0.01, 0.9))
    certificate = certify(
        classes,
        alpha,
        beta,
        loss,
        delta,
        class_losses=losses,
        class_alphas=alphas,
        class_betas=betas,
        bias_norm=float(np.linalg.norm(offset)),
    )
    slacks.networks += 1
    means = h.mean(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        alignment = (centred * means).sum(1) / (betas * np.linalg.norm(means, axis=1))
        unit = (h / np.linalg.norm(h, axis=2, keepdims=True)).mean(1)
    if not (np.isfinite(alignment).all() and np.isfinite(unit).all()):
        return
    _compare(certificate, alignment, unit, means, slacks)
    ratio = alpha / beta
    apart = math.sqrt(ratio) * centred[:, None] - h / math.sqrt(ratio)
    deviation = float((apart**2).sum(-1).mean(1).sum())
    limit = 2 * (certificate.deviation_upper.value or 0.0)
    slacks.add("deviation_upper", (limit - deviation) / max(1.0, limit))


def _compare(
    certificate: Certificate,
    alignment: FloatArray,
    unit: FloatArray,
    means: FloatArray,
    slacks: Slacks,
) -> None:
    classes = len(unit)
    cosines = unit @ unit.T
    intra = np.diag(cosines)
    pairs = ~np.eye(classes, dtype=bool)
    kept = math.ceil(classes * certificate.fraction - 1e-9)
    for name, seen in (
        ("alignment_lower", alignment.min()),
        ("intra_lower", intra.min()),
        ("fraction_alignment_lower", np.sort(alignment)[classes - kept]),
        ("fraction_intra_lower", np.sort(intra)[classes - kept]),
    ):
        bound = getattr(certificate, name)
        if bound.valid:
            slacks.add(name, float(seen) - bound.value)
    if certificate.inter_upper.valid and certificate.inter_upper.value is not None:
        slacks.add("inter_upper", certificate.inter_upper.value - float(cosines[pairs].max()))
    few = certificate.fraction_inter_upper
    if few.valid and few.value is not None:
        ordered = np.sort(cosines[np.triu_indices(classes, 1)])[::-1]
        excluded = math.floor((1 - certificate.fraction) * len(ordered) + 1e-9)
        slack = few.value - float(ordered[excluded])
        slacks.add("fraction_inter_upper", slack)
        gap = few.value + 1 / (classes - 1)
        slacks.nearest = min(slacks.nearest, slack / gap if slack >= 0 and gap > 1e-6 else 1.0)
        if not certificate.inter_upper.valid:
            slacks.add("fraction_inter_upper alone", slack)
    if certificate.inter_proof is not None:
        directions = means / np.linalg.norm(means, axis=1, keepdims=True)
        between = float((directions @ directions.T)[pairs].max())
        slacks.add("mean_cosine", certificate.inter_proof.cosine - between)
    assert certificate.class_intra_lower is not None
    assert certificate.class_alignment_lower is not None
    slacks.add("class_intra_lower", float((intra - certificate.class_intra_lower).min()))
    slacks.add("class_alignment", float((alignment - certificate.class_alignment_lower).min()))
    thesis = certificate.thesis_intra_lower
    most = math.ceil((1 - 2 * certificate.thesis_delta) * classes - 1e-9)
    if certificate.fraction == 1:
        most = classes
    if thesis.valid and thesis.value is not None and most > 0:
        slacks.add("thesis_intra_lower", float(np.sort(intra)[classes - most]) - thesis.value)


def run(count: int, seed: int) -> Slacks:
    """Attack with random networks, optimised networks and networks that move pairs together."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    slacks = Slacks()
    for source, share in ((random_networks, 1), (optimised_networks, 1), (pair_networks, 2)):
        for network in source(rng, count * share // 4):
            attack(network, rng, slacks)
    return slacks


def _simplex(rng: np.random.Generator, classes: int, dim: int) -> FloatArray:
    frame = np.eye(classes) - 1 / classes
    basis = np.linalg.svd(frame)[2][: classes - 1]  # (C-1, C)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0][: classes - 1]
    return np.asarray(frame @ basis.T @ turn)


def _scaled(
    weight: FloatArray,
    features: FloatArray,
    bias: FloatArray,
    product: float,
    rng: np.random.Generator,
) -> Network:
    balance = math.exp(rng.normal())
    alpha, beta = math.sqrt(product) * balance, math.sqrt(product) / balance
    if rng.random() < 0.3:  # the balance at the regularised optimum
        alpha, beta = (
            math.sqrt(product) * len(weight) ** 0.25,
            math.sqrt(product) / len(weight) ** 0.25,
        )
    weight = weight * beta * math.sqrt(len(weight)) / np.linalg.norm(weight)
    features = features * alpha / math.sqrt(float((features**2).sum(-1).mean()))
    return Network(weight, features, bias)


def _unit(
    weight: torch.Tensor, features: torch.Tensor, product: float
) -> tuple[torch.Tensor, torch.Tensor]:
    classes = weight.shape[1]
    alpha, beta = math.sqrt(product) * classes**0.25, math.sqrt(product) / classes**0.25
    rows = torch.linalg.matrix_norm(weight)[:, None, None]
    norms = features.square().sum(-1).mean((1, 2)).sqrt()[:, None, None, None]
    return weight * beta * math.sqrt(classes) / rows, features * alpha / norms


def _losses(w: torch.Tensor, h: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    logits = torch.einsum("bkd,bcnd->bcnk", w, h) + bias[:, None, None, :]
    own = torch.diagonal(logits, dim1=1, dim2=3).transpose(1, 2)  # (batch, C, N)
    others = 1 - torch.eye(w.shape[1], dtype=w.dtype)[None, :, None, :]
    wrong = ((logits - own[..., None]).clamp(max=700).exp() * others).sum(-1)
    return wrong.log1p().mean((1, 2))


def _graph(rng: np.random.Generator, classes: int) -> torch.Tensor:
    """Draw pairs of classes: a matching, a star, a clique or a random graph."""
    pairs = np.array(list(combinations(range(classes), 2)))
    kind = int(rng.integers(0, 4))
    order = rng.permutation(classes)
    if kind == 0:
        chosen = order[: classes - classes % 2].reshape(-1, 2)
    elif kind == 1:
        chosen = np.stack([np.full(classes - 1, order[0]), order[1:]], 1)
    elif kind == 2:
        inside = np.isin(pairs, order[: int(rng.integers(2, classes + 1))]).all(1)
        chosen = pairs[inside]
    else:
        chosen = rng.permutation(pairs)
    return torch.tensor(chosen[: int(rng.integers(1, len(chosen) + 1))])


def _merged(rng: np.random.Generator, rows: FloatArray) -> FloatArray:
    """Move classes towards each other, pair by pair, partly or completely."""
    moved = rows.copy()
    for i, j in _graph(rng, len(rows)).tolist():
        step = rng.uniform(0, 0.5) if rng.random() < 0.5 else 10 ** rng.uniform(-4, -1)
        moved[i] += step * (rows[j] - rows[i])
        moved[j] += step * (rows[i] - rows[j])
    return moved


def _aims(w: torch.Tensor, h: torch.Tensor, pairs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    unit = torch.nn.functional.normalize(h, dim=-1).mean(2)
    cosines = (unit[:, pairs[:, 0]] * unit[:, pairs[:, 1]]).sum(-1)  # (batch, pairs)
    every = (unit @ unit.transpose(1, 2)).flatten(1)
    last = torch.topk(every, len(unit[0]) + 2 * len(pairs), dim=1).values[:, -1]
    row = w[:, 0] - w.mean(1)
    alignment = torch.nn.functional.cosine_similarity(row, h[:, 0].mean(1), dim=-1)
    return (
        unit[:, 0].square().sum(-1),
        alignment,
        -(unit[:, 0] * unit[:, 1]).sum(-1),
        -(cosines.mean(1) + cosines.min(1).values),
        -last,
    )


def _class_losses(network: Network) -> FloatArray:
    logits = np.einsum("kd,cnd->cnk", network.weight, network.features) + network.bias
    classes = len(network.weight)
    own = logits[np.arange(classes), :, np.arange(classes)]
    with np.errstate(over="ignore"):
        wrong = np.exp(np.minimum(logits - own[..., None], 700.0))
    wrong[np.arange(classes), :, np.arange(classes)] = 0.0
    return np.asarray(np.log1p(wrong.sum(-1)).mean(1))


def main() -> None:
    """Run the attack and print one line per certificate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    slacks = run(options.configurations, options.seed)
    print(f"{slacks.networks} networks in {time.perf_counter() - begin:.0f} s")
    for name, slack in sorted(slacks.smallest.items()):
        print(f"{name:28s} checks {slacks.checks[name]:7d}  smallest slack {slack:+.3e}")
    print(f"a fraction of the pairs came within {slacks.nearest:.2%} of its guaranteed deviation")
    if slacks.violations:
        raise DataError(f"Violated beyond rounding: {slacks.violations}.")


if __name__ == "__main__":
    main()
