"""Ranks: what processes of torch.distributed tell each other about their sums, in few messages."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError, NclabError, NclabWarning

Group = dist.ProcessGroup | None
MESSAGE = 2**25
"""Numbers in one message, 256 MiB: what lies beside the sums while they are on the wire."""
WAIT_SECONDS, PAUSE_SECONDS = 20.0, 0.002
"""After so long a rank says whom it waits for; the group's own timeout ends the wait."""


def many(group: Group = None) -> bool:
    """Whether several processes of torch.distributed work together.

    >>> many()
    False
    """
    ready = dist.is_available() and dist.is_initialized()
    return ready and dist.get_world_size(group) != 1  # -1 for a group of others


class Ranks:
    """The processes of a group, each with its part of the data; alone where there is no group.

    Every method is called by all of them, in the same order. Tensors go over the wire from where
    the backend can send them: nccl from its GPU, gloo from memory.

    >>> ranks = Ranks()
    >>> ranks.size, ranks.rank, ranks.gather([3, 4]).tolist()
    (1, 0, [[3, 4]])
    """

    def __init__(self, group: Group = None) -> None:
        self.group = group
        self.size, self.rank = 1, 0
        if many(group):
            self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
            if self.rank < 0:
                raise NclabError("Expected a group that this process belongs to, got another one.")

    def gather(self, own: Sequence[int]) -> Tensor:
        """(ranks, k) a few whole numbers of each."""
        numbers = torch.tensor([*own], dtype=torch.int64)
        if self.size == 1:
            return numbers[None]
        sent = numbers.to(self.wire(numbers.device))
        parts = [torch.empty_like(sent) for _ in range(self.size)]
        with self.joint():
            self._patiently(dist.all_gather(parts, sent, group=self.group, async_op=True))
        return torch.stack(parts).cpu()

    def gather_rows(self, own: Tensor) -> Tensor:
        """The rows of all ranks one below the other, in their order."""
        if self.size == 1:
            return own
        rows = self.gather([len(own)]).flatten().tolist()
        sent = own.new_zeros(max(rows), *own.shape[1:])
        sent[: len(own)] = own
        sent = sent.to(self.wire(own.device))
        parts = [torch.empty_like(sent) for _ in range(self.size)]
        with self.joint():
            dist.all_gather(parts, sent, group=self.group)
        return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)]).to(own)

    def reduce_(self, tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        """The tensor itself, with the sum, or largest, or smallest of all ranks in it."""
        if self.size > 1:
            sent = tensor.to(self.wire(tensor.device)).contiguous()
            with self.joint():
                dist.all_reduce(sent, op, group=self.group)
            if sent is not tensor:
                tensor.copy_(sent)
        return tensor

    def sum_(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the sums over all ranks into the tensors, in one message.

        Whole numbers travel as float64, which holds them up to 2^53.
        """
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten().double() for tensor in tensors.values()])
        self.reduce_(flat)
        sizes = [tensor.numel() for tensor in tensors.values()]
        for tensor, part in zip(tensors.values(), flat.split(sizes), strict=True):
            tensor.copy_(part.view_as(tensor))

    def agree(self, what: str, own: Sequence[int]) -> None:
        """Refuse, in every rank, numbers that are not the same in all of them."""
        found = self.gather(own)
        if not bool((found == found[0]).all()):
            raise DataError(
                f"Expected the same {what} in every process, got {found.tolist()}. Make the "
                "streams alike in all of them."
            )

    def wire(self, device: torch.device) -> torch.device:
        """Where a tensor of this device is sent from."""
        config = str(dist.get_backend_config(self.group))
        backends = dict(pair.split(":") for pair in config.split(","))
        if device.type in backends and not (
            device.type != "cpu" and backends[device.type] == "gloo"
        ):
            return device
        if "cpu" in backends:
            return torch.device("cpu")
        kind = next(iter(backends))
        return torch.device(kind, torch.get_device_module(kind).current_device())

    @contextmanager
    def joint(self) -> Iterator[None]:
        """What breaks on the way to the others is one line."""
        try:
            yield
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NclabError(
                f"Expected {self.size} processes to work together, but rank {self.rank} lost "
                f"another one: {line.rstrip('.')}. Its own message says why; start all again."
            ) from error

    def _patiently(self, work: dist.Work | None) -> None:
        """Wait; say so where it takes long, since a rank may never come."""
        if work is None:
            return
        since, told = time.monotonic(), False
        while not work.is_completed():
            time.sleep(PAUSE_SECONDS)
            if not told and time.monotonic() - since > WAIT_SECONDS:
                told = True
                warnings.warn(
                    f"Rank {self.rank} waits for the other {self.size - 1} processes. Call the "
                    "same in all of them, or measure with group='own'.",
                    NclabWarning,
                    stacklevel=5,
                )
        work.wait()


def sum_looks(ranks: Ranks, what: str, sums: Mapping[str, Tensor], means: Tensor) -> None:
    """Add up, in place, what looks at the same class means have seen in all ranks."""
    if ranks.size == 1:
        return
    bits = int(means.sum().reshape(1).cpu().view(torch.int64))
    found = ranks.gather([*means.shape, bits])
    if not bool((found == found[0]).all()):
        raise DataError(f"Expected {what} at the same class means. Join the moments first.")
    ranks.sum_(sums)
