"""ProcessGroup: sums and checks over the processes of torch.distributed, in few messages."""

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
"""Largest number of values in a message (256 MiB); sending it needs as much additional memory."""
WAIT_SECONDS, PAUSE_SECONDS = 20.0, 0.002
"""Seconds after which a waiting process warns, and seconds between two checks.
The timeout of the group ends the wait."""


def is_distributed(group: Group = None) -> bool:
    """Whether several processes of torch.distributed work together.

    >>> is_distributed()
    False
    """
    ready = dist.is_available() and dist.is_initialized()
    return ready and dist.get_world_size(group) != 1  # -1 if the group excludes this process.


class ProcessGroup:
    """The processes that measure together, each with its part of the data.

    Without torch.distributed the group has one process. All processes must call the same methods
    in the same order. Tensors are sent from a device that the backend supports: from the GPU with
    nccl, from main memory with gloo.

    >>> processes = ProcessGroup()
    >>> processes.size, processes.rank, processes.gather([3, 4]).tolist()
    (1, 0, [[3, 4]])
    """

    def __init__(self, group: Group = None) -> None:
        self.group = group
        self.size, self.rank = 1, 0
        if is_distributed(group):
            self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
            if self.rank < 0:
                raise NclabError(
                    "Expected a process group that contains this process, got one without it. "
                    "Pass the group only in its own processes."
                )

    def gather(self, numbers: Sequence[int]) -> Tensor:
        """Send k integers to all processes; return the integers of all of them, (processes, k)."""
        values = torch.tensor([*numbers], dtype=torch.int64)
        if self.size == 1:
            return values[None]
        sent = values.to(self._sending_device(values.device))
        received = [torch.empty_like(sent) for _ in range(self.size)]
        with self._one_line_errors():
            self._wait(dist.all_gather(received, sent, group=self.group, async_op=True))
        return torch.stack(received).cpu()

    def reduce_(self, tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        """Replace a tensor by its sum, maximum or minimum over all processes, and return it."""
        if self.size > 1:
            sent = tensor.to(self._sending_device(tensor.device)).contiguous()
            with self._one_line_errors():
                dist.all_reduce(sent, op, group=self.group)
            if sent is not tensor:
                tensor.copy_(sent)
        return tensor

    def sum_(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all tensors by their sums over all processes, with one message.

        Integers are sent as float64, which represents them exactly up to 2^53.
        """
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten().double() for tensor in tensors.values()])
        self.reduce_(flat)
        sizes = [tensor.numel() for tensor in tensors.values()]
        for tensor, part in zip(tensors.values(), flat.split(sizes), strict=True):
            tensor.copy_(part.view_as(tensor))

    def gather_equal(
        self, name: str, numbers: Sequence[int], *, others: Sequence[int] = ()
    ) -> Tensor:
        """Return the k integers `others` of every process, as a (processes, k) tensor.

        Raise, in every process, if `numbers` are not the same in all processes.
        """
        values = self.gather([*numbers, *others])
        equal, others_of_all = values.split([len(numbers), len(others)], 1)
        if not bool((equal == equal[0]).all()):
            raise DataError(
                f"Expected {name} in every process, got {equal.tolist()}. Create the "
                "streams with the same settings in all of them."
            )
        return others_of_all

    def _sending_device(self, device: torch.device) -> torch.device:
        """Return the device from which the backend can send a tensor of this device."""
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
    def _one_line_errors(self) -> Iterator[None]:
        """Replace a failure of the communication by a one-line error."""
        try:
            yield
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NclabError(
                f"Expected {self.size} processes to work together, but rank {self.rank} lost the "
                f"connection to another one: {line.rstrip('.')}. Read the error message of that "
                "process, then restart all processes."
            ) from error

    def _wait(self, work: dist.Work | None) -> None:
        """Wait for the other processes, and warn if they take long, since one may never come."""
        if work is None:
            return
        start, warned = time.monotonic(), False
        while not work.is_completed():
            time.sleep(PAUSE_SECONDS)
            if not warned and time.monotonic() - start > WAIT_SECONDS:
                warned = True
                warnings.warn(
                    f"Rank {self.rank} waits for the other {self.size - 1} processes. Make the "
                    "same call in all of them, or measure in this process alone with "
                    "process_group='local'.",
                    NclabWarning,
                    stacklevel=5,
                )
        work.wait()
