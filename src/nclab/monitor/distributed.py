"""Joins what the processes of torch.distributed have seen: exactly, and the same on each of them.

Sums are broadcast by each process in turn and merged in that order, as plain tensors of numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.layer_stream import LayerStream
from nclab.monitor.running import LOGIT_SUMS, RunningEstimate
from nclab.statistics import ClassMoments, LogitStatistics, SecondLook

Stream = TypeVar("Stream")


def active() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return not active() or dist.get_rank() == 0


def join(running: RunningEstimate) -> None:
    """Make every process's running estimate that of all; empty where none has read a batch."""
    if not bool(_gathered(torch.tensor([int(bool(running.layers))])).any()):
        return
    settled = running.survey.found is not None
    if settled:
        running.start()
    _agree([layer.moments.dim for layer in running.layers] if settled else None)
    for layer in running.layers:
        layer.moments = joined_moments(layer.moments)
        layer.nonfinite = _sum(layer.nonfinite)
    if running.logits is not None:
        running.logits = joined_logits(running.logits)


class Sharing:
    """For `Measurement`: each process reads its own part of the data."""

    def moments(self, streams: Sequence[LayerStream]) -> None:
        """Merge moments and logits of all processes."""
        known = [stream.moments.dim for stream in streams if stream.moments is not None]
        _agree(known if known else None)
        for stream in streams:
            assert stream.moments is not None
            stream.moments = joined_moments(stream.moments)
            if stream.logits is not None:
                stream.logits = joined_logits(stream.logits)

    def looks(self, streams: Sequence[LayerStream], *, complete: bool) -> None:
        """Merge the second looks, or drop them if one process could not take its own."""
        everywhere = bool(_gathered(torch.tensor([int(complete)])).all())
        for stream in streams:
            assert stream.moments is not None
            look = stream.look or SecondLook(stream.moments)
            stream.look = joined_look(look, stream.moments) if everywhere else None


def joined_moments(own: ClassMoments) -> ClassMoments:
    """The moments of all processes together."""
    parts = (ClassMoments.from_state_dict(state) for state in _in_turn(own.state_dict()))
    return _merged(parts, ClassMoments.merge).to(own.device)


def joined_logits(own: LogitStatistics) -> LogitStatistics:
    """The logit statistics of all processes together."""

    def rebuilt(state: Mapping[str, Tensor]) -> LogitStatistics:
        result = LogitStatistics(own.num_classes, ignore_index=own.ignore_index)
        for name in LOGIT_SUMS:
            setattr(result, name, state[name].to(own.counts.device))
        return result

    states = _in_turn({name: getattr(own, name) for name in LOGIT_SUMS})
    return _merged((rebuilt(state) for state in states), LogitStatistics.merge)


def joined_look(own: SecondLook, moments: ClassMoments) -> SecondLook:
    """The second looks of all processes together."""

    def rebuilt(state: Mapping[str, Tensor]) -> SecondLook:
        result = SecondLook(moments)
        result.load_sums(state)
        return result

    return _merged((rebuilt(state) for state in _in_turn(own.sums())), SecondLook.merge)


def _merged(parts: Iterator[Stream], merge: Callable[[Stream, Stream], None]) -> Stream:
    total = next(parts)
    for part in parts:
        merge(total, part)
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


def _agree(dims: Sequence[int] | None) -> None:
    """Refuse to merge unless every process has seen the same layers."""
    known = dims is not None
    sizes = _gathered(torch.tensor([int(known), len(dims or ()), sum(dims or ())]))
    if not bool((sizes == sizes[0]).all()) or not known:
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
