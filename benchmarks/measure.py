"""Compare a measurement with its physical limit and with the best peer.

One run, one thread, float32 features in memory. CPU time, best of several rounds in which all
programs alternate. nclab runs `measure_features` in three ways: every one-pass metric (`one pass`),
the default call without a classifier (`features`), and with a classifier (`whole`).

The limit is the same arithmetic without any checks, each part at its fastest: one read of the
features, one float64 scatter-add of them, one float32 d x d product and one float64 C x C product.
For the whole call, the limit also has two float32 N x d x C products and N x C exponentials in
float64; for the call without a classifier, one of these products and no exponentials.

At the default noise every sample is so close to its class mean that its distance alone decides the
nearest class mean, as with collapsed features. `--noise 1` leaves no such sample, so that the
second pass needs its product.

The peer restates what rhubarbwu/neural-collapse computes, in float32 and batches of 512: class
means, covariance, class variances and decisions in three passes, then NC1 (pinv), NC2 (simplex
error), NC3 (its self-dual form), NC4 (agreement) and CDNV. The peer computes no loss. Two things
are changed in its favour: it does not hash the means before every batch, and its pairs of classes
are tiled.

    python benchmarks/measure.py [--json] [--rounds 25] [--only 0] [--noise 0.1] [--no-peer]
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import nclab

SHAPES = ((50_000, 512, 10), (50_000, 512, 1000), (100_000, 768, 10_000))
ROUNDS = (25, 8, 2)
"""Rounds by shape: enough that each program meets a quiet moment of a shared machine."""
PEER_CLASSES = 1000
"""The largest number of classes for the peer; beyond it, the peer takes minutes."""
BATCH = 512
STATUS = Path("/proc/self/status")


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def peer(features: Tensor, labels: Tensor, weight: Tensor) -> tuple[float, ...]:
    """Compute NC1 to NC4 and CDNV as the peer does."""
    num_classes, dim = weight.shape
    starts = range(0, len(features), BATCH)
    batches = [(features[s : s + BATCH], labels[s : s + BATCH]) for s in starts]
    every = torch.arange(num_classes)

    def one_hot(y: Tensor) -> tuple[Tensor, Tensor]:
        mask = y[:, None] == every
        return mask, mask.sum(0, dtype=torch.int32)

    totals, counts = torch.zeros(num_classes, dim), torch.zeros(num_classes, dtype=torch.int32)
    for x, y in batches:
        mask, found = one_hot(y)
        counts += found
        totals += mask.T.float() @ x
    means = totals / counts[:, None]
    centred = means - means.mean(0)
    scatter, spreads = torch.zeros(dim, dim), torch.zeros(num_classes)
    for x, y in batches:
        one_hot(y)
        gaps = x - means[y]
        scatter += gaps.T @ gaps
    for x, y in batches:
        mask, _ = one_hot(y)
        spreads += (mask.T.float() @ (x - means[y]) ** 2).sum(1)
    agree = torch.zeros(num_classes, dtype=torch.int32)
    for x, y in batches:
        squares = x.norm(dim=1)[:, None] ** 2 + means.norm(dim=1) ** 2
        nearest = (squares - 2 * (x @ means.T)).argmin(1)
        alike = (x @ weight.T).argmax(1) == nearest
        one_hot(y)
        agree.scatter_add_(0, y, alike.int())
    within, between = scatter / len(features), centred.T @ centred / num_classes
    nc1 = torch.trace(torch.linalg.pinv(between) @ within) / num_classes
    return (
        float(nc1),
        _simplex_error(centred, centred),
        _simplex_error(centred, weight),
        int(agree.sum()) / len(features),
        _cdnv(means, spreads / counts),
    )


def _simplex_error(left: Tensor, right: Tensor) -> float:
    """Return the distance of the normalised AB^T from that of a simplex ETF."""
    size = len(left)
    ideal = (torch.eye(size) - 1 / size) / (size - 1) ** 0.5
    gram = right @ left.T
    return float(torch.linalg.matrix_norm(gram / torch.linalg.matrix_norm(gram) - ideal))


def _cdnv(means: Tensor, variances: Tensor, tile: int = 32) -> float:
    """Return the mean CDNV over all ordered pairs, from differences."""
    total, size = 0.0, len(means)
    for i in range(0, size, tile):
        for j in range(0, size, tile):
            gaps = means[i : i + tile, None] - means[j : j + tile]
            squares = (gaps * gaps).sum(-1)
            if i == j:
                squares.fill_diagonal_(torch.inf)
            pairs = (variances[i : i + tile, None] + variances[j : j + tile]) / 2
            total += float((pairs / squares).sum())
    return total / (size * (size - 1))


def limit_parts(features: Tensor, labels: Tensor, weight: Tensor) -> dict[str, float]:
    """Return the CPU time of each part of the limit."""
    (rows, dim), num_classes = features.shape, len(weight)
    block = features[:256].double()
    sums = torch.zeros(num_classes, dim, dtype=torch.float64)
    scatter32 = torch.zeros(dim, dim)
    means = torch.randn(num_classes, dim, dtype=torch.float64)
    gram = torch.empty(min(512, num_classes), num_classes, dtype=torch.float64)
    logits = torch.empty(BATCH, num_classes)
    gaps = torch.randn(BATCH, num_classes, dtype=torch.float64)
    powers = torch.empty_like(gaps)

    def scatter_add() -> None:
        for start in range(0, rows, 256):
            index = labels[start : start + 256, None].expand(-1, dim)
            sums.scatter_add_(0, index, block[: len(index)])

    def product() -> None:
        for start in range(0, rows, 2048):
            part = features[start : start + 2048]
            scatter32.addmm_(part.T, part)

    def pairs() -> None:
        for start in range(0, num_classes, 512):
            part = means[start : start + 512]
            torch.mm(part, means.T, out=gram[: len(part)])

    def classify() -> None:
        for start in range(0, rows, BATCH):
            part = features[start : start + BATCH]
            torch.mm(part, weight.T, out=logits[: len(part)])

    def exponentials() -> None:
        for start in range(0, rows, BATCH):
            torch.exp(gaps[: rows - start], out=powers[: rows - start])

    return {
        "read": cpu_seconds(features.sum),
        "scatter_add": cpu_seconds(scatter_add),
        "d_by_d": cpu_seconds(product),
        "c_by_c": cpu_seconds(pairs),
        "n_by_c": cpu_seconds(classify),
        "exponentials": cpu_seconds(exponentials),
    }


def resident_mb(field: str) -> float:
    """Return VmRSS or VmHWM of this process in MB, if the system reports them."""
    if not STATUS.exists():
        return float("nan")
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    """Reset the kernel's record of the peak memory."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def run(
    shape: tuple[int, int, int], rounds: int, *, noise: float, beside_peer: bool
) -> dict[str, object]:
    """Alternate between the programs for one shape and keep the best time of each."""
    rows, dim, num_classes = shape
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % num_classes
    labels = labels[torch.randperm(rows, generator=generator)]
    features = torch.randn(num_classes, dim, generator=generator)[labels]
    features.add_(torch.randn(rows, dim, generator=generator), alpha=noise)
    weight = torch.randn(num_classes, dim, generator=generator) / dim**0.5
    sides: dict[str, Callable[[], object]] = {
        "one_pass": lambda: nclab.measure_features(features, labels, second_pass=False),
        "features": lambda: nclab.measure_features(features, labels),
        "whole": lambda: nclab.measure_features(features, labels, weight),
    }
    if beside_peer and num_classes <= PEER_CLASSES:
        sides["peer"] = lambda: peer(features, labels, weight)
    few = min(rows, 20 * num_classes)
    nclab.measure_features(features[:few], labels[:few] % 2, weight[:2])  # warm up
    forget_peak()
    before = resident_mb("VmRSS")
    best = {"whole": cpu_seconds(sides["whole"])}
    peak = resident_mb("VmHWM") - before
    parts: dict[str, float] = {}
    for _ in range(rounds):
        for name, work in sides.items():
            best[name] = min(best.get(name, torch.inf), cpu_seconds(work))
        for name, seconds in limit_parts(features, labels, weight).items():
            parts[name] = min(parts.get(name, torch.inf), seconds)
    bare = sum(parts[name] for name in ("read", "scatter_add", "d_by_d", "c_by_c"))
    limits = {
        "one_pass": bare,
        "features": bare + parts["n_by_c"],
        "whole": bare + 2 * parts["n_by_c"] + parts["exponentials"],
    }
    return {
        "N": rows,
        "d": dim,
        "C": num_classes,
        "noise": noise,
        "ours_cpu_s": {name: round(best[name], 4) for name in limits},
        "limit_cpu_s": {name: round(seconds, 4) for name, seconds in limits.items()},
        "ratio": {name: round(best[name] / limits[name], 3) for name in limits},
        "peer_cpu_s": round(best["peer"], 4) if "peer" in best else None,
        "whole_over_peer": round(best["whole"] / best["peer"], 3) if "peer" in best else None,
        "peak_extra_mb": round(peak, 1),
        "limit_parts_s": {name: round(seconds, 4) for name, seconds in parts.items()},
    }


