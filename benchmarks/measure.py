"""Measuring against the physical limit: our CPU time beside that of the bare arithmetic.

One run, one thread, float32 features in memory. Ours is `measure_features` with every one-pass
metric on. The limit is the same work without any of the care: one read of the features, one
float64 scatter-add of them, one float32 d x d product, one float64 C x C product, each at its
fastest. Best of several rounds that alternate between the two.

    python benchmarks/measure.py [--json] [--rounds 25] [--only 0]
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
ROUNDS = (25, 25, 4)
"""Enough for both sides to meet a quiet moment of a shared machine, some 20 seconds a shape."""
STATUS = Path("/proc/self/status")


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def ours(features: Tensor, labels: Tensor, num_classes: int) -> None:
    """All one-pass metrics."""
    nclab.measure_features(features, labels, num_classes=num_classes, second_look=False)


def limit_parts(features: Tensor, labels: Tensor, num_classes: int) -> dict[str, float]:
    """CPU time of each piece of bare arithmetic."""
    rows, dim = features.shape
    block = features[:256].double()
    sums = torch.zeros(num_classes, dim, dtype=torch.float64)
    scatter32 = torch.zeros(dim, dim)
    means = torch.randn(num_classes, dim, dtype=torch.float64)
    gram = torch.empty(min(512, num_classes), num_classes, dtype=torch.float64)

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

    return {
        "read": cpu_seconds(features.sum),
        "scatter_add": cpu_seconds(scatter_add),
        "d_by_d": cpu_seconds(product),
        "c_by_c": cpu_seconds(pairs),
    }


def resident_mb(field: str) -> float:
    """VmRSS or VmHWM of this process in MB, where the system tells."""
    if not STATUS.exists():
        return float("nan")
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    """Let the kernel's record of the peak start anew."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def run(shape: tuple[int, int, int], rounds: int) -> dict[str, object]:
    """One shape: alternate, keep the best of each."""
    rows, dim, num_classes = shape
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % num_classes
    labels = labels[torch.randperm(rows, generator=generator)]
    features = torch.randn(num_classes, dim, generator=generator)[labels]
    features.add_(torch.randn(rows, dim, generator=generator), alpha=0.1)
    ours(features[:2000], labels[:2000] % 2, 2)  # warm up: imports, thread pools
    forget_peak()
    before = resident_mb("VmRSS")
    best_ours = cpu_seconds(lambda: ours(features, labels, num_classes))
    peak = resident_mb("VmHWM") - before
    best_parts = limit_parts(features, labels, num_classes)
    for _ in range(rounds - 1):
        best_ours = min(best_ours, cpu_seconds(lambda: ours(features, labels, num_classes)))
        for name, seconds in limit_parts(features, labels, num_classes).items():
            best_parts[name] = min(best_parts[name], seconds)
    limit = sum(best_parts.values())
    return {
        "N": rows,
        "d": dim,
        "C": num_classes,
        "ours_cpu_s": round(best_ours, 4),
        "limit_cpu_s": round(limit, 4),
        "ratio": round(best_ours / limit, 3),
        "peak_extra_mb": round(peak, 1),
        "limit_parts_s": {name: round(seconds, 4) for name, seconds in best_parts.items()},
    }


def main() -> None:
    """Each shape in a process of its own, so that its peak memory is its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--rounds", type=int, help="rounds per shape, best is kept")
    parser.add_argument("--only", type=int, help="index of a single shape, in this process")
    options = parser.parse_args()
    if options.only is not None:
        rounds = options.rounds or ROUNDS[options.only]
        print(json.dumps(run(SHAPES[options.only], rounds)))
        return
    results = []
    if not options.json:
        print(f"{'N':>8} {'d':>5} {'C':>6} {'ours':>8} {'limit':>8} {'ratio':>6} {'peak MB':>8}")
    for index in range(len(SHAPES)):
        rounds = options.rounds or ROUNDS[index]
        command = [sys.executable, __file__, "--only", str(index), "--rounds", str(rounds)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        results.append(result)
        if not options.json:
            print(
                f"{result['N']:>8} {result['d']:>5} {result['C']:>6} {result['ours_cpu_s']:>7.3f}s "
                f"{result['limit_cpu_s']:>7.3f}s {result['ratio']:>6.2f} "
                f"{result['peak_extra_mb']:>8.0f}"
            )
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
