"""Measure many classes on one machine: time and limit, peak memory, exponents.

`--classes 100000 --rows 500000 --dim 768` writes features to shards (float32, class means and noise
drawn at random). A separate process then measures them with one thread: every one-pass metric and
the tiled statistics of all pairs of classes, `measure_shards(..., second_pass=False, workers=0)`;
`--second-pass` runs the default call. The limit, measured afterwards in the same process, is the
least that any program must do: read the shards once, add their rows to C x d float64 sums once, and
compute one C x C Gram matrix of half the pairs in float32 tiles.

`--exponents` fits how the two parts of a measurement grow: reading with the number of rows N, all
else with the number of classes C and the dimension d. The cost model of docs/scale.md is beside
them.

    python benchmarks/scale.py [--classes 20000] [--rows 100000] [--dim 768] [--json]
    python benchmarks/scale.py --exponents [--json]
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

import nclab
from nclab.measurement.gather import gather
from nclab.measurement.shard_files import find_shards, open_shard

SHARD = 2**13
"""Rows per file."""
NOISE = 0.3
TILE = 512
STATUS = Path("/proc/self/status")
READING = (25_000, 50_000, 100_000, 200_000)
CLASSES = (17_000, 24_000, 34_000)
DIMS = (128, 256, 512)
FIT_DIM = 256


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def batches(rows: int, classes: int, dim: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features and labels file by file; all classes are about equally frequent."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(classes, dim, generator=generator)
    order = torch.randperm(rows, generator=generator) % classes
    for labels in order.split(SHARD):
        noise = torch.randn(len(labels), dim, generator=generator)
        yield means[labels].add_(noise, alpha=NOISE), labels


def peak_gb() -> float:
    """Return the peak memory of this process in GB."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    found = (int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM"))
    return next(found, math.nan)


def limit(folder: Path, classes: int, dim: int) -> dict[str, float]:
    """Return the CPU time of the necessary work, each part at its fastest."""
    sums = torch.zeros(classes, dim, dtype=torch.float64)
    rows = torch.nn.functional.normalize(torch.randn(classes, dim))
    block, tile = torch.randn(256, dim, dtype=torch.float64), torch.empty(TILE, TILE)
    labels = torch.cat([open_shard(path).labels() for path in find_shards(folder)])

    def read() -> None:
        for path in find_shards(folder):
            for part in open_shard(path).features():
                part.sum()

    def scatter() -> None:
        for part in labels.split(len(block)):
            sums.scatter_add_(0, part[:, None].expand(-1, dim), block[: len(part)])

    def gram() -> None:
        for start in range(0, classes, TILE):
            left = rows[start : start + TILE]
            for other in range(start, classes, TILE):
                right = rows[other : other + TILE]
                torch.mm(left, right.T, out=tile[: len(left), : len(right)])

    return {work.__name__: cpu_seconds(work) for work in (read, scatter, gram)}


def measured(folder: Path, *, second_pass: bool) -> dict[str, object]:
    """Measure once in this process; return time, peak memory and limit."""
    torch.set_num_threads(1)
    first = next(iter(find_shards(folder)))
    dim = next(iter(open_shard(first).features())).shape[1]
    warm, own = torch.randn(600, 512), torch.arange(600) % 3
    nclab.measure_features(warm, own)  # compile and import before timing
    before = peak_gb()
    started = time.process_time()
    collapse = nclab.measure_shards(folder, second_pass=second_pass, workers=0)
    ours = time.process_time() - started
    peak = peak_gb()
    parts = limit(folder, collapse.num_classes, dim)
    total = sum(parts.values())
    return {
        "N": collapse.samples,
        "d": dim,
        "C": collapse.num_classes,
        "second_pass": second_pass,
        "ours_cpu_s": round(ours, 2),
        "limit_cpu_s": {name: round(seconds, 2) for name, seconds in parts.items()},
        "ratio": round(ours / total, 3),
        "peak_gb": round(peak, 3),
        "before_gb": round(before, 3),
        "closest": [list(pair) for pair in collapse.closest_pairs[:3]],
        "values": {name: value for name, value in collapse.scalars().items() if value is not None},
    }


def at_size(rows: int, classes: int, dim: int, *, second_pass: bool) -> dict[str, object]:
    """Write the shards and measure them in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (features, labels) in enumerate(batches(rows, classes, dim)):
            part = {"features": features, "labels": labels}
            save_file(part, f"{folder}/part-{number}.safetensors")
        command = [sys.executable, __file__, "--folder", folder]
        command += ["--second-pass"] if second_pass else []
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        result: dict[str, object] = json.loads(found)
        return result


def reading_seconds(rows: int, dim: int, classes: int = 1000) -> float:
    """Return the CPU time of the class sums of this many rows."""
    parts = list(batches(rows, classes, dim))
    moments = nclab.ClassMoments(classes, dim, scatter=True)

    def read() -> None:
        for part in parts:
            moments.update(*part)

    return cpu_seconds(read)


def pair_seconds(classes: int, dim: int) -> float:
    """Return the CPU time of all metrics after the class sums are known."""
    moments = nclab.ClassMoments(classes, dim, scatter=True)
    for part in batches(classes, classes, dim):
        moments.update(*part)
    return cpu_seconds(lambda: gather(moments))


def slope(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Return the exponent of a power law, by least squares of the logarithms."""
    x = torch.tensor(sizes).double().log()
    y = torch.tensor(seconds).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / x.square().sum())


def exponents() -> dict[str, object]:
    """Return times and fitted exponents of both parts, best of two after a warm-up."""
    torch.set_num_threads(1)
    reading_seconds(SHARD, FIT_DIM)
    times = {
        "N": [min(reading_seconds(rows, FIT_DIM) for _ in range(2)) for rows in READING],
        "C": [min(pair_seconds(classes, FIT_DIM) for _ in range(2)) for classes in CLASSES],
        "d": [min(pair_seconds(CLASSES[0], dim) for _ in range(2)) for dim in DIMS],
    }
    sizes = {"N": READING, "C": CLASSES, "d": DIMS}
    return {
        name: {
            "sizes": sizes[name],
            "cpu_s": [round(one, 3) for one in seconds],
            "exponent": round(slope(sizes[name], seconds), 3),
        }
        for name, seconds in times.items()
    }


def main() -> None:
    """Measure one size, or fit the exponents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--second-pass", action="store_true", help="the default call")
    parser.add_argument("--exponents", action="store_true", help="fit how times grow")
    parser.add_argument("--folder", type=Path, help="measure the shards there, in this process")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.folder is not None:
        print(json.dumps(measured(options.folder, second_pass=options.second_pass)))
        return
    if options.exponents:
        result = exponents()
    else:
        sizes = (options.rows, options.classes, options.dim)
        result = at_size(*sizes, second_pass=options.second_pass)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, value in result.items():
        print(f"{name:>12}  {value}")


if __name__ == "__main__":
    main()
