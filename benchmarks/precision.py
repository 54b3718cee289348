"""Compare sums in float64, in float32 with compensation, and in float32 alone.

Measures what a class sum costs and how large its error is, for float32 features around class means:
bytes per number of the sum, CPU time per number of the features, largest error relative to the
spread of a class. Each variant works like `statistics/kernel.py`: it subtracts the first row of the
class from a sample and adds the difference to the sum of the class. The compensated variant also
adds what rounding has lost, by Knuth's two-sum. The product of differences, of which the scatter
consists, is computed in float64 and as three products of float32 halves. The exact sums are those
of `math.fsum`. One thread; times are the best of several rounds.

    python benchmarks/precision.py [--classes 20000] [--rows 100000] [--dim 768] [--offset 100]
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

ROUNDS = 5
CHECKED = 50
"""Number of classes that are compared with the exact sum."""
FREEDOMS = {"reassoc", "contract", "nsz", "nnan"}
"""Freedoms of the compiler where the order of operations does not matter."""
Array = Any


def in_float64(rows: Array, classes: Array, pivots: Array, sums: Array) -> None:
    """Add in float64, as nclab does."""
    for i in range(rows.shape[0]):
        c = classes[i]
        for k in range(rows.shape[1]):
            sums[c, k] += np.float64(rows[i, k]) - pivots[c, k]


def compensated(rows: Array, classes: Array, pivots: Array, sums: Array, lost: Array) -> None:
    """Add two float32 numbers per sum: the sum and what rounding has lost so far."""
    for i in range(rows.shape[0]):
        c = classes[i]
        for k in range(rows.shape[1]):
            x, p = rows[i, k], pivots[c, k]
            r = x - p
            back = r - x
            rest = (x - (r - back)) - (p + back)  # r + rest is x - p, exactly
            s = sums[c, k]
            t = s + r
            step = t - s
            lost[c, k] += ((s - (t - step)) + (r - step)) + rest
            sums[c, k] = t


def in_float32(rows: Array, classes: Array, pivots: Array, sums: Array) -> None:
    """Add in float32: half the memory and no bound on the error."""
    for i in range(rows.shape[0]):
        c = classes[i]
        for k in range(rows.shape[1]):
            sums[c, k] += rows[i, k] - pivots[c, k]


def best(work: Callable[[], object]) -> float:
    """Return the CPU time of the fastest of several calls."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def class_sums(classes: int, rows: int, dim: int, offset: float) -> dict[str, Any]:
    """Time the three sums of the same rows."""
    generator = np.random.default_rng(0)
    labels = generator.permutation(rows) % classes
    means = offset * generator.standard_normal((classes, dim), dtype=np.float32)
    features = means[labels] + generator.standard_normal((rows, dim), dtype=np.float32)
    first = np.full(classes, rows)
    np.minimum.at(first, labels, np.arange(rows))
    pivots = features[first]
    wide = pivots.astype(np.float64)
    double = np.zeros((classes, dim))
    short, lost, single = np.zeros((3, classes, dim), dtype=np.float32)
    free = numba.njit(fastmath=FREEDOMS)
    work: dict[str, tuple[int, Any, tuple[Array, ...]]] = {
        "float64": (8, free(in_float64), (wide, double)),
        "compensated float32": (8, numba.njit(compensated), (pivots, short, lost)),
        "float32": (4, free(in_float32), (pivots, single)),
    }
    found: dict[str, Any] = {}
    for name, (size, function, arrays) in work.items():
        function(features[:1], labels[:1], *arrays)  # compiles

        def add(function: Callable[..., None] = function, arrays: Any = arrays) -> None:
            for part in arrays[1:]:
                part[...] = 0
            function(features, labels, *arrays)

        seconds = best(add)
        sums = sum(part.astype(np.float64) for part in arrays[1:])
        found[name] = {
            "bytes": size,
            "ns": round(1e9 * seconds / features.size, 2),
            "error": _error(features, labels, pivots, sums),
        }
    return found


def _error(features: Array, labels: Array, pivots: Array, sums: Array) -> float:
    """Return the largest error of a class mean; the spread of a class is 1."""
    worst = 0.0
    for own in range(min(CHECKED, len(sums))):
        rows = features[labels == own].astype(np.float64)
        for k in range(0, rows.shape[1], 8):
            exact = math.fsum(row - float(pivots[own, k]) for row in rows[:, k])
            worst = max(worst, abs(float(sums[own, k]) - exact) / len(rows))
    return float(f"{worst:.2g}")


def products(dim: int, rows: int = 4096) -> dict[str, float]:
    """Time the products of differences: in float64 and of float32 halves."""
    full = torch.randn(rows, dim, dtype=torch.float64)
    high = full.float()
    low = (full - high.double()).float()

    def halves() -> torch.Tensor:
        return high.T @ high + (high.T @ low + low.T @ high)

    exact, rough = full.T @ full, high.T @ high
    size = float(exact.abs().max())
    return {
        "float64_ms": round(1e3 * best(lambda: full.T @ full), 1),
        "three_float32_ms": round(1e3 * best(halves), 1),
        "three_float32_error": float(f"{float((halves() - exact).abs().max()) / size:.2g}"),
        "one_float32_error": float(f"{float((rough - exact).abs().max()) / size:.2g}"),
    }


def main() -> None:
    """Run one size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--offset", type=float, default=100.0, help="class means over spread")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sums = class_sums(options.classes, options.rows, options.dim, options.offset)
    found: dict[str, Any] = {"sums": sums, "products": products(options.dim)}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for part in found.values():
        for name, value in part.items():
            print(f"{name:>22}  {value}")


if __name__ == "__main__":
    main()
