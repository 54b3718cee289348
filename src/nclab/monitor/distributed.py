"""Joins what the processes of torch.distributed have seen: exactly, and the same on each of them.

Sums are broadcast by each process in turn and merged in that order, as plain tensors of numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.layer_stream import LayerStream
from nclab.monitor.running_estimate import RunningEstimate
from nclab.statistics import ClassMoments, LogitStatistics, SecondLook
from nclab.statistics.reference_look import ReferenceLook

Stream = TypeVar("Stream", LogitStatistics, SecondLook, ReferenceLook)


def active() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return not active() or dist.get_rank() == 0


def join(running: RunningEstimate) -> None:
    """Make every process's running estimate that of all; empty where none has read a batch."""
    if not bool(_gathered(torch.tensor([int(bool(running.streams))])).any()):
        return
    if running.layers.found:
        running.start()
    AllProcesses().moments(running.streams)


class AllProcesses:
    """For `Measurement`: each process reads its own part of the data."""

    def moments(self, streams: Sequence[LayerStream]) -> None:
        """Merge moments and logits of all processes."""
        _agree([stream.moments.dim for stream in streams])
        for stream in streams:
            if stream.num_classes is None:  # each process knows only the labels it has seen
                own = torch.tensor([stream.moments.num_classes])
                stream.grow(int(_gathered(own).max()))
            stream.moments = _joined_moments(stream.moments)
            if stream.against is not None:
                blank = partial(_empty_look, stream.against)
                stream.against = _joined(stream.against, blank)
            stream.nonfinite = _sum(stream.nonfinite)
            if stream.logits is not None:
                stream.logits = _joined(stream.logits, stream.new_logits)

    def looks(self, streams: Sequence[LayerStream], *, complete: bool) -> None:
        """Merge the second looks, or drop them if one process could not take its own."""
        everywhere = bool(_gathered(torch.tensor([int(complete)])).all())
        for stream in streams:
            blank = partial(SecondLook, stream.moments)
            stream.look = _joined(stream.look or blank(), blank) if everywhere else None


def _empty_look(look: ReferenceLook) -> ReferenceLook:
    return ReferenceLook(look.moments, look.classes)


def _joined_moments(own: ClassMoments) -> ClassMoments:
    parts = map(ClassMoments.from_state_dict, _in_turn(own.state_dict()))
    total = next(parts)
    for part in parts:
        total.merge(part)
    return total.to(own.device)


def _joined(own: Stream, blank: Callable[[], Stream]) -> Stream:
    total, part = blank(), blank()
    for rank, state in enumerate(_in_turn(own.sums())):
        (part if rank else total).load_sums(state)
        if rank:
            total.merge(part)
    return total


def _in_turn(state: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The states of all processes, of the same names, types and shapes, in order of rank."""
    device = _device()
    for rank in range(dist.get_world_size()):
        received = {}
        for name in sorted(state):
            tensor = state[name].to(device, copy=True).contiguous()
            dist.broadcast(tensor, src=rank)
            received[name] = tensor.to(state[name].device)
        yield received


def _agree(dims: Sequence[int]) -> None:
    """Refuse to merge unless every process has seen the same layers, and any."""
    sizes = _gathered(torch.tensor([len(dims), sum(dims)]))
    if not bool((sizes == sizes[0]).all()) or not dims:
        without = [rank for rank, row in enumerate(sizes.tolist()) if not row[0]]
        what = f"processes {without} saw no batch" if without else "they measure other layers"
        raise DataError(
            f"Expected every process to measure the same layers, but {what}. Give each process "
            "batches of its own, and call the monitor in all of them."
        )


def _gathered(own: Tensor) -> Tensor:
    """(processes, ...) a small tensor of every process."""
    own = own.to(_device())
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return torch.stack(parts).cpu()


def _sum(own: Tensor) -> Tensor:
    total = own.to(_device(), copy=True)
    dist.all_reduce(total)
    return total.to(own.device)


def _device() -> torch.device:
    """Where the backend sends from: nccl knows only its GPU."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
