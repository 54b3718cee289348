"""Count the bytes and messages that joining processes sends, and compare them with the cost model.

python benchmarks/ranks.py [--classes 2000] [--dim 128] [--processes 2,4]

Every line is one call in rank 0. `messages` and `bytes` are counted where nclab calls
torch.distributed; `model` is the value of docs/clusters.md for these sizes. The exit code is 1 if a
count differs from the model. The CPU seconds of rank 0 are shown beside those of one `merge`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from nclab.statistics import ClassMoments, LogitStatistics, SecondPass

ROWS = 4000
"""Rows of each rank."""
COLLECTIVES = ("all_gather", "all_reduce", "all_to_all_single", "batch_isend_irecv")


def sent(name: str, args: tuple[Any, ...]) -> int:
    """Return the bytes that a call sends, without those that it receives."""
    if name == "batch_isend_irecv":
        return sum(move.tensor.nbytes for move in args[0] if move.op is dist.isend)
    tensor = args[0] if name == "all_reduce" else args[1]
    return int(tensor.nbytes)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count messages and bytes of all calls inside the context."""
    seen, before = [0, 0], {name: getattr(dist, name) for name in COLLECTIVES}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            seen[1] += sent(name, args)
            return before[name](*args, **kwargs)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, wrapped(name))
    try:
        yield seen
    finally:
        for name in COLLECTIVES:
            setattr(dist, name, before[name])


def work(classes: int, dim: int) -> list[dict[str, Any]]:
    """Run every call and print its counts beside those of the model."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    labels = torch.arange(rank, rank + ROWS * max(1, 2 * classes // ROWS)) % classes
    features = torch.randn(len(labels), dim, generator=generator) + labels[:, None] % 7
    moments = ClassMoments(classes, dim, scatter=True)
    moments.update(features, labels)
    other = ClassMoments.from_state_dict(moments.state_dict())
    begun = time.process_time()
    ClassMoments.from_state_dict(moments.state_dict()).merge(other)
    merge = time.process_time() - begun
    rows: list[dict[str, Any]] = []

    def note(name: str, model: tuple[int, int], call: Callable[[], Any]) -> None:
        dist.barrier()
        begun = time.process_time()
        with counted() as seen:
            call()
        spent = time.process_time() - begun
        rows.append(
            {
                "call": name,
                "messages": seen[0],
                "bytes": seen[1],
                "model": list(model),
                "cpu": round(spent, 4),
                "cpu_over_merge": round(spent / merge, 2),
            }
        )

    size_of_sums = 3 * classes * dim + dim * dim + 4 * classes
    note("moments", (5, 8 * (size_of_sums + 7)), moments.all_reduce)
    logits = LogitStatistics(classes)
    note("logits", (4, 8 * (4 * classes + 2)), logits.all_reduce)
    logits = LogitStatistics(classes, residuals=True)
    model = (5, 8 * (4 * classes + 2 + classes * classes))
    note("logits with residuals", model, logits.all_reduce)
    second_pass = SecondPass(moments)
    note("second pass", (2, 8 * (classes * dim + 7 * classes + 4 + 3)), second_pass.all_reduce)
    return rows


def main() -> int:
    """Launch the processes, or run as one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--processes", default="2,4")
    given = parser.parse_args()
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        rows = work(given.classes, given.dim)
        if dist.get_rank() == 0:
            sys.stdout.write("\n".join(json.dumps(row) for row in rows) + "\n")
        dist.destroy_process_group()
        return 0
    wrong = 0
    for processes in given.processes.split(","):
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        sizes = ["--classes", str(given.classes), "--dim", str(given.dim)]
        done = subprocess.run(
            [sys.executable, *launch, __file__, *sizes],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        for line in filter(lambda line: line.startswith("{"), done.stdout.splitlines()):
            row = json.loads(line)
            sys.stdout.write(json.dumps({"processes": int(processes), **row}) + "\n")
            wrong += [row["messages"], row["bytes"]] != row["model"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
