"""What every process of a torchrun does for `test_ranks.py`: the same work on its own part."""

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
"""The class that only the first rank has."""
FEWEST = 7
"""Samples of a class that is not too rare."""
COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "broadcast",
    "all_to_all_single",
    "batch_isend_irecv",
)


def data(offset: float = 3.0, noise: float = 0.5) -> Cloud:
    """Clouds of unequal size; some rows are to be ignored."""
    made = cloud(CLASSES, DIM, 12, balanced=False, offset=offset, noise=noise)
    made.labels[::17] = -100
    return made


def shares(labels: Tensor, size: int, *, empty: bool) -> list[Tensor]:
    """The rows of each rank: of very different numbers, the lonely class with the first alone.

    With `empty` the last rank has none at all.
    """
    readers = size - 1 if empty else size
    owner = (torch.arange(len(labels)) % (2 * readers)).clamp_max(readers - 1)
    owner[labels == LONELY] = 0
    return [(owner == rank).nonzero().flatten() for rank in range(size)]


def network() -> nn.Module:
    """In float64, so that batches do not show in the numbers."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(DIM, 16), nn.Tanh(), nn.Linear(16, 9), nn.Linear(9, CLASSES))
    return layers.double()


def batches(rows: Tensor, made: Cloud, size: int = 10) -> Batches:
    """Of some rows."""
    return [(made.features[part], made.labels[part]) for part in rows.split(size)]


def moments(made: Cloud, rows: Tensor, **options: Any) -> ClassMoments:
    """Of some rows, as they come."""
    found = ClassMoments(CLASSES, DIM, scatter=True, **options)
    for features, labels in batches(rows, made):
        found.update(features, labels)
    return found


def numbers(found: ClassMoments) -> dict[str, Any]:
    """All that moments tell."""
    names = ("counts", "zero_counts", "means", "unit_means", "variances", "within_scatter")
    told = {name: getattr(found, name).flatten().tolist() for name in names}
    return {**told, "seen": [found.ignored, found.rows_seen, found.unit]}


def refusal(work: Callable[[], Any]) -> str:
    """What is said instead of a result."""
    try:
        work()
    except nclab.NclabError as error:
        return str(error)
    return ""


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often each collective is called."""
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
    """Everything that the tests ask about, in the order in which all ranks do it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    made, tight = data(), data(offset=1e6, noise=1e-4)
    own = shares(made.labels, size, empty=True)[rank]
    told: dict[str, Any] = {"rows": len(own)}

    joined = moments(made, own)
    with counted() as calls:
        joined.all_reduce()
    told["calls"] = sum(calls.values())
    told["moments"] = numbers(joined)
    close = moments(tight, own)
    close.all_reduce()
    told["tight"] = numbers(close)

    logits, look = LogitStatistics(CLASSES), SecondPass(joined)
    for rows, labels in batches(own, made):
        predicted = logits.update(rows @ made.weight.T + made.bias, labels)
        kept = labels != -100
        look.update(rows[kept], labels[kept], predicted)
    logits.all_reduce()
    look.all_reduce()
    told["logits"] = {name: value.tolist() for name, value in logits.sums().items()}
    told["look"] = {name: value.flatten().tolist() for name, value in look.sums().items()}

    halves = [dist.new_group([0, 1]), dist.new_group(list(range(2, size)) or [0])]
    pair = moments(made, own)
    if rank < 2:
        pair.all_reduce(halves[0])
    told["pair"] = numbers(pair)["counts"] if rank < 2 else []
    told["stranger"] = "" if rank < 2 else refusal(lambda: pair.all_reduce(halves[0]))
    other = ClassMoments(CLASSES, DIM + (rank == 1))
    told["unlike"] = refusal(other.all_reduce)
    alone = SecondPass(moments(made, torch.arange(9 * rank, len(made.labels))))
    told["other means"] = refusal(alone.all_reduce)

    part = shares(made.labels, size, empty=False)[rank]
    loader, model = batches(part, made), network()
    report = nclab.measure(model, loader, test=loader[:2], layers="all", metrics="all")
    told["report"] = [layer.to_dict() for layer in report.layers]
    assert report.test is not None
    told["test"] = report.test.last.to_dict()
    rare = nclab.measure(model, loader, min_count=FEWEST, metrics="all")
    told["rare"] = rare.last.to_dict()
    unlike = LogitStatistics(CLASSES, residuals=rank > 0)  # of hard labels, and of soft ones
    unlike.all_reduce()
    told["residuals"] = unlike.residuals is not None
    told["own"] = nclab.measure(model, loader, process_group="local", allow_missing=True).samples
    told["no null"] = refusal(lambda: nclab.measure(model, loader, shuffled_labels=True))
    spoiled = [(rows, labels + 90 * (rank == 1)) for rows, labels in loader]
    told["bad label"] = refusal(lambda: nclab.measure(model, spoiled))
    once = nclab.measure(model, iter(loader) if rank == 1 else loader, cache_bytes=0)
    told["once"] = once.last.notes["nc4_ncc_accuracy"]
    moved = [(rows + 5.0, labels) for rows, labels in loader]
    told["changed"] = refusal(
        lambda: nclab.measure(
            model, Changing(loader, moved if rank == 1 else loader), cache_bytes=0
        )
    )
    told["again"] = nclab.measure(model, loader).last.to_dict()
    told["no batch"] = refusal(lambda: nclab.measure(model, loader if rank else []))
    return told


class Changing:
    """Other batches the second time."""

    def __init__(self, first: Batches, second: Batches) -> None:
        self._turns = [second, first]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._turns.pop())


def die() -> None:
    """The second rank is killed while the others wait for it."""
    made, rank = data(), dist.get_rank()
    found = moments(made, torch.arange(40))
    found.all_reduce()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        found.all_reduce()
    except nclab.NclabError as error:
        sys.stderr.write(f"nclab: {error}\n")
        sys.stderr.flush()
        os._exit(2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if sys.argv[1:] == ["die"]:
        die()
    told = work()
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.destroy_process_group()
