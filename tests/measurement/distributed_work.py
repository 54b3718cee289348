"""Work of every process of a torchrun for `test_distributed.py`, on its part of the data."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import nclab
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass
from tests.clouds import Cloud, cloud

Batches = list[tuple[Tensor, Tensor]]
CLASSES, DIM = 11, 7
LONELY = 3
"""Class whose samples only the first process has."""
FEWEST = 7
"""Smallest number of samples of a class that is not rare."""
COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "broadcast",
    "all_to_all_single",
    "batch_isend_irecv",
)


def data(offset: float = 3.0, noise: float = 0.5) -> Cloud:
    """Return clouds of unequal size, with some rows to ignore."""
    data_set = cloud(CLASSES, DIM, 12, balanced=False, offset=offset, noise=noise)
    data_set.labels[::17] = -100
    return data_set


def shares(labels: Tensor, size: int, *, empty: bool) -> list[Tensor]:
    """Return the rows of each process: unequal numbers, and one class in the first process only.

    With `empty` the last process has no rows.
    """
    readers = size - 1 if empty else size
    owner = (torch.arange(len(labels)) % (2 * readers)).clamp_max(readers - 1)
    owner[labels == LONELY] = 0
    return [(owner == rank).nonzero().flatten() for rank in range(size)]


def network() -> nn.Module:
    """Return a network in float64, so that numbers do not depend on the batches."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(DIM, 16), nn.Tanh(), nn.Linear(16, 9), nn.Linear(9, CLASSES))
    return layers.double()


def batches(rows: Tensor, data_set: Cloud, size: int = 10) -> Batches:
    """Return some rows in batches."""
    return [(data_set.features[part], data_set.labels[part]) for part in rows.split(size)]


def moments(data_set: Cloud, rows: Tensor, **options: Any) -> ClassMoments:
    """Return the moments of some rows."""
    total = ClassMoments(CLASSES, DIM, scatter=True, **options)
    for features, labels in batches(rows, data_set):
        total.update(features, labels)
    return total


def numbers(total: ClassMoments) -> dict[str, Any]:
    """Return all numbers of moments."""
    names = ("counts", "zero_counts", "means", "unit_means", "variances", "within_scatter")
    results = {name: getattr(total, name).flatten().tolist() for name in names}
    return {**results, "seen": [total.ignored, total.rows_seen, total.unit]}


def refusal(work: Callable[[], Any]) -> str:
    """Return the message of the error that `work` raises."""
    try:
        work()
    except nclab.NclabError as error:
        return str(error)
    return ""


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the calls of each collective operation."""
    calls = dict.fromkeys(COLLECTIVES, 0)
    before = {name: getattr(dist, name) for name in COLLECTIVES}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return before[name](*args, **kwargs)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, wrapped(name))
    try:
        yield calls
    finally:
        for name in COLLECTIVES:
            setattr(dist, name, before[name])


def work() -> dict[str, Any]:
    """Return the results of all tests, computed in the same order in all processes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data_set, tight = data(), data(offset=1e6, noise=1e-4)
    part_rows = shares(data_set.labels, size, empty=True)[rank]
    results: dict[str, Any] = {"rows": len(part_rows)}

    joined = moments(data_set, part_rows)
    with counted() as calls:
        joined.all_reduce()
    results["calls"] = sum(calls.values())
    results["moments"] = numbers(joined)
    close = moments(tight, part_rows)
    close.all_reduce()
    results["tight"] = numbers(close)

    logits, second_pass = LogitStatistics(CLASSES), SecondPass(joined)
    for rows, labels in batches(part_rows, data_set):
        predicted = logits.update(rows @ data_set.weight.T + data_set.bias, labels)
        kept = labels != -100
        second_pass.update(rows[kept], labels[kept], predicted)
    logits.all_reduce()
    second_pass.all_reduce()
    results["logits"] = {name: value.tolist() for name, value in logits.sums().items()}
    results["look"] = {name: value.flatten().tolist() for name, value in second_pass.sums().items()}

    halves = [dist.new_group([0, 1]), dist.new_group(list(range(2, size)) or [0])]
    pair = moments(data_set, part_rows)
    if rank < 2:
        pair.all_reduce(halves[0])
    results["pair"] = numbers(pair)["counts"] if rank < 2 else []
    results["stranger"] = "" if rank < 2 else refusal(lambda: pair.all_reduce(halves[0]))
    other = ClassMoments(CLASSES, DIM + (rank == 1))
    results["unlike"] = refusal(other.all_reduce)
    alone = SecondPass(moments(data_set, torch.arange(9 * rank, len(data_set.labels))))
    results["other means"] = refusal(alone.all_reduce)

    part = shares(data_set.labels, size, empty=False)[rank]
    loader, model = batches(part, data_set), network()
    report = nclab.measure(model, loader, test=loader[:2], layers="all", metrics="all")
    results["report"] = [layer.to_dict() for layer in report.layers]
    assert report.test is not None
    results["test"] = report.test.last.to_dict()
    rare = nclab.measure(model, loader, min_count=FEWEST, metrics="all")
    results["rare"] = rare.last.to_dict()
    unlike = LogitStatistics(CLASSES, residuals=rank > 0)  # one process has none
    unlike.all_reduce()
    results["residuals"] = unlike.residual_sums is not None
    results["own"] = nclab.measure(model, loader, process_group="local", min_count=1).samples
    results["intervals"] = refusal(lambda: nclab.measure(model, loader, intervals=True))
    spoiled = [(rows, labels + 90 * (rank == 1)) for rows, labels in loader]
    results["bad label"] = refusal(lambda: nclab.measure(model, spoiled))
    once = nclab.measure(model, iter(loader) if rank == 1 else loader, cache_bytes=0)
    results["once"] = once.last.notes["nc4_ncc_accuracy"]
    moved = [(rows + 5.0, labels) for rows, labels in loader]
    results["changed"] = refusal(
        lambda: nclab.measure(
            model, Changing(loader, moved if rank == 1 else loader), cache_bytes=0
        )
    )
    results["again"] = nclab.measure(model, loader).last.to_dict()
    results["no batch"] = refusal(lambda: nclab.measure(model, loader if rank else []))
    return results


class Changing:
    """A loader that yields other batches the second time."""

    def __init__(self, first: Batches, second: Batches) -> None:
        self._turns = [second, first]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._turns.pop())


def die() -> None:
    """Kill the second process while the others wait for it."""
    data_set, rank = data(), dist.get_rank()
    total = moments(data_set, torch.arange(40))
    total.all_reduce()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        total.all_reduce()
    except nclab.NclabError as error:
        sys.stderr.write(f"nclab: {error}\n")
        sys.stderr.flush()
        os._exit(2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if sys.argv[1:] == ["die"]:
        die()
    results = work()
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