def show(result: dict[str, dict[str, float]]) -> None:
    """Print one shape as a few rows of a table."""
    size = " ".join(f"{result[name]:>7}" for name in ("N", "d", "C", "noise"))
    for name, seconds in result["ours_cpu_s"].items():
        beside = ""
        if name == "whole" and result["peer_cpu_s"] is not None:
            beside = f" {result['peer_cpu_s']:>8.3f} {result['whole_over_peer']:>6.2f}"
        limit, ratio = result["limit_cpu_s"][name], result["ratio"][name]
        print(f"{size} {name:>9} {seconds:>8.3f} {limit:>8.3f} {ratio:>6.2f}{beside}")


def main() -> None:
    """Run each shape in its own process, so that its peak memory can be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--rounds", type=int, help="rounds per shape, best is kept")
    parser.add_argument("--only", type=int, help="index of a single shape, in this process")
    parser.add_argument("--noise", type=float, default=0.1, help="of features, beside their means")
    parser.add_argument("--no-peer", action="store_true", help="leave out the peer")
    options = parser.parse_args()
    if options.only is not None:
        rounds, peer_too = options.rounds or ROUNDS[options.only], not options.no_peer
        shape = SHAPES[options.only]
        print(json.dumps(run(shape, rounds, noise=options.noise, beside_peer=peer_too)))
        return
    results = []
    if not options.json:
        head = f"{'N':>7} {'d':>7} {'C':>7} {'noise':>7} {'':>9}"
        print(f"{head} {'ours':>8} {'limit':>8} {'ratio':>6} {'peer':>8} {'ratio':>6}")
    for index in range(len(SHAPES)):
        rounds = options.rounds or ROUNDS[index]
        command = [sys.executable, __file__, "--only", str(index), "--rounds", str(rounds)]
        command += ["--noise", str(options.noise), *(["--no-peer"] if options.no_peer else [])]
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        results.append(result)
        if not options.json:
            show(result)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
